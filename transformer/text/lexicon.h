#pragma once

#include <cstdint>
#include <vector>

#include "transformer/text/corpus.h"

namespace transformer {

/// p(target piece | source piece), as IBM's Model 1 finds it in parallel text: every piece of a target is the
/// translation of one piece of its source, or of nothing, each as likely beforehand (Brown et al. 1993, §4.1).
class Lexicon {
 public:
  /// How much is looked at.
  struct Options {
    int64_t iterations = 5;          // of expectation maximisation
    int64_t most_pairs = 1'000'000;  // sentence pairs that are looked at, evenly over the corpus
    int64_t most_pieces = 100;       // a side; longer pairs are left out
  };

  /// The vocabularies' sizes. Memory grows with the different pairs of pieces that occur together, 16 bytes each.
  static Lexicon learn(const Corpus& corpus, int64_t source_size, int64_t target_size, const Options& options);

  /// A translation of a piece.
  struct Entry {
    int32_t target = 0;     // a piece of the target's vocabulary
    float probability = 0;  // p(target | source)
  };
  /// The translations of a piece, the most probable first, equal ones by their id; none for one that does not occur.
  const std::vector<Entry>& of(int64_t source) const { return entries_.at(static_cast<size_t>(source)); }
  /// The target's pieces by how often they occur, the most frequent first, equal ones by their id; all that do occur.
  const std::vector<int32_t>& frequent() const { return frequent_; }
  /// Pairs that it was learned from, and those that were left out for their length.
  int64_t pairs() const { return pairs_; }
  int64_t too_long() const { return too_long_; }  ///< those left out

 private:
  std::vector<std::vector<Entry>> entries_;
  std::vector<int32_t> frequent_;
  int64_t pairs_ = 0, too_long_ = 0;
};

}  // namespace transformer
