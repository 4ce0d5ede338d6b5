#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transformer/report/sweep_figures.h"

namespace transformer {

/// A table before it is Markdown or HTML.
struct ReportTable {
  struct Cell {
    std::string text;
    std::optional<double> sort;  // what the column is sorted by; absent: the text
    std::string look;            // classes of sweep_page.css; "beyond" and a base row's name are bold in Markdown
  };
  struct Column {
    std::string head, explanation;
    bool number = false;
  };

  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

/// The report's table: a row for each of its rows, the paper's figures beside ours.
ReportTable results_table(const SweepFigures& sweep);

/// Every run by itself.
ReportTable runs_table(const SweepReport& report);

/// "finished"
const char* name_of(SweepRun::State state);

/// "5.00 ± 0.10", or "5.00" of one value.
std::string with_deviation(const Spread& spread);

/// "+0.37" beyond the seeds' spread, "≈ +0.12" within it, "+0.37 ?" where that is unknown.
std::string difference_text(const RowDifference& difference);

}  // namespace transformer
