#pragma once

#include <cstdint>
#include <vector>

#include "transformer/text/corpus.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// Spells the same sentences in other pieces each time they are trained on, which makes more of a small corpus.
struct SubwordSampling {
  Vocabularies vocabularies;  // those that split the corpus
  double alpha = 0;           // Vocabulary::sample's; 0: the pieces of the corpus
  /// The pieces of the tag of each pair of files (Corpus::Options::tags), which stay before their texts; none: of none.
  std::vector<std::vector<int64_t>> tags = {};
};

/// Piece ids of a pair's two sides, without begin and end.
struct SampledPair {
  std::vector<int64_t> source, target;  // as long as the drawn spelling makes them
};

/// Draws pieces for each of `pairs`. The same `seed` draws the same. A side keeps the corpus's pieces where they hold
/// unknown ones, whose text is lost, where those drawn do (a table need not hold every piece), and where those drawn
/// are more than the corpus's longest side has (Corpus::longest, by `weights`). The piece of a language stays before
/// its text, and so do those of a tag.
std::vector<SampledPair> sample_pieces(const Corpus& corpus, const std::vector<int64_t>& pairs,
                                       const SubwordSampling& sampling, uint64_t seed,
                                       const std::vector<double>& weights = {});

}  // namespace transformer
