#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "transformer/report/axis.h"
#include "transformer/report/plot.h"
#include "transformer/report/plot_pieces.h"
#include "transformer/report/text_width.h"

namespace transformer {

using namespace plot;

std::string dot_plot(const DotPlot& plot, SvgUse use) {
  constexpr double row_height = 20, gap = 8;
  const auto usable = [](const std::optional<double>& value) { return value && std::isfinite(*value); };

  std::vector<double> sizes;
  for (const auto& row : plot.rows) {
    if (usable(row.value) && *row.value != 0) sizes.push_back(std::abs(*row.value));
    if (usable(row.reference) && *row.reference != 0) sizes.push_back(std::abs(*row.reference));
  }
  double most = std::numeric_limits<double>::infinity();
  if (!sizes.empty()) {
    std::nth_element(sizes.begin(), sizes.begin() + static_cast<int64_t>(sizes.size() / 2), sizes.end());
    most = 8 * sizes[sizes.size() / 2];
  }
  std::vector<double> values = {0};
  for (const auto& row : plot.rows) {
    if (usable(row.value) && std::abs(*row.value) <= most) {
      for (const double end : {*row.value - row.error, *row.value + row.error}) {
        if (std::isfinite(end)) values.push_back(std::clamp(end, -most, most));
      }
    }
    if (usable(row.reference) && std::abs(*row.reference) <= most) values.push_back(*row.reference);
    if (row.band > 0 && std::isfinite(row.band)) {
      values.push_back(std::clamp(-row.band, -most, most));
      values.push_back(std::clamp(row.band, -most, most));
    }
  }
  const bool empty =
      std::none_of(plot.rows.begin(), plot.rows.end(), [&](const DotRow& row) { return usable(row.value); });

  std::vector<std::string> notes;
  double label_width = 30, note_width = 30;
  for (const auto& row : plot.rows) {
    label_width = std::max(label_width, display_width(row.label, font_size));
    notes.push_back(!row.note.empty() ? row.note : usable(row.value) ? fmt::format("{:+.4g}", *row.value) : "");
    note_width = std::max(note_width, display_width(notes.back(), 11));
  }
  label_width = std::min(label_width, plot.width * 0.36);
  note_width = std::min(note_width, plot.width * 0.22);
  const double left = label_width + 18, right = plot.width - note_width - 18, top = 34;
  double height = top;
  for (size_t i = 0; i < plot.rows.size(); ++i) {
    height += row_height + (i > 0 && plot.rows[i].group != plot.rows[i - 1].group ? gap : 0);
  }
  const double bottom = height + 4;

  const double extent =
      std::max(*std::max_element(values.begin(), values.end()), -*std::min_element(values.begin(), values.end()));
  if (extent == 0) values = {-1, 1};
  const Projection x({.label = "", .scale = Scale::linear, .lower = std::nullopt, .upper = std::nullopt}, values, left,
                     right, std::max<int64_t>(3, static_cast<int64_t>((right - left) / 42)));
  const auto place = [&](double value) { return x(std::clamp(value, x.lower(), x.upper())); };

  std::string out;
  add_text(out, 8, 18, fitting_text(plot.title, plot.width - 16, 13.5), "title");
  for (const auto& tick : x.ticks()) {
    add_line(out, x(tick.value), top, x(tick.value), bottom, "grid");
    add_text(out, x(tick.value), bottom + 15, tick.label, "tick middle");
  }
  add_line(out, x(0), top, x(0), bottom, "axis");
  add_line(out, left, bottom, right, bottom, "axis");
  add_text(out, (left + right) / 2, bottom + 33, plot.x_label, "label middle");
  if (empty) add_text(out, (left + right) / 2, (top + bottom) / 2, nothing_yet, "label middle soft");

  double y = top;
  for (size_t i = 0; i < plot.rows.size(); ++i) {
    const DotRow& row = plot.rows[i];
    if (i > 0 && row.group != plot.rows[i - 1].group) {
      add_line(out, 8, y + gap / 2, plot.width - 8, y + gap / 2, "grid");
      y += gap;
    }
    const double middle = y + row_height / 2;
    out += "<g class=\"point\">";
    add_title(out, row.title);
    out += fmt::format("<rect class=\"hit\" x=\"0\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", y, plot.width,
                       row_height);
    add_text(out, left - 10, middle + 4, fitting_text(row.label, label_width, font_size), "label end");
    if (row.band > 0 && std::isfinite(row.band)) {
      out += fmt::format("<rect class=\"band\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"12\"/>",
                         place(-row.band), middle - 6, place(row.band) - place(-row.band));
    }
    if (usable(row.reference) && x.contains(*row.reference))
      add_mark(out, x(*row.reference), middle, 3, /*hollow=*/true);
    if (usable(row.value) && x.contains(*row.value)) {
      if (row.error > 0) {
        add_line(out, place(*row.value - row.error), middle, place(*row.value + row.error), middle, "bar s0");
        for (const double end : {*row.value - row.error, *row.value + row.error}) {
          if (x.contains(end)) add_line(out, x(end), middle - 3, x(end), middle + 3, "bar s0");
        }
      }
      add_mark(out, x(*row.value), middle, 0, row.hollow);
    } else if (usable(row.value)) {
      const double tip = *row.value > 0 ? right : left, back = *row.value > 0 ? -10 : 10;
      out += fmt::format("<polygon class=\"mark s0{}\" points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\"/>",
                         row.hollow ? " hollow" : "", tip, middle, tip + back, middle - 5, tip + back, middle + 5);
    }
    add_text(out, plot.width - 8, middle + 4, fitting_text(notes[i], note_width, 11), "tick end");
    out += "</g>";
    y += row_height;
  }

  std::vector<LegendEntry> entries;
  const auto enter = [&](LegendEntry entry) {
    if (!entry.name.empty()) entries.push_back(std::move(entry));
  };
  enter({.name = plot.filled_name, .style = 0, .line = false});
  enter({.name = plot.hollow_name, .style = 0, .line = false, .hollow = true});
  enter({.name = plot.band_name, .line = false, .mark = false, .band = true});
  enter({.name = plot.reference_name, .style = 3, .line = false, .hollow = true});
  const double legend = add_legend(out, entries, 14, bottom + 42, plot.width - 28);
  return svg(plot.width, bottom + 42 + legend, plot.title, out, use);
}

}  // namespace transformer
