#include "transformer/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

#include "transformer/report/plot.css.h"

namespace transformer {
namespace {

constexpr int64_t hues = 6;
constexpr double font_size = 12;
const std::string nothing_yet = "no values yet";

template <typename... Arguments>
void add(std::string& text, fmt::format_string<Arguments...> pattern, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(text), pattern, std::forward<Arguments>(arguments)...);
}

// Code points, each with its bytes; a byte that begins no valid sequence comes as U+FFFD.
struct CodePoint {
  char32_t value;
  std::string_view bytes;
};

CodePoint next_code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, text.substr(0, 1)};
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  static constexpr std::array<char32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return {0xfffd, text.substr(0, 1)};
  char32_t value = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0xfffd, text.substr(0, 1)};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
    return {0xfffd, text.substr(0, 1)};
  return {value, text.substr(0, length)};
}

// An estimate that errs on the wide side: how wide text is depends on the reader's fonts.
double character_width(char32_t c) {
  if (c < 0x80) {
    const char letter = static_cast<char>(c);
    if (std::string_view(" .,:;|!'ijlI()[]").find(letter) != std::string_view::npos) return 0.34;
    if (std::string_view("mwMW%@").find(letter) != std::string_view::npos) return 0.93;
    return letter >= 'A' && letter <= 'Z' ? 0.72 : 0.6;
  }
  const bool full_width = (c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xd7a4) || (c >= 0xf900 && c < 0xfb00) ||
                          (c >= 0xff00 && c < 0xff61) || c >= 0x1f300;
  return full_width ? 1.05 : 0.65;
}

double text_width(std::string_view text, double size = font_size) {
  double width = 0;
  while (!text.empty()) {
    const CodePoint point = next_code_point(text);
    width += character_width(point.value);
    text.remove_prefix(point.bytes.size());
  }
  return width * size;
}

// `text` as far as it fits, with an ellipsis where it does not.
std::string shortened(std::string_view text, double width, double size = font_size) {
  if (text_width(text, size) <= width) return std::string(text);
  std::string kept;
  double used = size * character_width(U'…');
  while (!text.empty()) {
    const CodePoint point = next_code_point(text);
    used += size * character_width(point.value);
    if (used > width) break;
    kept += point.bytes;
    text.remove_prefix(point.bytes.size());
  }
  return kept + "…";
}

bool is_logarithmic(Scale scale) {
  return scale != Scale::linear;
}

bool can_show(Scale scale, double value) {
  return std::isfinite(value) && (!is_logarithmic(scale) || value > 0);
}

// --- Ticks ------------------------------------------------------------------------------------------------

std::vector<double> linear_ticks(double lower, double upper, int64_t most) {
  const double rough = (upper - lower) / static_cast<double>(most);
  double power = std::pow(10, std::floor(std::log10(rough)));
  for (;; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double step = factor * power;
      // Multiples of the step, not sums of it, so that 0 is 0; a tolerance keeps ends that are ticks up to rounding.
      const double first = std::ceil(lower / step - 1e-9), last = std::floor(upper / step + 1e-9);
      if (last - first + 1 > static_cast<double>(most)) continue;
      std::vector<double> values;
      for (double i = first; i <= last; ++i) {
        // 3 * 0.1 is not 0.3: divided by a whole number the multiple is rounded once.
        const double value = step < 1 ? i / std::round(1 / step) : i * step;
        values.push_back(std::clamp(i == 0 ? 0.0 : value, lower, upper));
      }
      return values;
    }
  }
}

std::vector<double> logarithmic_ticks(double lower, double upper, Scale scale, int64_t most) {
  const double base = scale == Scale::binary ? 2 : 10;
  const auto exponent = [&](double value) { return std::log(value) / std::log(base); };
  const auto first = static_cast<int64_t>(std::floor(exponent(lower) + 1e-9));
  const auto last = static_cast<int64_t>(std::ceil(exponent(upper) - 1e-9));
  const auto within = [&](double value) { return value >= lower * (1 - 1e-9) && value <= upper * (1 + 1e-9); };
  const std::vector<std::vector<double>> choices =
      scale == Scale::binary ? std::vector<std::vector<double>>{{1}} : std::vector<std::vector<double>>{{1, 2, 5}, {1}};
  std::vector<double> values;
  for (int64_t stride = 1;; ++stride) {
    for (const auto& factors : choices) {
      if (stride > 1 && factors.size() > 1) continue;
      values.clear();
      for (int64_t i = first; i <= last; ++i) {
        if (i % stride != 0) continue;
        for (const double factor : factors) {
          const double value = factor * std::pow(base, static_cast<double>(i));
          if (within(value)) values.push_back(std::clamp(value, lower, upper));
        }
      }
      if (static_cast<int64_t>(values.size()) <= most) return values;
    }
  }
}

