#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "transformer/text/corpus.h"

namespace transformer {

/// Sentence pairs of similar length as padded tensors.
struct Batch {
  at::Tensor source;          // [B, S] int64: pieces, end, padding
  at::Tensor target_input;    // [B, T] int64: begin, pieces, padding
  at::Tensor target_output;   // [B, T] int64: pieces, end, padding
  int64_t source_tokens = 0;  // without padding, ends counted
  int64_t target_tokens = 0;
  std::vector<int64_t> pairs;  // [B] indices into the corpus
};

/// The batches of one pass over a corpus, each of approximately equal lengths and at most `batch_tokens` source and
/// `batch_tokens` target tokens, padding counted (§5.1). Order and composition depend only on (seed, epoch).
///
/// A thread of its own prepares tensors a few batches ahead.
class Batches {
 public:
  struct Options {
    int64_t batch_tokens = 25000;
    uint64_t seed = 1;
    bool shuffle = true;  // false: in order of length, for validation
  };
  /// `corpus` must outlive this. Starts at batch `first` of `epoch` (to resume in the middle of one).
  /// Throws Error when a single pair is longer than the budget.
  Batches(const Corpus& corpus, const Options& options, int64_t epoch, int64_t first = 0);
  ~Batches();
  Batches(Batches&&) noexcept;

  int64_t size() const;     // batches in the epoch
  bool next(Batch& batch);  // false at the end of the epoch
  /// Padding's share of all source and target positions of the epoch.
  double padding() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// One batch of the given pairs, in that order.
Batch make_batch(const Corpus& corpus, const std::vector<int64_t>& pairs);

}  // namespace transformer
