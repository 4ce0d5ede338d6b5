#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace transformer {

/// Cross entropy against targets smoothed by ε_ls (§5.4): 1 - ε of the mass on the target, ε spread evenly over the
/// vocabulary, the target included (so that ε = 0 is plain cross entropy). Sums over tokens; padding counts nothing.
struct LossSums {
  at::Tensor loss;                     // scalar float32/64, differentiable: the smoothed cross entropy
  at::Tensor negative_log_likelihood;  // scalar, without gradient: -Σ log p(target), for perplexity
};

/// From logits [.., V] and targets [..] int64. Positions whose target is `padding` are left out. Throws c10::Error
/// where the two differ in what [..] is.
LossSums label_smoothing_loss(const at::Tensor& logits, const at::Tensor& targets, double smoothing, int64_t padding);

/// The same from hidden states [.., D] and the projection's weight [V, D] and `bias` [V], undefined for none, in chunks
/// of rows: the gradient is computed in the same pass, and the logits, [tokens, V], never exist whole. Padding rows are
/// not even projected. Products are made in `product_type` (bfloat16 or the inputs' own type), the softmax in float32
/// or wider. A caller that knows how many targets are no padding says so in `target_tokens`, and a GPU need not be
/// waited for to count them. Throws as label_smoothing_loss does.
LossSums projected_label_smoothing_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                        double smoothing, int64_t padding, at::ScalarType product_type,
                                        std::optional<int64_t> target_tokens = {}, const at::Tensor& bias = {});

}  // namespace transformer