// --- Pieces of a picture ----------------------------------------------------------------------------------

std::string style_class(int64_t style) {
  return style < 0 ? "ink" : fmt::format("s{}", style % hues);
}

std::string dashes(int64_t style, bool dashed) {
  if (dashed) return R"( stroke-dasharray="5 4")";
  const int64_t round = style < 0 ? 0 : style / hues;
  if (round == 0) return "";
  return round % 2 == 1 ? R"( stroke-dasharray="8 3")" : R"( stroke-dasharray="2 3")";
}

void add_title(std::string& out, const std::string& title) {
  if (!title.empty()) add(out, "<title>{}</title>", escape_markup(title));
}

// A mark of about nine units across.
void add_mark(std::string& out, double x, double y, int64_t style, bool hollow = false) {
  const std::string look = fmt::format("class=\"mark {}{}\"", style_class(style), hollow ? " hollow" : "");
  const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
    add(out, "<polygon {} points=\"", look);
    const char* separator = "";
    for (const auto& [dx, dy] : corners) {
      add(out, "{}{:.1f},{:.1f}", separator, x + dx, y + dy);
      separator = " ";
    }
    out += "\"/>";
  };
  switch (style < 0 ? 0 : style % hues) {
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
      add(out, "<circle {} cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.8\"/>", look, x, y);
  }
}

void add_text(std::string& out, double x, double y, std::string_view text, std::string_view look,
              std::string_view more = "") {
  add(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\"{}>{}</text>", x, y, look, more, escape_markup(text));
}

void add_line(std::string& out, double x1, double y1, double x2, double y2, std::string_view look,
              std::string_view more = "") {
  add(out, "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"{}/>", x1, y1, x2, y2, look,
      more);
}

std::string svg(double width, double height, const std::string& title, const std::string& content, SvgUse use) {
  std::string out;
  if (use == SvgUse::standalone) out += "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  add(out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">",
      width, height, escape_markup(title));
  if (use == SvgUse::standalone) {
    add(out, "<style>\n{}</style><rect class=\"paper\" width=\"{:.0f}\" height=\"{:.0f}\"/>", plot_style(), width,
        height);
  }
  return out + content + "</svg>\n";
}

// Where the values of an axis lie.
class Projection {
 public:
  // `low` and `high` are the places of the least and the greatest value shown; `values` can be shown.
  Projection(const Axis& axis, const std::vector<double>& values, double low, double high, int64_t most_ticks)
      : scale_(axis.scale), low_(low), high_(high) {
    lower_ = std::numeric_limits<double>::infinity();
    upper_ = -lower_;
    for (const double value : values) {
      lower_ = std::min(lower_, value);
      upper_ = std::max(upper_, value);
    }
    if (!(lower_ <= upper_)) lower_ = upper_ = 1;
    // A little room, so that no mark lies on the frame.
    const double room = std::max((to_scale(upper_) - to_scale(lower_)) * 0.05, 1e-3 * std::abs(to_scale(upper_)));
    const double pad = room > 0 ? room : 1;
    const double padded_lower = from_scale(to_scale(lower_) - pad), padded_upper = from_scale(to_scale(upper_) + pad);
    // Values that are all positive are not shown beside negative ones.
    lower_ = axis.lower.value_or(lower_ >= 0 && scale_ == Scale::linear ? std::max(0.0, padded_lower) : padded_lower);
    upper_ = axis.upper.value_or(padded_upper);
    if (!(lower_ < upper_)) upper_ = lower_ == 0 ? 1 : lower_ + std::abs(lower_);
    ticks_ = axis_ticks(lower_, upper_, scale_, most_ticks);
  }

  double operator()(double value) const {
    const double share = (to_scale(value) - to_scale(lower_)) / (to_scale(upper_) - to_scale(lower_));
    return low_ + (high_ - low_) * share;
  }
  bool contains(double value) const { return value >= lower_ && value <= upper_; }
  double lower() const { return lower_; }
  double upper() const { return upper_; }
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double to_scale(double value) const { return is_logarithmic(scale_) ? std::log(value) : value; }
  double from_scale(double value) const { return is_logarithmic(scale_) ? std::exp(value) : value; }

