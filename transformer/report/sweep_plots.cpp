#include "transformer/report/sweep_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <utility>

#include "transformer/report/number_text.h"
#include "transformer/report/plot.h"
#include "transformer/report/sweep_tables.h"

namespace transformer {
namespace {

using Verdict = RowDifference::Verdict;
using State = SweepRun::State;

constexpr size_t points_drawn = 120;  // of a longer one that many are drawn
constexpr size_t marks_drawn = 10;    // about

}  // namespace

std::string curves_plot(const SweepFigures& sweep, const std::string& group, const std::string& name, Scale scale,
                        const std::function<std::optional<double>(const CurvePoint&)>& value) {
  LinePlot plot;
  plot.title = group.empty() ? name : fmt::format("{}, rows {}", name, group);
  plot.x.label = "step";
  plot.y = {.label = name, .scale = scale, .lower = std::nullopt, .upper = std::nullopt};
  int64_t style = 0;
  bool any_of_group = false, only_base = true;
  std::vector<double> lasts;
  for (const auto& figures : sweep.rows) {
    if (!figures.is_base && figures.row->group != group) continue;
    const int64_t row_style = figures.is_base ? -1 : style++;
    for (const auto& run : figures.row->runs) {
      PlotSeries series{.name = figures.row->name, .points = {}, .style = row_style};
      std::vector<PlotPoint> points;
      for (const auto& point : run.curve) {
        const auto y = value(point);
        if (!y) continue;
        const std::string tokens =
            point.target_tokens > 0
                ? fmt::format(", {} target tokens", short_number(static_cast<double>(point.target_tokens), 4))
                : "";
        points.push_back({.x = static_cast<double>(point.step),
                          .y = *y,
                          .title = fmt::format("{}, seed {}\nstep {}{}\n{} {}", figures.row->name, run.seed,
                                               grouped_number(point.step), tokens, name, fixed_number(*y)),
                          .label = ""});
      }
      if (points.empty()) continue;
      const size_t kept = std::min(points.size(), points_drawn);
      for (size_t i = 0; i < kept; ++i) {
        series.points.push_back(points[kept == 1 ? 0 : i * (points.size() - 1) / (kept - 1)]);
      }
      // Each curve's marks at other points than its neighbour's, so that they do not hide each other.
      const size_t stride = (kept + marks_drawn - 1) / marks_drawn;
      for (size_t i = 0; i < kept; ++i) series.points[i].marked = (i + plot.series.size()) % stride == 0;
      if (scale == Scale::logarithmic && std::isfinite(series.points.back().y)) lasts.push_back(series.points.back().y);
      any_of_group = any_of_group || figures.row->group == group;
      only_base = only_base && figures.is_base;
      plot.series.push_back(std::move(series));
    }
  }
  // A picture of the base row alone says something only where there is no other.
  const bool other_rows = std::any_of(sweep.rows.begin(), sweep.rows.end(), [](const auto& v) {
    return !v.is_base &&
           std::any_of(v.row->runs.begin(), v.row->runs.end(), [](const auto& run) { return !run.curve.empty(); });
  });
  if (!any_of_group || (only_base && other_rows)) return "";
  if (!lasts.empty()) {
    // The first evaluations lie orders of magnitude above what the rows differ by: the picture shows where they end.
    std::sort(lasts.begin(), lasts.end());
    const double enough = std::max(4 * lasts[lasts.size() / 2], 1.2 * lasts.back());
    double highest = 0;
    for (const auto& series : plot.series) {
      for (const auto& point : series.points) {
        if (std::isfinite(point.y)) highest = std::max(highest, point.y);
      }
    }
    if (highest > enough) plot.y.upper = enough;
  }
  return line_plot(plot);
}

std::string differences_plot(const SweepFigures& sweep, const std::string& title, const std::string& axis,
                             const Figure& figure) {
  DotPlot plot;
  plot.title = title;
  plot.x_label = axis;
  const RowFigures& base = *sweep.base();
  bool filled = false, hollow = false, bands = false, references = false;
  for (const auto& figures : sweep.rows) {
    if (figures.is_base) continue;
    DotRow row;
    row.label = figures.row->name;
    row.group = figures.row->group;
    row.title = figures.row->changes.empty() ? figures.row->name
                                             : fmt::format("{}: {}", figures.row->name, figures.row->changes);
    const auto& found = figures.*figure.difference;
    if (found) {
      row.value = found->difference;
      row.error = (figures.*figure.ours).deviation.value_or(0);
      row.band = found->verdict == Verdict::unknown ? 0 : found->limit;
      row.hollow = found->verdict != Verdict::beyond;
      row.note = difference_text(*found);
      row.title += fmt::format("\n{} − {} = {}", with_deviation(figures.*figure.ours),
                               with_deviation(base.*figure.ours), row.note);
      (row.hollow ? hollow : filled) = true;
      bands = bands || row.band > 0;
    } else {
      const State state = figures.worst_state();
      row.note = state == State::finished ? "no value" : name_of(state);
    }
    if (const auto printed = paper_difference(sweep, figures, figure)) {
      row.reference = *printed;
      row.title += fmt::format("\npaper: {}", signed_number(*printed));
      references = true;
    }
    plot.rows.push_back(std::move(row));
  }
  const auto has_value = [](const DotRow& row) { return row.value.has_value(); };
  if (std::none_of(plot.rows.begin(), plot.rows.end(), has_value)) return "";
  if (filled) plot.filled_name = "ours, beyond the seeds' spread";
  if (hollow) plot.hollow_name = bands ? "ours, within it" : "ours, spread unknown";
  if (bands) plot.band_name = "seeds' spread: ±2·s·√(1/n + 1/m)";
  if (references) plot.reference_name = "paper's difference";
  return dot_plot(plot);
}

std::string paper_plot(const SweepFigures& sweep, const std::string& name, const Figure& figure) {
  LinePlot plot;
  plot.title = fmt::format("{}: ours against the paper's", name);
  plot.x.label = fmt::format("{}, paper", name);
  plot.y.label = fmt::format("{}, ours", name);
  plot.diagonal = true;
  std::map<std::string, size_t> group_series;
  int64_t style = 0;
  for (const auto& figures : sweep.rows) {
    if (!figures.row->paper || !((*figures.row->paper).*figure.printed) || (figures.*figure.ours).count == 0) continue;
    const std::string series = figures.is_base              ? "base row"
                               : figures.row->group.empty() ? "other rows"
                                                            : figures.row->group;
    const auto [found, is_new] =
        group_series.try_emplace(figures.is_base ? std::string("\0base", 5) : series, plot.series.size());
    if (is_new) {
      plot.series.push_back({.name = series, .points = {}, .line = false, .style = figures.is_base ? -1 : style++});
    }
    const double x = *((*figures.row->paper).*figure.printed);
    plot.series[found->second].points.push_back(
        {.x = x,
         .y = (figures.*figure.ours).mean,
         .error = (figures.*figure.ours).deviation.value_or(0),
         .title = fmt::format("{}: {}\npaper {}, ours {}", figures.row->name, figures.row->changes, fixed_number(x),
                              with_deviation(figures.*figure.ours)),
         .label = figures.row->name});
  }
  if (plot.series.empty()) return "";
  return line_plot(plot);
}

}  // namespace transformer
