#include "transformer/inference/continuous_search.h"

#include <algorithm>
#include <memory>

#include "transformer/inference/engine.h"

namespace transformer {

std::vector<DecodingRequest> requests_for(std::span<const std::vector<int64_t>> sources,
                                          std::span<const int64_t> max_lengths, const DecodingSettings& settings,
                                          std::span<const std::shared_ptr<const OutputConstraint>> constraints,
                                          int64_t end) {
  std::vector<DecodingRequest> requests;
  for (size_t i = 0; i < sources.size(); ++i) {
    requests.push_back({sources[i], max_lengths[i], settings, constraints.empty() ? nullptr : constraints[i], end});
  }
  return requests;
}

std::vector<std::vector<Hypothesis>> decode_all(Engine& engine, std::vector<DecodingRequest> requests) {
  std::vector<std::vector<Hypothesis>> results(requests.size());
  std::exception_ptr first_error;
  const auto job = engine.submit(std::move(requests), [&](size_t index, DecodingResult result) {
    results[index] = std::move(result.hypotheses);
    if (result.error && !first_error) first_error = result.error;
  });
  engine.wait(*job);
  if (first_error) std::rethrow_exception(first_error);
  return results;
}

std::vector<std::vector<Hypothesis>> continuous_search(const InferenceModel& model,
                                                       std::span<const std::vector<int64_t>> sources,
                                                       std::span<const int64_t> max_lengths,
                                                       const DecodingSettings& given,
                                                       const ContinuousSearchOptions& options) {
  const auto settings = given.validated();
  // The model outlives the engine, which is gone when this returns.
  Engine engine(std::shared_ptr<const InferenceModel>(std::shared_ptr<const InferenceModel>(), &model),
                {.threads = std::clamp<int64_t>(options.threads, 1, std::max<int64_t>(1, std::ssize(sources))),
                 .batch_sentences = settings.batch_sentences,
                 .cache_bytes = options.cache_bytes});
  return decode_all(engine, requests_for(sources, max_lengths, settings, options.constraints, options.end));
}

}  // namespace transformer