  Scale scale_;
  double low_, high_, lower_ = 0, upper_ = 1;
  std::vector<Tick> ticks_;
};

struct LegendEntry {
  std::string name;
  int64_t style = 0;
  bool line = true, mark = true, hollow = false, dashed = false, band = false;
};

// The legend's entries in columns from (left, top) on; returns its height.
double add_legend(std::string& out, const std::vector<LegendEntry>& entries, double left, double top, double width) {
  if (entries.empty()) return 0;
  constexpr double swatch = 30, gap = 14, row_height = 18;
  double widest = 0;
  for (const auto& entry : entries) widest = std::max(widest, text_width(entry.name) + swatch + gap);
  widest = std::min(widest, width);
  const auto columns = std::max<int64_t>(1, static_cast<int64_t>(width / widest));
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& entry = entries[i];
    const double x =
        left + static_cast<double>(static_cast<int64_t>(i) % columns) * (width / static_cast<double>(columns));
    const double y = top + static_cast<double>(static_cast<int64_t>(i) / columns) * row_height + row_height / 2;
    out += "<g>";
    add_title(out, entry.name);
    if (entry.band) {
      add(out, "<rect class=\"band\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"24\" height=\"10\"/>", x, y - 5);
    }
    if (entry.line) {
      add_line(out, x, y, x + 24, y, fmt::format("curve {}", style_class(entry.style)),
               dashes(entry.style, entry.dashed));
    }
    if (entry.mark) add_mark(out, x + 12, y, entry.style, entry.hollow);
    add_text(out, x + swatch, y + 4, shortened(entry.name, widest - swatch - 4), "label");
    out += "</g>";
  }
  const auto rows = (static_cast<int64_t>(entries.size()) + columns - 1) / columns;
  return static_cast<double>(rows) * row_height + 6;
}

struct Box {
  double left, top, right, bottom;
  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Beside its point wherever there is room: to the right, to the left, above, below. Nothing where there is none.
void add_point_label(std::string& out, const std::string& label, double x, double y, const Box& frame,
                     std::vector<Box>& taken) {
  constexpr double size = 10.5;
  const double width = text_width(label, size);
  struct Place {
    double left, baseline;
  };
  for (const Place& place : {Place{x + 8, y + 3.5}, Place{x - 8 - width, y + 3.5}, Place{x - width / 2, y - 8},
                             Place{x - width / 2, y + 15}}) {
    const Box box{place.left, place.baseline - size, place.left + width, place.baseline + 2};
    if (box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom) continue;
    if (std::any_of(taken.begin(), taken.end(), [&](const Box& other) { return box.overlaps(other); })) continue;
    taken.push_back(box);
    add_text(out, place.left, place.baseline, label, "small");
    return;
  }
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint point = next_code_point(text);
    text.remove_prefix(point.bytes.size());
    const char32_t c = point.value;
    const bool control = (c < 0x20 && c != '\t' && c != '\n') || (c >= 0x7f && c < 0xa0) || (c & 0xfffe) == 0xfffe;
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (c == 0xfffd || control) {
      out += "\xef\xbf\xbd";
    } else {
      out += point.bytes;
    }
  }
  return out;
}

std::string short_number(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  for (const auto& [unit, suffix] : {std::pair{1e9, "G"}, std::pair{1e6, "M"}, std::pair{1e3, "k"}}) {
    if (size < std::max(unit, 1e4) || size >= 1e13) continue;
    return fmt::format("{:.{}g}{}", value / unit, digits, suffix);
  }
  return fmt::format("{:.{}g}", value == 0 ? 0.0 : value, digits);
}

