#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/text/treebank.h"

namespace transformer {

/// One of a model's three attentions over one sentence.
struct AttentionView {
  /// Who attends to what.
  enum class Kind {
    encoder,  // the source to itself
    decoder,  // the output to itself
    cross     // the output to the source
  };

  Kind kind = Kind::encoder;               // of queries and keys
  std::vector<std::string> queries, keys;  // who attends, and to what: tokens, or words
  std::vector<int64_t> layers, heads;      // the numbers of those that are here, from 1
  int64_t layer_count = 0;                 // of the model
  std::vector<float> weights;              // [layers, heads, queries, keys], rows sum to 1

  /// One of the weights, by indices into `layers`, `heads`, `queries` and `keys`.
  float weight(size_t layer, size_t head, size_t query, size_t key) const {
    return weights[((layer * heads.size() + head) * queries.size() + query) * keys.size() + key];
  }
};

/// "encoder", "decoder" or "cross".
std::string_view name_of(AttentionView::Kind kind);
/// "Encoder self-attention", "Decoder self-attention" or "Cross-attention".
std::string_view title_of(AttentionView::Kind kind);

/// What a model attends to while it reads `source` and writes `target`. All text is plain UTF-8 and escaped as each
/// format needs.
struct AttentionReport {
  std::string model;                 // a name or a path
  std::string source, target;        // the line, and its translation
  bool words = false;                // queries and keys are words joined from tokens
  std::vector<AttentionView> views;  // at most one of a kind
  std::optional<Tree> tree;          // over the source's words
  /// For every token or word of the source, the end included, which of the tree's words it belongs to; -1: none.
  std::vector<int64_t> tree_word;
};

/// The report as one line of JSON, its line end included:
///
///     {"format": 1, "model": "..", "source": "..", "target": "..", "unit": "token" | "word",
///      "tree": "(TOP ..)",                                       (where there is one)
///      "attention": {"encoder" | "decoder" | "cross": {
///          "layers": [1, ..], "heads": [1, ..], "queries": ["..", ..], "keys": ["..", ..],
///          "shape": [layers, heads, queries, keys],
///          "weights": nested lists of that shape}}}
///
/// Layers and heads count from 1. Weights are rounded to six decimals. Text that is not UTF-8 becomes U+FFFD.
std::string attention_json(const AttentionReport& report);

/// Version of JSON, SVG and HTML.
inline constexpr int attention_report_version = 1;

/// A tree as it is drawn beside its words: a node without its place across the page.
struct TreeNode {
  std::string label;                   // of the constituent
  int64_t level = 0;                   // above the words, which are at 0: one more than the highest child's
  double row = 0;                      // where it stands along the words: in the middle of its children
  double first = 0, last = 0;          // rows of the first and the last child
  int64_t parent = -1;                 // index of the node above
  std::vector<double> leaf_rows = {};  // of the words right below it
};
/// The constituents of `report.tree`, parents before children, the topmost left out where it has one child; rows are
/// those of the source's tokens or words, a word of several tokens being at their middle. Empty without a tree.
std::vector<TreeNode> tree_layout(const AttentionReport& report);

}  // namespace transformer
