#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "transformer/inference/perplexity.h"
#include "transformer/model/transformer.h"
#include "transformer/text/corpus.h"

namespace transformer {

/// How perplexity is computed.
struct PerplexityOptions {
  int64_t batch_tokens = 4000;  // at a time
  /// One process of `ranks` computes every `ranks`-th batch, from its `rank` on, and `sum` overwrites values with their
  /// sums over all processes: each then has the same result, to the bit, whatever their number. `sum` is called once.
  int64_t rank = 0, ranks = 1;
  std::function<void(std::vector<double>& values)> sum = {};  // of all processes
  const std::atomic<bool>* stop = nullptr;  // looked at between batches: no more are computed where it is true
};

/// What a model's perplexity is made of.
struct BatchLosses {
  at::Tensor own;                          // [batches of this rank], in nats, summed over each; undefined: it has none
  int64_t batches = 0, target_tokens = 0;  // of all ranks
  bool stopped = false;                    // some of this rank are missing
};

/// The losses of this rank's batches, on the model's device, which is asked for no number meanwhile: the next batch
/// need not wait for the last one's.
BatchLosses batch_losses(Transformer& model, const Corpus& corpus, const PerplexityOptions& options);

/// Perplexity of `model`, in evaluation mode and by its modules, on `corpus`. Nothing, in every process, where one of
/// them was told to stop.
std::optional<Perplexity> perplexity(Transformer& model, const Corpus& corpus, const PerplexityOptions& options = {});

}  // namespace transformer