std::string grouped_number(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool behind_digit = i > (value < 0 ? size_t{1} : size_t{0});
    if (behind_digit && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::vector<Tick> axis_ticks(double lower, double upper, Scale scale, int64_t most) {
  const bool valid = std::isfinite(lower) && std::isfinite(upper) && lower < upper && most >= 2;
  if (!valid || (is_logarithmic(scale) && lower <= 0)) {
    throw std::invalid_argument(fmt::format("axis_ticks: from {} to {}, at most {}", lower, upper, most));
  }
  std::vector<double> values;
  if (is_logarithmic(scale)) values = logarithmic_ticks(lower, upper, scale, most);
  if (values.size() < 3 && (scale == Scale::linear || upper < 8 * lower)) values = linear_ticks(lower, upper, most);
  // As many digits as make all labels different.
  for (int digits = scale == Scale::linear ? 4 : 6; digits <= 17; ++digits) {
    std::vector<Tick> ticks;
    std::set<std::string> labels;
    for (const double value : values) {
      ticks.push_back({value, short_number(value, digits)});
      labels.insert(ticks.back().label);
    }
    if (labels.size() == values.size()) return ticks;
  }
  throw std::invalid_argument(fmt::format("axis_ticks: {} and {} are too close", lower, upper));
}

std::string line_plot(const LinePlot& plot, SvgUse use) {
  std::vector<double> xs, ys;
  for (const auto& series : plot.series) {
    for (const auto& point : series.points) {
      if (!can_show(plot.x.scale, point.x) || !can_show(plot.y.scale, point.y)) continue;
      xs.push_back(point.x);
      for (const double y : {point.y - point.error, point.y, point.y + point.error}) {
        if (can_show(plot.y.scale, y)) ys.push_back(y);
      }
    }
  }
  const bool empty = xs.empty();

  const double title_height = plot.title.empty() ? 8 : 30;
  const double top = title_height, bottom = plot.height - 42, right = plot.width - 14;
  const Projection y(plot.y, ys, bottom, top, std::max<int64_t>(3, static_cast<int64_t>((bottom - top) / 34)));
  double tick_width = 0;
  for (const auto& tick : y.ticks()) tick_width = std::max(tick_width, text_width(tick.label, 11));
  const double left = 26 + tick_width;
  const Projection x(plot.x, xs, left, right, std::max<int64_t>(3, static_cast<int64_t>((right - left) / 62)));
  const Box frame{left, top, right, bottom};

  std::string out;
  add_text(out, left, 18, shortened(plot.title, right - left, 13.5), "title");
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
  add(out,
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
          add(pieces.back(), "{}{:.1f},{:.1f}", pieces.back().empty() ? "" : " ", x(point.x), y(point.y));
        }
        open = shown(point);
      }
      for (const auto& piece : pieces) {
        add(out, "<polyline class=\"curve {}\"{} points=\"{}\">", look, dashes(series.style, series.dashed), piece);
        add_title(out, series.name);
        out += "</polyline>";
      }
    }
    for (const auto& point : series.points) {
      if (!shown(point)) continue;
      const double px = x(point.x), py = y(point.y);
      out += "<g class=\"point\">";
      add_title(out, point.title);
      if (point.error > 0) {
        const double low = can_show(plot.y.scale, point.y - point.error) ? y(point.y - point.error) : bottom;
        const double high = y(point.y + point.error);
        add_line(out, px, low, px, high, fmt::format("bar {}", look));
        add_line(out, px - 3, low, px + 3, low, fmt::format("bar {}", look));
        add_line(out, px - 3, high, px + 3, high, fmt::format("bar {}", look));
      }
      const bool marked = series.markers && point.marked;
      if (marked) add_mark(out, px, py, series.style);
      if (!point.title.empty()) add(out, "<circle class=\"hit\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"8\"/>", px, py);
      out += "</g>";
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
                       .dashed = series.dashed});
  }
  const double legend = add_legend(out, entries, 14, plot.height, plot.width - 28);
  return svg(plot.width, plot.height + legend, plot.title, out, use);
}

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
    label_width = std::max(label_width, text_width(row.label));
    notes.push_back(!row.note.empty() ? row.note : usable(row.value) ? fmt::format("{:+.4g}", *row.value) : "");
    note_width = std::max(note_width, text_width(notes.back(), 11));
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
  add_text(out, 8, 18, shortened(plot.title, plot.width - 16, 13.5), "title");
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
    add(out, "<rect class=\"hit\" x=\"0\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", y, plot.width,
        row_height);
    add_text(out, left - 10, middle + 4, shortened(row.label, label_width), "label end");
    if (row.band > 0 && std::isfinite(row.band)) {
      add(out, "<rect class=\"band\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"12\"/>", place(-row.band),
          middle - 6, place(row.band) - place(-row.band));
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
      add(out, "<polygon class=\"mark s0{}\" points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\"/>",
          row.hollow ? " hollow" : "", tip, middle, tip + back, middle - 5, tip + back, middle + 5);
    }
    add_text(out, plot.width - 8, middle + 4, shortened(notes[i], note_width, 11), "tick end");
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

std::string plot_style() {
  // The hues are those of Okabe and Ito, without the yellow, darkened or lightened until each has a contrast of 3 : 1
  // to the background.
  return std::string(embedded::plot_css);
}

}  // namespace transformer
