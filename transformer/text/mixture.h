#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace transformer {

/// Consecutive sentence pairs.
struct PairRange {
  int64_t first = 0, count = 0;  // pairs from `first` to `first + count - 1`
  auto operator<=>(const PairRange&) const = default;
};

/// How often an epoch uses each of several corpora, which lie one after the other: corpus k holds sizes[k] pairs.
///
/// A weight says how often an epoch uses each pair of its corpus: with 2 twice; with 0.5 one half is used in this epoch
/// and the other half in the next; with 0 the corpus is left out. Each corpus is an endless stream of passes over its
/// pairs, every pass in another random order of blocks of consecutive pairs, and every epoch takes the next
/// weight * size pairs of the stream. So over any number of epochs no pair is used more than once oftener than
/// another of the same corpus, whatever the weight.
struct Mixture {
  std::vector<int64_t> sizes;   // pairs of each corpus
  std::vector<double> weights;  // one a corpus, from 0 to largest_weight; empty: all 1
  uint64_t seed = 1;            // of the passes' orders
  bool shuffle = true;          // false: passes in the order of the pairs

  /// Of a weight: more is taken for a slip.
  static constexpr double largest_weight = 1000;

  /// The pairs of `epoch` in pools of about `pool_pairs`, all of about the same size, with every corpus spread over all
  /// of them (without shuffle: one after the other). A pool's ranges are sorted; a pair that comes twice in an epoch is
  /// in two of them.
  std::vector<std::vector<PairRange>> pools(int64_t epoch, int64_t pool_pairs) const;
};

/// Throws Error naming data.train_weights unless there are none or one for each of `corpora` pairs of files, each from
/// 0 to largest_weight and not all 0.
void check_weights(const std::vector<double>& weights, size_t corpora);

}  // namespace transformer
