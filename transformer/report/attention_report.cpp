#include "transformer/report/attention_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace transformer {
namespace {

using Json = nlohmann::ordered_json;

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string list_of(const std::vector<std::string>& texts) {
  std::string out;
  for (const auto& text : texts) out += (out.empty() ? "" : ", ") + quoted(text);
  return fmt::format("[{}]", out);
}

void add_weights(std::string& out, const AttentionView& view) {
  const auto add = std::back_inserter(out);
  const size_t shape[] = {view.layers.size(), view.heads.size(), view.queries.size(), view.keys.size()};
  // Every list but the innermost holds lists; `place` walks over all weights in order.
  size_t place = 0;
  const auto list = [&](const auto& self, size_t depth) -> void {
    out += '[';
    for (size_t i = 0; i < shape[depth]; ++i) {
      if (i > 0) out += ", ";
      if (depth < 3) {
        self(self, depth + 1);
      } else {
        // Shortest first: most weights are near 0.
        auto number = fmt::format("{:.6f}", view.weights[place++]);
        number.erase(number.find_last_not_of('0') + 1);
        if (number.back() == '.') number.pop_back();
        fmt::format_to(add, "{}", number);
      }
    }
    out += ']';
  };
  list(list, 0);
}

struct Place {
  double row = 0;
  int64_t level = 0;
};

/// Adds the nodes of `tree` and returns where it stands; `leaf` counts words.
Place lay_out(const Tree& tree, int64_t parent, const std::vector<double>& rows, size_t& leaf,
              std::vector<TreeNode>& nodes) {
  if (tree.is_word()) {
    const size_t word = leaf++;
    return {word < rows.size() ? rows[word] : 0, 0};
  }
  const auto index = static_cast<int64_t>(nodes.size());
  nodes.push_back({.label = tree.label, .parent = parent});
  TreeNode node = nodes.back();
  for (size_t i = 0; i < tree.children.size(); ++i) {
    const auto place = lay_out(tree.children[i], index, rows, leaf, nodes);
    if (tree.children[i].is_word()) node.leaf_rows.push_back(place.row);
    if (i == 0) node.first = place.row;
    node.last = place.row;
    node.level = std::max(node.level, place.level + 1);
  }
  node.row = (node.first + node.last) / 2;
  const Place place{node.row, node.level};
  nodes[static_cast<size_t>(index)] = std::move(node);
  return place;
}

}  // namespace

std::string_view name_of(AttentionView::Kind kind) {
  switch (kind) {
    case AttentionView::Kind::encoder:
      return "encoder";
    case AttentionView::Kind::decoder:
      return "decoder";
    default:
      return "cross";
  }
}

std::string_view title_of(AttentionView::Kind kind) {
  switch (kind) {
    case AttentionView::Kind::encoder:
      return "Encoder self-attention";
    case AttentionView::Kind::decoder:
      return "Decoder self-attention";
    default:
      return "Cross-attention";
  }
}

std::string attention_json(const AttentionReport& report) {
  std::string out = fmt::format(R"({{"format": {}, "model": {}, "source": {}, "target": {}, "unit": "{}", )",
                                attention_report_version, quoted(report.model), quoted(report.source),
                                quoted(report.target), report.words ? "word" : "token");
  if (report.tree) out += fmt::format(R"("tree": {}, )", quoted(to_string(*report.tree)));
  out += R"("attention": {)";
  for (size_t i = 0; i < report.views.size(); ++i) {
    const auto& view = report.views[i];
    fmt::format_to(std::back_inserter(out),
                   R"({}"{}": {{"layers": [{}], "heads": [{}], "queries": {}, "keys": {}, "shape": [{}, {}, {}, {}], )",
                   i > 0 ? ", " : "", name_of(view.kind), fmt::join(view.layers, ", "), fmt::join(view.heads, ", "),
                   list_of(view.queries), list_of(view.keys), view.layers.size(), view.heads.size(),
                   view.queries.size(), view.keys.size());
    out += R"("weights": )";
    add_weights(out, view);
    out += '}';
  }
  return out + "}}\n";
}

std::vector<TreeNode> tree_layout(const AttentionReport& report) {
  std::vector<TreeNode> nodes;
  if (!report.tree) return nodes;
  const size_t words = words_of(*report.tree).size();
  std::vector<double> sums(words), counts(words);
  for (size_t token = 0; token < report.tree_word.size(); ++token) {
    const auto word = static_cast<size_t>(report.tree_word[token]);
    if (report.tree_word[token] < 0 || word >= words) continue;
    sums[word] += static_cast<double>(token);
    ++counts[word];
  }
  for (size_t word = 0; word < words; ++word) sums[word] /= std::max(counts[word], 1.0);
  const Tree& tree = *report.tree;
  size_t leaf = 0;
  lay_out(is_top(tree.label) && tree.children.size() == 1 ? tree.children.front() : tree, -1, sums, leaf, nodes);
  return nodes;
}

}  // namespace transformer
