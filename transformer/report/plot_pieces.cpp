#include "transformer/report/plot_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "transformer/report/markup.h"
#include "transformer/report/plot.css.h"
#include "transformer/report/text_width.h"

namespace transformer {
namespace plot {
namespace {

constexpr int64_t hues = 6;

}  // namespace

std::string style_class(int64_t style) {
  return style < 0 ? "ink" : fmt::format("s{}", style % hues);
}

std::string dashes(int64_t style, bool dashed) {
  const int64_t round = style < 0 ? 0 : style / hues;
  if (!dashed && round == 0) return "";
  std::string pattern = dashed ? "5 4" : round == 1 ? "8 3" : "2 3";
  for (int64_t i = dashed ? 0 : 2; i < round; ++i) pattern += dashed ? " 2 4" : " 8 3";
  return fmt::format(" stroke-dasharray=\"{}\"", pattern);
}

void add_title(std::string& out, const std::string& title) {
  if (!title.empty()) out += fmt::format("<title>{}</title>", escape_markup(title));
}

void add_mark(std::string& out, double x, double y, int64_t style, bool hollow, std::optional<int64_t> shape) {
  // Where colours and shapes begin anew, marks that no line with dashes goes through are told apart by their inside.
  const bool open = hollow || (!shape && style >= 0 && style / hues % 2 == 1);
  const std::string look = fmt::format("class=\"mark {}{}\"", style_class(style), open ? " hollow" : "");
  const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
    out += fmt::format("<polygon {} points=\"", look);
    const char* separator = "";
    for (const auto& [dx, dy] : corners) {
      out += fmt::format("{}{:.1f},{:.1f}", separator, x + dx, y + dy);
      separator = " ";
    }
    out += "\"/>";
  };
  switch (shape ? *shape % hues : style < 0 ? 0 : style % hues) {
    case 1:
      return polygon({{-3.5, -3.5}, {3.5, -3.5}, {3.5, 3.5}, {-3.5, 3.5}});
    case 2:
      return polygon({{0, -4.6}, {4.4, 3.4}, {-4.4, 3.4}});
    case 3:
      return polygon({{0, -5}, {5, 0}, {0, 5}, {-5, 0}});
    case 4:
      return polygon({{0, 4.6}, {4.4, -3.4}, {-4.4, -3.4}});
    case 5:
      return polygon({{-4.5, -1.5},
                      {-1.5, -1.5},
                      {-1.5, -4.5},
                      {1.5, -4.5},
                      {1.5, -1.5},
                      {4.5, -1.5},
                      {4.5, 1.5},
                      {1.5, 1.5},
                      {1.5, 4.5},
                      {-1.5, 4.5},
                      {-1.5, 1.5},
                      {-4.5, 1.5}});
    default:
      out += fmt::format("<circle {} cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.8\"/>", look, x, y);
  }
}

void add_text(std::string& out, double x, double y, std::string_view text, std::string_view look,
              std::string_view more) {
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\"{}>{}</text>", x, y, look, more, escape_markup(text));
}

void add_line(std::string& out, double x1, double y1, double x2, double y2, std::string_view look,
              std::string_view more) {
  out += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"{}/>", x1, y1, x2, y2,
                     look, more);
}

std::string svg(double width, double height, const std::string& title, const std::string& content, SvgUse use) {
  std::string out;
  if (use == SvgUse::standalone) out += "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">",
      width, height, escape_markup(title));
  if (use == SvgUse::standalone) {
    out += fmt::format("<style>\n{}</style><rect class=\"paper\" width=\"{:.0f}\" height=\"{:.0f}\"/>", plot_style(),
                       width, height);
  }
  return out + content + "</svg>\n";
}

double add_legend(std::string& out, const std::vector<LegendEntry>& entries, double left, double top, double width) {
  if (entries.empty()) return 0;
  constexpr double swatch = 30, gap = 14, row_height = 18;
  double widest = 0;
  for (const auto& entry : entries) widest = std::max(widest, display_width(entry.name, font_size) + swatch + gap);
  widest = std::min(widest, width);
  const auto columns = std::max<int64_t>(1, static_cast<int64_t>(width / widest));
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& entry = entries[i];
    const int64_t column = static_cast<int64_t>(i) % columns, row = static_cast<int64_t>(i) / columns;
    const double x = left + static_cast<double>(column) * (width / static_cast<double>(columns));
    const double y = top + static_cast<double>(row) * row_height + row_height / 2;
    out += "<g>";
    add_title(out, entry.name);
    if (entry.band) {
      out += fmt::format("<rect class=\"band\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"24\" height=\"10\"/>", x, y - 5);
    }
    if (entry.line) {
      add_line(out, x, y, x + 24, y, fmt::format("curve {}", style_class(entry.style)),
               dashes(entry.style, entry.dashed));
    }
    if (entry.mark) add_mark(out, x + 12, y, entry.style, entry.hollow, entry.shape);
    add_text(out, x + swatch, y + 4, fitting_text(entry.name, widest - swatch - 4, font_size), "label");
    out += "</g>";
  }
  const auto rows = (static_cast<int64_t>(entries.size()) + columns - 1) / columns;
  return static_cast<double>(rows) * row_height + 6;
}

}  // namespace plot

std::string plot_style() {
  // The hues are those of Okabe and Ito, without the yellow, darkened or lightened until each has a contrast of 3 : 1
  // to the background.
  return std::string(embedded::plot_css);
}

}  // namespace transformer
