#include "transformer/decoding/perplexity.h"

#include <torch/types.h>

#include <algorithm>

#include "transformer/text/batches.h"

namespace transformer {

Perplexity perplexity(Transformer& model, const Corpus& corpus, int64_t batch_tokens) {
  torch::NoGradGuard no_grad;
  const bool training = model->is_training();
  model->eval();
  const auto device = model->projection_weight().device();
  int64_t longest = 0;
  for (int64_t pair = 0; pair < corpus.size(); ++pair) {
    longest = std::max({longest, corpus.source_length(pair), corpus.target_length(pair)});
  }
  // A pair longer than the budget makes a batch by itself.
  Batches batches(corpus, {.batch_tokens = std::max(batch_tokens, longest + 1), .shuffle = false}, 0);
  int64_t tokens = 0;
  double sum = 0;
  Batch batch;
  while (batches.next(batch)) {
    const auto there = [&](const IdMatrix& ids) { return id_tensor(ids.rows, ids.columns, ids.ids).to(device); };
    const auto logits = model->forward(there(batch.source), there(batch.target_input));  // [B, T, V]
    sum += torch::cross_entropy_loss(logits.flatten(0, 1).to(torch::kFloat), there(batch.target_output).flatten(), {},
                                     at::Reduction::Sum, TransformerImpl::padding_id)
               .item<double>();
    tokens += batch.target_tokens;
  }
  model->train(training);
  return perplexity_of(sum, tokens);
}

}  // namespace transformer
