#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transformer/inference/beam_search.h"
#include "transformer/inference/engine.h"
#include "transformer/inference/output_constraint.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

class InferenceModel;

/// What decodes, and what outputs may be.
struct ContinuousSearchOptions {
  int64_t threads = 1;            // workers; they share the weights and nothing else
  int64_t end = Vocabulary::end;  // the token that ends a hypothesis, or SentenceSearch::no_end
  int64_t cache_bytes = 0;        // Engine::Options
  /// What outputs may be, one a source (null: anything), or none at all. Workers ask them at the same time.
  std::span<const std::shared_ptr<const OutputConstraint>> constraints = {};
};

/// A request for each of `sources`, all searched alike. `constraints`: one a source (null: anything), or none at all.
std::vector<DecodingRequest> requests_for(std::span<const std::vector<int64_t>> sources,
                                          std::span<const int64_t> max_lengths, const DecodingSettings& settings,
                                          std::span<const std::shared_ptr<const OutputConstraint>> constraints = {},
                                          int64_t end = Vocabulary::end);

/// Submits all and waits for them. Throws what the first that failed did.
std::vector<std::vector<Hypothesis>> decode_all(Engine& engine, std::vector<DecodingRequest> requests);

/// `beam_search` over an InferenceModel for any number of sources (pieces and the end; none is empty), by an engine of
/// its own whose workers decode `settings.batch_sentences` at once each. Throws as `beam_search` does, whichever
/// sentence failed first.
std::vector<std::vector<Hypothesis>> continuous_search(const InferenceModel& model,
                                                       std::span<const std::vector<int64_t>> sources,
                                                       std::span<const int64_t> max_lengths,
                                                       const DecodingSettings& settings,
                                                       const ContinuousSearchOptions& options = {});

}  // namespace transformer
