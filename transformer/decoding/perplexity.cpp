#include "transformer/decoding/perplexity.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "transformer/model/evaluating.h"
#include "transformer/text/batches.h"

namespace transformer {

BatchLosses batch_losses(Transformer& model, const Corpus& corpus, const PerplexityOptions& options) {
  torch::NoGradGuard no_grad;
  const Evaluating evaluating(*model);
  const auto device = model->projection_weight().device();
  int64_t longest = 0;
  for (int64_t pair = 0; pair < corpus.size(); ++pair) {
    longest = std::max({longest, corpus.source_length(pair), corpus.target_length(pair)});
  }
  // A pair longer than the budget makes a batch by itself.
  Batches batches(corpus, {.batch_tokens = std::max(options.batch_tokens, longest + 1), .shuffle = false}, 0);
  BatchLosses losses;
  std::vector<at::Tensor> sums;
  for (Batch batch; batches.next(batch); ++losses.batches) {
    losses.target_tokens += batch.target_tokens;
    if (losses.batches % options.ranks != options.rank) continue;
    losses.stopped = losses.stopped || (options.stop && *options.stop);
    if (losses.stopped) continue;  // but counted
    const auto there = [&](const IdMatrix& ids) { return id_tensor(ids.rows, ids.columns, ids.ids).to(device); };
    // A mask that hides nothing would keep attention from the quickest ways.
    const bool padded = batch.source_tokens < batch.source.rows * batch.source.columns;
    const auto memory = model->encode(there(batch.source), /*weights=*/false, padded);
    const auto logits = model->project(model->decode(there(batch.target_input), memory).values);  // [B, T, V]
    sums.push_back(torch::cross_entropy_loss(logits.flatten(0, 1).to(torch::kFloat),
                                             there(batch.target_output).flatten(), {}, at::Reduction::Sum,
                                             TransformerImpl::padding_id));
  }
  if (!sums.empty()) losses.own = at::stack(sums);
  return losses;
}

std::optional<Perplexity> perplexity(Transformer& model, const Corpus& corpus, const PerplexityOptions& options) {
  const auto found = batch_losses(model, corpus, options);
  const auto batches = static_cast<size_t>(found.batches);
  // Others' are 0, so that sums over processes are exact. Last, how many processes were told to stop.
  std::vector<double> losses(batches + 1);
  losses[batches] = found.stopped ? 1 : 0;
  if (found.own.defined()) {
    const auto own = found.own.to(at::kCPU, at::kDouble);
    for (int64_t i = 0; i < own.numel(); ++i) {
      losses[static_cast<size_t>(options.rank + i * options.ranks)] = own.const_data_ptr<double>()[i];
    }
  }
  if (options.sum) options.sum(losses);
  if (losses[batches] > 0) return std::nullopt;
  return perplexity_of(std::accumulate(losses.begin(), losses.end(), 0.0), found.target_tokens);
}

}  // namespace transformer
