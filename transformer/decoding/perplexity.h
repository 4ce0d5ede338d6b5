#pragma once

#include "transformer/inference/perplexity.h"
#include "transformer/model/transformer.h"
#include "transformer/text/corpus.h"

namespace transformer {

/// Perplexity of `model`, in evaluation mode and by its modules, on `corpus`. Computes `batch_tokens` tokens at a time.
Perplexity perplexity(Transformer& model, const Corpus& corpus, int64_t batch_tokens = 4000);

}  // namespace transformer
