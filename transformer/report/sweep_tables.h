#pragma once

#include <string>

#include "transformer/report/report_table.h"
#include "transformer/report/sweep_figures.h"

namespace transformer {

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
