#include "transformer/report/attention_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "transformer/report/markup.h"
#include "transformer/report/text_width.h"

namespace transformer {
namespace {

constexpr double word_size = 13, small_size = 11;
constexpr double row_height = 20;
constexpr double margin = 14;
constexpr double widest_word = 190;
constexpr double least_weight = 0.02;
constexpr size_t head_hues = 8;

// Those of plot_style() and two more; written out, because many programs that show SVG know no variables.
constexpr const char* picture_style = R"(
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1f2328;
  unicode-bidi: isolate; }
.paper { fill: #ffffff; } .title { font-weight: 600; } .soft { fill: #59636e; } .small { font-size: 11px; }
.middle { text-anchor: middle; } .end { text-anchor: end; } .faint { opacity: .45; }
.picked { fill: #e1e5ea; } .frame { fill: none; stroke: #c9d1da; } .tree { fill: none; stroke: #9aa4af; }
.line { stroke-width: 1.8; stroke-linecap: round; } .dashed { stroke-dasharray: 4 3; } .heat { fill: #0072b2; }
.h0 { stroke: #0072b2; fill: #0072b2; } .h1 { stroke: #b84c00; fill: #b84c00; } .h2 { stroke: #00855f; fill: #00855f; }
.h3 { stroke: #b04f88; fill: #b04f88; } .h4 { stroke: #96690a; fill: #96690a; } .h5 { stroke: #3796d0; fill: #3796d0; }
.h6 { stroke: #7a52c7; fill: #7a52c7; } .h7 { stroke: #6b7280; fill: #6b7280; } .box { stroke: none; }
@media screen and (prefers-color-scheme: dark) { text { fill: #e6edf3; } .paper { fill: #0f141a; }
.soft { fill: #9aa4af; } .picked { fill: #2b323b; } .frame { stroke: #46515e; } .tree { stroke: #59636e; }
.heat { fill: #58a6ff; } .h0 { stroke: #58a6ff; fill: #58a6ff; } .h1 { stroke: #f0883e; fill: #f0883e; }
.h2 { stroke: #3fb98f; fill: #3fb98f; } .h3 { stroke: #db8bc0; fill: #db8bc0; } .h4 { stroke: #e3b341; fill: #e3b341; }
.h5 { stroke: #9ad9f5; fill: #9ad9f5; } .h6 { stroke: #b79cf5; fill: #b79cf5; } .h7 { stroke: #9aa4af; fill: #9aa4af; }
.box { stroke: none; } }
)";

template <typename... Arguments>
void add(std::string& text, fmt::format_string<Arguments...> pattern, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(text), pattern, std::forward<Arguments>(arguments)...);
}

/// Where a word's edge nearest to the lines lies.
enum class Side { left, right };

/// A word whose left or right edge is at x, `shown` of `whole`.
void add_word(std::string& out, double x, double y, Side edge, const std::string& whole, double width,
              const std::string& classes, double size = word_size) {
  const auto shown = fitting_text(whole, width, size);
  const bool rtl = is_right_to_left(whole);
  // Anchors follow the direction: the start of Arabic is its right edge.
  const bool end = (edge == Side::right) != rtl;
  add(out, "<text x=\"{:.1f}\" y=\"{:.1f}\"{} class=\"{}{}\">", x, y,
      rtl ? " direction=\"rtl\" style=\"direction:rtl\"" : "", classes, end ? " end" : "");
  if (shown != whole) add(out, "<title>{}</title>", escape_markup(whole));
  add(out, "{}</text>", escape_markup(shown));
}

std::string head_class(int64_t head) {
  const auto index = static_cast<size_t>(head - 1);
  return fmt::format("h{}{}", index % head_hues, index / head_hues == 1 ? " dashed" : "");
}

/// The dashes of heads that the classes do not tell apart, as an attribute: dots, and then a dash with ever more dots.
std::string head_dashes(int64_t head) {
  const auto round = static_cast<size_t>(head - 1) / head_hues;
  if (round < 2) return "";
  std::string dashes = round == 2 ? "1 4" : "9 4";
  for (size_t dots = 2; dots < round; ++dots) dashes += " 1 4";
  return fmt::format(" stroke-dasharray=\"{}\"", dashes);
}

double widest(const std::vector<std::string>& words, double size, double most) {
  double width = 24;
  for (const auto& word : words) width = std::max(width, display_width(word, size));
  return std::min(width, most);
}

std::string svg(double width, double height, const std::string& title, const std::string& content) {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n<!-- attention picture, format "
      "{3} -->\n<title>{2}</title>\n<style>{4}</style>\n<rect class=\"paper\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n"
      "{5}</svg>\n",
      std::ceil(width), std::ceil(height), escape_markup(title), attention_report_version, picture_style, content);
}

std::string title_text(const AttentionView& view, int64_t layer) {
  return fmt::format("{}, layer {} of {}", title_of(view.kind), layer, view.layer_count);
}

/// The heads' colours; returns the width.
double add_legend(std::string& out, const AttentionView& view, double x, double y) {
  add(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"small soft\">head</text>", x, y);
  x += 34;
  for (const int64_t head : view.heads) {
    // Of heads whose lines are dashed the edge is, and the inside empty.
    const bool dashed = static_cast<size_t>(head) > head_hues;
    add(out, "<rect class=\"{}{}\"{}{} x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\" rx=\"2\"/>",
        head_class(head), dashed ? "" : " box", dashed ? " fill-opacity=\"0\" stroke-width=\"1.8\"" : "",
        head_dashes(head), x, y - 9.5);
    const auto number = std::to_string(head);
    add(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"small\">{}</text>", x + 15, y, number);
    x += 22 + display_width(number, small_size);
  }
  return x;
}

/// The width of a level of a tree, so that the widest label fits on the line to the node above.
double level_width(const std::vector<TreeNode>& nodes) {
  double width = 26;
  for (const auto& node : nodes) width = std::max(width, display_width(node.label, small_size) + 10);
  return std::min(width, 90.0);
}

double tree_width(const std::vector<TreeNode>& nodes) {
  return nodes.empty() ? 0 : static_cast<double>(nodes.front().level + 1) * level_width(nodes);
}

/// A tree whose words' edges are at x, growing leftwards (`direction` -1) or rightwards (1).
void add_tree(std::string& out, const std::vector<TreeNode>& nodes, double x, double direction, double top) {
  const double step = level_width(nodes);
  const auto across = [&](int64_t level) { return x + direction * step * static_cast<double>(level); };
  const auto down = [&](double row) { return top + (row + 0.5) * row_height; };
  for (const auto& node : nodes) {
    const double own = across(node.level);
    const double parent =
        node.parent < 0 ? own + direction * step * 0.9 : across(nodes[static_cast<size_t>(node.parent)].level);
    add(out, "<path class=\"tree\" d=\"M{:.1f} {:.1f}V{:.1f}M{:.1f} {:.1f}H{:.1f}", own, down(node.first),
        down(node.last), own, down(node.row), parent);
    for (const double leaf : node.leaf_rows) add(out, "M{:.1f} {:.1f}H{:.1f}", own, down(leaf), x);
    out += "\"/>";
    const bool left = direction < 0;
    add(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"small{}\">{}</text>", own + direction * 4, down(node.row) - 3,
        left ? " end" : "", escape_markup(fitting_text(node.label, step - 6, small_size)));
  }
  out += '\n';
}

}  // namespace

std::string attention_lines(const AttentionReport& report, const AttentionView& view,
                            const AttentionLinesOptions& options) {
  const size_t heads = view.heads.size();
  const auto title = title_text(view, view.layers.at(options.layer));
  const bool picks = !options.picked.empty();
  std::vector<bool> shown(view.queries.size(), !picks);
  for (const size_t query : options.picked) shown.at(query) = true;

  const auto nodes = view.kind == AttentionView::Kind::decoder ? std::vector<TreeNode>() : tree_layout(report);
  const bool tree_left = view.kind == AttentionView::Kind::encoder;
  const double tree = tree_width(nodes);
  const double strip = 6.0 * static_cast<double>(heads) + 6;
  const double left_words = widest(view.queries, word_size, widest_word);
  const double right_words = widest(view.keys, word_size, widest_word);
  const double gap = 200;
  const double left = margin + (tree_left ? tree : 0) + left_words + 8;  // the queries' right edge
  const double lines_left = left + strip, lines_right = lines_left + gap;
  const double right = lines_right + strip + 2;  // the keys' left edge
  const double top = 66;
  const auto middle = [&](size_t row) { return top + (static_cast<double>(row) + 0.5) * row_height; };
  const double bottom = top + row_height * static_cast<double>(std::max(view.queries.size(), view.keys.size()));

  std::string out;
  add(out, "<text x=\"{:.0f}\" y=\"24\" class=\"title\">{}</text>\n", margin, escape_markup(title));
  const double legend = add_legend(out, view, margin, 46);
  out += '\n';
  if (!nodes.empty()) {
    if (tree_left) {
      add_tree(out, nodes, left - left_words - 6, -1, top);
    } else {
      add_tree(out, nodes, right + right_words + 6, 1, top);
    }
  }

  for (size_t query = 0; query < view.queries.size(); ++query) {
    if (!shown[query]) continue;
    for (size_t head = 0; head < heads; ++head) {
      // Heads beside each other, or those that agree would hide one another.
      const double offset = heads < 2 ? 0
                                      : (static_cast<double>(head) / static_cast<double>(heads - 1) - 0.5) *
                                            std::min(9.0, 1.5 * static_cast<double>(heads));
      for (size_t key = 0; key < view.keys.size(); ++key) {
        const double weight = view.weight(options.layer, head, query, key);
        if (weight < least_weight) continue;
        add(out, "<path class=\"line {}\"{} d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" opacity=\"{:.2f}\"/>",
            head_class(view.heads[head]), head_dashes(view.heads[head]), lines_left, middle(query) + offset,
            lines_right, middle(key) + offset, std::min(weight, 1.0));
      }
    }
    out += '\n';
  }

  for (size_t query = 0; query < view.queries.size(); ++query) {
    if (picks && shown[query]) {
      const double width = std::min(display_width(view.queries[query], word_size), left_words) + 8;
      add(out, "<rect class=\"picked\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\"/>",
          left - width + 4, middle(query) - row_height / 2 + 1, width, row_height - 2);
      for (size_t head = 0; head < heads; ++head) {
        add(out, "<rect class=\"{} box\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"6\" height=\"14\"/>",
            head_class(view.heads[head]), left + 5 + 6.0 * static_cast<double>(head), middle(query) - 7);
      }
    }
    add_word(out, left, middle(query) + 4.5, Side::right, view.queries[query], left_words, shown[query] ? "" : "faint");
    out += '\n';
  }
  for (size_t key = 0; key < view.keys.size(); ++key) {
    double most = 0;
    for (size_t head = 0; picks && head < heads; ++head) {
      double weight = 0;
      for (const size_t query : options.picked) weight += view.weight(options.layer, head, query, key);
      weight = std::min(weight / static_cast<double>(options.picked.size()), 1.0);
      most = std::max(most, weight);
      if (weight < least_weight) continue;
      add(out, "<rect class=\"{} box\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"6\" height=\"14\" opacity=\"{:.2f}\"/>",
          head_class(view.heads[head]), lines_right + 3 + 6.0 * static_cast<double>(head), middle(key) - 7, weight);
    }
    add_word(out, right, middle(key) + 4.5, Side::left, view.keys[key], right_words,
             picks && most < 0.05 ? "faint" : "");
    out += '\n';
  }
  const double width =
      std::max({right + right_words + (tree_left ? 0 : tree), legend, margin + display_width(title, word_size + 1)});
  return svg(width + margin, bottom + margin, title, out);
}

std::string attention_heat_maps(const AttentionView& view) {
  const size_t heads = view.heads.size(), rows = view.layers.size();
  const size_t queries = view.queries.size(), keys = view.keys.size();
  const bool one = heads * rows == 1;
  const double cell = one ? 18 : 12;
  const double size = one ? word_size : small_size - 1;
  const char* classes = one ? "" : "tiny";
  const double label = widest(view.queries, size, widest_word), head_label = widest(view.keys, size, 150);
  const double width = cell * static_cast<double>(keys), height = cell * static_cast<double>(queries);
  const double gap = 16, caption = 18;
  const auto caption_of = [&](size_t row, size_t column) {
    return fmt::format("{}head {}", rows > 1 ? fmt::format("layer {}, ", view.layers[row]) : "", view.heads[column]);
  };
  double pitch = width;  // from a map to the one beside it; a caption may be wider than they are
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < heads; ++column) {
      pitch = std::max(pitch, display_width(caption_of(row, column), small_size));
    }
  }
  pitch += gap;

  const auto title = rows == 1 ? title_text(view, view.layers.front()) : std::string(title_of(view.kind));
  std::string out;
  add(out, "<style>.tiny {{ font-size: 10px; }}</style>\n<text x=\"{:.0f}\" y=\"24\" class=\"title\">{}</text>\n",
      margin, escape_markup(title));
  const double left = margin + label + 6, top = 40 + head_label + 6;
  for (size_t key = 0; key < keys; ++key) {
    for (size_t column = 0; column < heads; ++column) {
      const double x = left + static_cast<double>(column) * pitch + (static_cast<double>(key) + 0.5) * cell;
      add(out, "<g transform=\"translate({:.1f} {:.1f}) rotate(-90)\">", x + size * 0.35, top - 4);
      add_word(out, 0, 0, Side::left, view.keys[key], head_label, classes, size);
      out += "</g>";
    }
    out += '\n';
  }
  for (size_t row = 0; row < rows; ++row) {
    const double y = top + static_cast<double>(row) * (height + caption + gap);
    for (size_t query = 0; query < queries; ++query) {
      add_word(out, left - 6, y + (static_cast<double>(query) + 0.5) * cell + size * 0.35, Side::right,
               view.queries[query], label, classes, size);
    }
    for (size_t column = 0; column < heads; ++column) {
      const double x = left + static_cast<double>(column) * pitch;
      add(out, "\n<rect class=\"frame\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", x - 0.5,
          y - 0.5, width + 1, height + 1);
      for (size_t query = 0; query < queries; ++query) {
        for (size_t key = 0; key < keys; ++key) {
          const double weight = view.weight(row, column, query, key);
          if (weight < 0.005) continue;
          add(out,
              "<rect class=\"heat\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" opacity=\"{:.2f}\"/>",
              std::floor(x) + static_cast<double>(key) * cell, std::floor(y) + static_cast<double>(query) * cell, cell,
              cell, std::min(weight, 1.0));
        }
      }
      add(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"small soft middle\">{}</text>", x + width / 2,
          y + height + caption - 3, caption_of(row, column));
    }
    out += '\n';
  }
  const double bottom = top + static_cast<double>(rows) * (height + caption + gap);
  const double right = left + static_cast<double>(heads) * pitch - gap;
  return svg(std::max(right, margin + display_width(title, word_size + 1)) + margin, bottom, title, out);
}

}  // namespace transformer
