#pragma once

#include <cstdint>

#include "transformer/text/corpus.h"

namespace transformer {

class InferenceModel;

/// How well a model predicts a corpus.
struct Perplexity {
  double loss = 0;        // mean -log p of a target token, in nats; a sentence's end counts as one
  double perplexity = 0;  // exp(loss): per word piece, as in Table 3
  int64_t tokens = 0;
};

/// What the sum of -log p over so many tokens makes.
Perplexity perplexity_of(double sum, int64_t tokens);

/// Perplexity of packed weights on `corpus`, judged by `threads` workers. The result does not depend on their number.
/// Throws Error past the last learned position.
Perplexity perplexity(const InferenceModel& model, const Corpus& corpus, int64_t threads = 1);

}  // namespace transformer
