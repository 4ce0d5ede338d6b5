#include "transformer/model/embedding.h"

#include <cmath>

namespace transformer {

TokenEmbeddingImpl::TokenEmbeddingImpl(int64_t vocabulary_size, int64_t d_model, bool scaled)
    : scale_(scaled ? std::sqrt(static_cast<double>(d_model)) : 1) {
  // Variance 1/D: unit variance once scaled, and logits of moderate size where the matrix is also the projection.
  weight_ =
      register_parameter("weight", torch::randn({vocabulary_size, d_model}) / std::sqrt(static_cast<double>(d_model)));
}

torch::Tensor TokenEmbeddingImpl::forward(const torch::Tensor& ids) {
  return torch::embedding(used_weight(), ids) * scale_;
}

EmbeddingNormImpl::EmbeddingNormImpl(int64_t d_model, double epsilon)
    : norm_(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({d_model}).eps(epsilon)))) {}

torch::Tensor TokenEmbeddingImpl::project(const torch::Tensor& hidden, const torch::Tensor& bias) {
  return linear(hidden, weight_, bias, is_training());
}

}  // namespace transformer
