#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace transformer {

/// A table before it is Markdown or HTML.
struct ReportTable {
  /// What stands in one column of a row.
  struct Cell {
    std::string text;            // plain, escaped as the format needs
    std::optional<double> sort;  // what the column is sorted by; absent: the text
    std::string look;            // classes of page.css; "beyond" and a base row's name are bold in Markdown
  };
  /// What the cells of a column have in common.
  struct Column {
    std::string head, explanation;  // the explanation shows while the mouse is over the head
    bool number = false;            // set to the right
  };

  std::vector<Column> columns;          // from the left
  std::vector<std::vector<Cell>> rows;  // a cell for each column
};

/// Takes out the columns in which no row has text, of those that `may_go` is true of.
void drop_empty_columns(ReportTable& table, const std::function<bool(const ReportTable::Column&)>& may_go);

/// As HTML that a click on a head sorts, with report_table.js in the page. `look` is the table's class.
std::string html_table(const ReportTable& table, const std::string& look);

}  // namespace transformer
