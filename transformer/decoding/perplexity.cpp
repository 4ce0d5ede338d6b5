#include "transformer/decoding/perplexity.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "transformer/text/batches.h"

namespace transformer {

Perplexity perplexity(Transformer& model, const Corpus& corpus, const PerplexityOptions& options) {
  torch::NoGradGuard no_grad;
  const bool training = model->is_training();
  model->eval();
  const auto device = model->projection_weight().device();
  int64_t longest = 0;
  for (int64_t pair = 0; pair < corpus.size(); ++pair) {
    longest = std::max({longest, corpus.source_length(pair), corpus.target_length(pair)});
  }
  // A pair longer than the budget makes a batch by itself.
  Batches batches(corpus, {.batch_tokens = std::max(options.batch_tokens, longest + 1), .shuffle = false}, 0);
  int64_t tokens = 0;
  std::vector<double> losses;  // of each batch; others' are 0, so that sums over processes are exact
  Batch batch;
  while (batches.next(batch)) {
    tokens += batch.target_tokens;
    losses.push_back(0);
    if (static_cast<int64_t>(losses.size() - 1) % options.ranks != options.rank) continue;
    const auto there = [&](const IdMatrix& ids) { return id_tensor(ids.rows, ids.columns, ids.ids).to(device); };
    const auto logits = model->forward(there(batch.source), there(batch.target_input));  // [B, T, V]
    losses.back() =
        torch::cross_entropy_loss(logits.flatten(0, 1).to(torch::kFloat), there(batch.target_output).flatten(), {},
                                  at::Reduction::Sum, TransformerImpl::padding_id)
            .item<double>();
  }
  model->train(training);
  if (options.sum) options.sum(losses);
  return perplexity_of(std::accumulate(losses.begin(), losses.end(), 0.0), tokens);
}

}  // namespace transformer
