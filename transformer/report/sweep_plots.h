#pragma once

#include <functional>
#include <optional>
#include <string>

#include "transformer/report/axis.h"
#include "transformer/report/sweep_figures.h"

namespace transformer {

// A report's pictures, as SVG that is embedded in a page; empty where there is nothing to draw.

/// The learning curves of one group's rows, a curve a run, and the base row's in ink beside them. `value` takes from a
/// point what is drawn, `name` says what that is.
std::string curves_plot(const SweepFigures& sweep, const std::string& group, const std::string& name, Scale scale,
                        const std::function<std::optional<double>(const CurvePoint&)>& value);

/// Every row's difference to the base row, which there has to be, with the seeds' spread and the paper's difference.
std::string differences_plot(const SweepFigures& sweep, const std::string& title, const std::string& axis,
                             const Figure& figure);

/// Our figure over the paper's, of all rows that have both.
std::string paper_plot(const SweepFigures& sweep, const std::string& name, const Figure& figure);

}  // namespace transformer
