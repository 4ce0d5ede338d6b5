#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transformer/report/axis.h"

namespace transformer {

/// Plots as SVG text, without a library: small, the same to the byte for the same input, and readable in light and in
/// dark. Lengths are in SVG units, of which a browser shows one as a pixel unless it scales the picture. Text is UTF-8;
/// what is not, and control characters, become U+FFFD. A series is told from another by its colour (told apart in the
/// common forms of colour blindness) and by its mark, and past six series by its dashes.

struct PlotPoint {
  double x = 0, y = 0;  // a point that its axis cannot show (not finite, or not positive on a logarithmic one) is a gap
  double error = 0;     // half the length of the error bar; 0: none
  std::string title;    // shown while the mouse is over the point
  std::string label;    // drawn beside the point, or at the end of a line where others are in the way
  bool marked = true;   // with a mark, where the series has marks
};

/// Points that belong together.
struct PlotSeries {
  std::string name;               // in the legend, once for series of the same name, points or not; empty: not there
  std::vector<PlotPoint> points;  // in the order in which a line joins them
  bool line = true;               // joins the points; one between two gaps has a mark in any case
  bool markers = true;            // stand at the points
  /// Colour and mark: the same number looks the same in every plot; -1 is the ink of the text, for what others are
  /// compared with.
  int64_t style = 0;
  bool dashed = false;  // the line, whatever the style
  /// The mark's shape, of six, by itself, where the colour says one thing and the mark another; absent: the style's.
  std::optional<int64_t> shape = {};
  bool hollow = false;  // the mark, with a shape
};

/// What line_plot draws.
struct LinePlot {
  std::string title;               // above the plot
  Axis x, y;                       // across, and upwards
  std::vector<PlotSeries> series;  // the first lies undermost
  bool diagonal = false;           // draw y = x as far as it is visible
  double width = 480;              // of the whole picture
  double height = 320;             // of title and axes; the legend lies below and adds to it
};

/// A row of a dot plot: a horizontal line that belongs to one label.
struct DotRow {
  std::string label;                // left of the row
  std::string group;                // a thin line parts rows of different groups
  std::optional<double> value;      // where its dot is; absent: there is none
  double error = 0;                 // half the length of the error bar; 0: none
  double band = 0;                  // half the length of the grey band around 0; 0: none
  bool hollow = false;              // its dot
  std::optional<double> reference;  // a second value, drawn as a hollow diamond
  std::string note;                 // at the right end; by default the value with its sign
  std::string title;                // shown while the mouse is over the row
};

/// What dot_plot draws.
struct DotPlot {
  std::string title;                                                // above the plot
  std::string x_label;                                              // below it
  std::vector<DotRow> rows;                                         // from the top on
  std::string filled_name, hollow_name, reference_name, band_name;  // legend; empty: left out
  double width = 480;                                               // of the whole picture
};

/// Where the text goes.
enum class SvgUse {
  embedded,    // an <svg> element for a page that contains plot_style()
  standalone,  // a file of its own
};

/// Lines or points over two axes. Without a single point that can be shown, it says so in their place.
std::string line_plot(const LinePlot& plot, SvgUse use = SvgUse::embedded);

/// Dots over one axis that contains 0, one row each. A value more than eight times the median of the others' distance
/// from 0 is drawn as an arrow at the edge instead of squeezing the rest.
std::string dot_plot(const DotPlot& plot, SvgUse use = SvgUse::embedded);

/// The style sheet that embedded plots need, once a page. It defines the page's colours, too: --ink, --soft, --grid,
/// --paper and --shade, light or dark as the reader prefers, light in print.
std::string plot_style();

}  // namespace transformer
