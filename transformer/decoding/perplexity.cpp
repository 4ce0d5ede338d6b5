#include "transformer/evaluation/perplexity.h"

#include <algorithm>
#include <cmath>

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
  Perplexity result;
  double sum = 0;
  Batch batch;
  while (batches.next(batch)) {
    const auto logits = model->forward(batch.source.to(device), batch.target_input.to(device));  // [B, T, V]
    sum += torch::cross_entropy_loss(logits.flatten(0, 1).to(torch::kFloat), batch.target_output.to(device).flatten(),
                                     {}, at::Reduction::Sum, TransformerImpl::padding_id)
               .item<double>();
    result.tokens += batch.target_tokens;
  }
  model->train(training);
  result.loss = result.tokens ? sum / static_cast<double>(result.tokens) : 0;
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace transformer
