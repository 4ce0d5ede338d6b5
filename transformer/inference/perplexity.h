#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transformer/inference/told_languages.h"
#include "transformer/text/corpus.h"

namespace transformer {

class InferenceModel;
struct DecodingSettings;

/// How well a model predicts a corpus.
struct Perplexity {
  double loss = 0;        // mean -log p of a target token, in nats; a sentence's end counts as one
  double perplexity = 0;  // exp(loss): per word piece, as in Table 3
  int64_t tokens = 0;     // of all targets, ends counted
};

/// What the sum of -log p over so many tokens makes.
Perplexity perplexity_of(double sum, int64_t tokens);

/// Perplexity of packed weights on `corpus`, judged by `threads` workers. The result does not depend on their number.
/// Throws Error past the last learned position, and Failure where the model's probabilities are no finite numbers.
Perplexity perplexity(const InferenceModel& model, const Corpus& corpus, int64_t threads = 1);

/// log p of each token of `targets`, and last of its end, as the whole output for the source of its index. Both are
/// pieces without begin and end; the result of a pair depends on nothing else. A language that the model is `told`
/// stands before a target, and is none of what it writes. Throws as perplexity.
std::vector<std::vector<double>> token_log_probabilities(const InferenceModel& model,
                                                         std::span<const std::vector<int64_t>> sources,
                                                         std::span<const std::vector<int64_t>> targets,
                                                         int64_t threads = 1, const ToldLanguages& told = {});
/// The entropy, in nats, of the model's distribution over its whole vocabulary where it wrote each token of `targets`,
/// and last its end: how open the choice was. The rest as in token_log_probabilities.
std::vector<std::vector<double>> token_entropies(const InferenceModel& model,
                                                 std::span<const std::vector<int64_t>> sources,
                                                 std::span<const std::vector<int64_t>> targets, int64_t threads = 1,
                                                 const ToldLanguages& told = {});
/// A target's log p, the sum of its tokens', over the length penalty of `settings`, which counts `told` tokens before
/// them (DecodingRequest::told): the score that searches rank by, but for a coverage penalty, a
/// repetition penalty and biases.
double normalised_score(std::span<const double> token_log_probabilities, const DecodingSettings& settings,
                        int64_t told = 0);
/// The sum of each target's.
std::vector<double> log_probabilities(const InferenceModel& model, std::span<const std::vector<int64_t>> sources,
                                      std::span<const std::vector<int64_t>> targets, int64_t threads = 1);

}  // namespace transformer
