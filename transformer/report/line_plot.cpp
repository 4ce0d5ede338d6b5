#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <utility>

#include "transformer/report/axis.h"
#include "transformer/report/plot.h"
#include "transformer/report/plot_pieces.h"
#include "transformer/report/text_width.h"

namespace transformer {

using namespace plot;

namespace {

struct Box {
  double left, top, right, bottom;
  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Beside its point wherever there is room: to the right, to the left, above, below; or else further away, at the end of
// a thin line. Nothing where there is no room at all.
void add_point_label(std::string& out, const std::string& label, double x, double y, const Box& frame,
                     std::vector<Box>& taken) {
  constexpr double size = 10.5;
  constexpr double directions = 16;
  const double width = display_width(label, size);
  // `left` of the text and its baseline.
  const auto takes = [&](double left, double baseline) {
    const Box box{left, baseline - size, left + width, baseline + 2};
    if (box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom)
      return false;
    if (std::any_of(taken.begin(), taken.end(), [&](const Box& other) { return box.overlaps(other); })) return false;
    taken.push_back(box);
    return true;
  };
  for (const auto& [left, baseline] : {std::pair{x + 8, y + 3.5}, std::pair{x - 8 - width, y + 3.5},
                                       std::pair{x - width / 2, y - 8}, std::pair{x - width / 2, y + 15}}) {
    if (!takes(left, baseline)) continue;
    add_text(out, left, baseline, label, "small");
    return;
  }
  for (const double distance : {22.0, 34.0, 48.0, 64.0, 82.0}) {
    for (double direction = 0; direction < directions; ++direction) {
      const double angle = 2 * std::numbers::pi * direction / directions;
      const double end_x = x + distance * std::cos(angle), end_y = y - distance * std::sin(angle);
      const double left = std::cos(angle) > 0.3    ? end_x + 2
                          : std::cos(angle) < -0.3 ? end_x - 2 - width
                                                   : end_x - width / 2;
      const double baseline = end_y + (std::sin(angle) > 0.9 ? -2 : std::sin(angle) < -0.9 ? size : 3.5);
      if (!takes(left, baseline)) continue;
      add_line(out, x + 6 * std::cos(angle), y - 6 * std::sin(angle), end_x, end_y, "leader");
      add_text(out, left, baseline, label, "small");
      return;
    }
  }
}

}  // namespace

std::string line_plot(const LinePlot& plot, SvgUse use) {
  std::vector<double> xs, ys;
  for (const auto& series : plot.series) {
    for (const auto& point : series.points) {
      const bool shown = can_show(plot.y.scale, point.y);
      // Where a line has a gap, or ends in one, there is room for it, or it would seem to be whole.
      if (!can_show(plot.x.scale, point.x) || !(shown || series.line)) continue;
      xs.push_back(point.x);
      if (!shown) continue;
      for (const double y : {point.y - point.error, point.y, point.y + point.error}) {
        if (can_show(plot.y.scale, y)) ys.push_back(y);
      }
    }
  }
  const bool empty = ys.empty();

  const double title_height = plot.title.empty() ? 8 : 30;
  const double top = title_height, bottom = plot.height - 42, right = plot.width - 14;
  const Projection y(plot.y, ys, bottom, top, std::max<int64_t>(3, static_cast<int64_t>((bottom - top) / 34)));
  double tick_width = 0;
  for (const auto& tick : y.ticks()) tick_width = std::max(tick_width, display_width(tick.label, 11));
  const double left = 26 + tick_width;
  const Projection x(plot.x, xs, left, right, std::max<int64_t>(3, static_cast<int64_t>((right - left) / 62)));
  const Box frame{left, top, right, bottom};

  std::string out;
  add_text(out, left, 18, fitting_text(plot.title, right - left, 13.5), "title");
  for (const auto& tick : y.ticks()) {
    add_line(out, left, y(tick.value), right, y(tick.value), "grid");
    add_text(out, left - 6, y(tick.value) + 4, tick.label, "tick end");
  }
  for (const auto& tick : x.ticks()) {
    add_line(out, x(tick.value), top, x(tick.value), bottom, "grid");
    add_text(out, x(tick.value), bottom + 15, tick.label, "tick middle");
  }
  add_line(out, left, bottom, right, bottom, "axis");
  add_line(out, left, top, left, bottom, "axis");
  add_text(out, (left + right) / 2, bottom + 34, plot.x.label, "label middle");
  add_text(out, 12, (top + bottom) / 2, plot.y.label, "label middle",
           fmt::format(" transform=\"rotate(-90 12 {:.1f})\"", (top + bottom) / 2));
  if (empty) add_text(out, (left + right) / 2, (top + bottom) / 2, nothing_yet, "label middle soft");

  // An inner picture clips what lies outside the axes; a clip path would need a name that is unique in the page.
  out += fmt::format(
      "<svg x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"{2:.1f}\" height=\"{3:.1f}\" viewBox=\"{0:.1f} {1:.1f} {2:.1f} "
      "{3:.1f}\">",
      left, top, right - left, bottom - top);
  if (plot.diagonal) {
    const double from = std::max(x.lower(), y.lower()), to = std::min(x.upper(), y.upper());
    if (from < to) add_line(out, x(from), y(from), x(to), y(to), "axis", R"( stroke-dasharray="2 4")");
  }
  std::vector<Box> taken;
  for (const auto& series : plot.series) {
    const std::string look = style_class(series.style);
    const auto shown = [&](const PlotPoint& point) {
      return can_show(plot.x.scale, point.x) && can_show(plot.y.scale, point.y);
    };
    if (series.line) {
      std::vector<std::string> pieces;
      bool open = false;
      for (const auto& point : series.points) {
        if (shown(point)) {
          if (!open) pieces.emplace_back();
          pieces.back() += fmt::format("{}{:.1f},{:.1f}", pieces.back().empty() ? "" : " ", x(point.x), y(point.y));
        }
        open = shown(point);
      }
      for (const auto& piece : pieces) {
        out += fmt::format("<polyline class=\"curve {}\"{} points=\"{}\">", look, dashes(series.style, series.dashed),
                           piece);
        add_title(out, series.name);
        out += "</polyline>";
      }
    }
    for (size_t i = 0; i < series.points.size(); ++i) {
      const auto& point = series.points[i];
      if (!shown(point)) continue;
      // A line of one point has no length, and is not to be seen.
      const bool alone = series.line && (i == 0 || !shown(series.points[i - 1])) &&
                         (i + 1 == series.points.size() || !shown(series.points[i + 1]));
      const double px = x(point.x), py = y(point.y);
      std::string drawn;
      add_title(drawn, alone && point.title.empty() ? series.name : point.title);
      if (point.error > 0) {
        const double low = can_show(plot.y.scale, point.y - point.error) ? y(point.y - point.error) : bottom;
        const double high = y(point.y + point.error);
        add_line(drawn, px, low, px, high, fmt::format("bar {}", look));
        add_line(drawn, px - 3, low, px + 3, low, fmt::format("bar {}", look));
        add_line(drawn, px - 3, high, px + 3, high, fmt::format("bar {}", look));
      }
      const bool marked = alone || (series.markers && point.marked);
      if (marked) add_mark(drawn, px, py, series.style, series.hollow, series.shape);
      if (!point.title.empty())
        drawn += fmt::format("<circle class=\"hit\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"8\"/>", px, py);
      if (!drawn.empty()) out += fmt::format("<g class=\"point\">{}</g>", drawn);  // most of a long line are within it
      if (marked) taken.push_back({px - 5, py - 5, px + 5, py + 5});
    }
  }
  for (const auto& series : plot.series) {
    for (const auto& point : series.points) {
      if (point.label.empty() || !can_show(plot.x.scale, point.x) || !can_show(plot.y.scale, point.y)) continue;
      if (!x.contains(point.x) || !y.contains(point.y)) continue;
      add_point_label(out, point.label, x(point.x), y(point.y), frame, taken);
    }
  }
  out += "</svg>";

  std::vector<LegendEntry> entries;
  std::set<std::string> named;
  for (const auto& series : plot.series) {
    if (series.name.empty() || !named.insert(series.name).second) continue;
    entries.push_back({.name = series.name,
                       .style = series.style,
                       .line = series.line,
                       .mark = series.markers,
                       .hollow = series.hollow,
                       .dashed = series.dashed,
                       .shape = series.shape});
  }
  const double legend = add_legend(out, entries, 14, plot.height, plot.width - 28);
  return svg(plot.width, plot.height + legend, plot.title, out, use);
}

}  // namespace transformer
