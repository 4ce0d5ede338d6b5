#pragma once

#include "transformer/model/transformer.h"
#include "transformer/text/batches.h"

namespace transformer {

/// How well a model predicts a corpus.
struct Perplexity {
  double loss = 0;        // mean -log p of a target token, in nats; a sentence's end counts as one
  double perplexity = 0;  // exp(loss): per word piece, as in Table 3
  int64_t tokens = 0;
};

/// Perplexity of `model`, in evaluation mode, on `corpus`. Computes `batch_tokens` tokens at a time.
Perplexity perplexity(Transformer& model, const Corpus& corpus, int64_t batch_tokens = 4000);

}  // namespace transformer
