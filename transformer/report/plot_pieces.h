#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/report/plot.h"

/// What plots are drawn of. Every add_... appends SVG to `out`; looks are names of classes in plot.css.
namespace transformer::plot {

/// Of labels and legends, in SVG units.
inline constexpr double font_size = 12;
inline constexpr const char* nothing_yet = "no values yet";  // in the place of points

/// The class of a series' colour.
std::string style_class(int64_t style);
/// The attribute of its line's dashes, a blank before it; empty: none.
std::string dashes(int64_t style, bool dashed);

/// What is shown while the mouse is over the element that is open.
void add_title(std::string& out, const std::string& title);

/// A mark of about nine units across. `shape`: in place of the style's, filled or hollow as is said.
void add_mark(std::string& out, double x, double y, int64_t style, bool hollow = false,
              std::optional<int64_t> shape = {});

/// Text at a place; `more` are attributes.
void add_text(std::string& out, double x, double y, std::string_view text, std::string_view look,
              std::string_view more = "");

/// A straight line from (x1, y1) to (x2, y2); `more` are attributes.
void add_line(std::string& out, double x1, double y1, double x2, double y2, std::string_view look,
              std::string_view more = "");

/// A name, and a sample of what it names.
struct LegendEntry {
  std::string name;                                                             // beside the sample
  int64_t style = 0;                                                            // of the series
  bool line = true, mark = true, hollow = false, dashed = false, band = false;  // what the sample has
  std::optional<int64_t> shape = {};                                            // of the mark, in place of the style's
};

/// The legend's entries in columns from (left, top) on; returns its height.
double add_legend(std::string& out, const std::vector<LegendEntry>& entries, double left, double top, double width);

/// The whole picture, of `content`.
std::string svg(double width, double height, const std::string& title, const std::string& content, SvgUse use);

}  // namespace transformer::plot
