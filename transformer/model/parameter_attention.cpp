#include "transformer/model/parameter_attention.h"

#include <torch/nn/init.h>

#include <cmath>

#include "transformer/model/attention.h"

namespace transformer {

using torch::Tensor;

ParameterAttentionImpl::ParameterAttentionImpl(const ParameterAttentionOptions& options) : options_(options) {
  const auto layer = [&](int64_t in, int64_t out) {
    return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(options.bias));
  };
  query_ = register_module("query", layer(options.d_model, options.heads * options.d_k));
  // Variance 1/D, as embeddings: unit variance once scaled.
  const auto scale = std::sqrt(static_cast<double>(options.d_model));
  keys_ = register_parameter("keys", torch::randn({options.heads, options.pairs, options.d_k}) / scale);
  values_ = register_parameter("values", torch::randn({options.heads, options.pairs, options.d_v}) / scale);
  output_ = register_module("output", layer(options.heads * options.d_v, options.d_model));
  for (auto& projection : {query_, output_}) {
    torch::nn::init::xavier_uniform_(projection->weight);
    if (options.bias) torch::nn::init::zeros_(projection->bias);
  }
}

Tensor ParameterAttentionImpl::forward(const Tensor& x) {
  // All positions of all sentences are the queries of one: they share their keys.
  const auto query = linear(x, query_->weight, query_->bias, is_training())
                         .flatten(0, -2)
                         .unflatten(-1, {options_.heads, -1})
                         .transpose(0, 1);
  const auto scale = std::sqrt(static_cast<double>(options_.d_model));
  const auto scaled = [&](const Tensor& parameter) { return (parameter * scale).to(query.scalar_type()).unsqueeze(0); };
  const auto attended = attention(query.unsqueeze(0), scaled(keys_), scaled(values_),
                                  {.mask = {}, .dropout = is_training() ? options_.dropout : 0});  // [1, h_p, N, d_pv]
  const auto heads = attended.values.squeeze(0).transpose(0, 1).flatten(1);                        // [N, h_p d_pv]
  return linear(heads, output_->weight, output_->bias, is_training()).view(x.sizes());
}

}  // namespace transformer
