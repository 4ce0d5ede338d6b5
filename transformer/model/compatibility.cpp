#include "transformer/model/compatibility.h"

#include <torch/types.h>

#include <cmath>
#include <limits>

namespace transformer {

using torch::Tensor;

Tensor compatibility(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  if (options.additive) {
    const auto hidden = (query.unsqueeze(3) + key.unsqueeze(2)).tanh();           // [B, H, T, S, d_k]
    const auto vector = options.additive->to(query.scalar_type()).unsqueeze(-1);  // [H, d_k, 1]
    return hidden.flatten(2, 3).matmul(vector).view({query.size(0), query.size(1), query.size(2), key.size(2)});
  }
  const auto scores = query.matmul(key.mT());  // [B, H, T, S]
  if (options.scale) return *options.scale == 1 ? scores : scores * *options.scale;
  return scores / std::sqrt(static_cast<double>(query.size(-1)));
}

Tensor masked_softmax(Tensor scores, const std::optional<Tensor>& mask) {
  if (!mask) return scores.softmax(-1);
  scores = scores.masked_fill(~*mask, -std::numeric_limits<double>::infinity());
  // A row without any permitted key is 0/0 in the softmax.
  return scores.softmax(-1).masked_fill(~mask->any(-1, /*keepdim=*/true), 0.0);
}

std::optional<Tensor> neighbourhood(int64_t first_query, int64_t queries, int64_t first_key, int64_t keys,
                                    const AttentionOptions& options, torch::Device device) {
  if (!options.causal && options.window == 0) return {};
  const auto integers = torch::TensorOptions().dtype(torch::kInt64).device(device);
  const auto ahead = torch::arange(first_key, first_key + keys, integers) -
                     torch::arange(first_query, first_query + queries, integers).unsqueeze(1);  // key less query
  std::optional<Tensor> seen;
  if (options.causal) seen = ahead <= 0;
  if (options.window > 0) {
    const auto near = ahead.abs() <= options.window / 2;
    seen = seen ? *seen & near : near;
  }
  return seen;
}

}  // namespace transformer
