#pragma once

#include <optional>
#include <string>
#include <vector>

namespace transformer {

/// A table before it is Markdown or HTML.
struct ReportTable {
  struct Cell {
    std::string text;
    std::optional<double> sort;  // what the column is sorted by; absent: the text
    std::string look;            // classes of page.css; "beyond" and a base row's name are bold in Markdown
  };
  struct Column {
    std::string head, explanation;
    bool number = false;
  };

  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

/// As HTML that a click on a head sorts, with report_table.js in the page. `look` is the table's class.
std::string html_table(const ReportTable& table, const std::string& look);

}  // namespace transformer
