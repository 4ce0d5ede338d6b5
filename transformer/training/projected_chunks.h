#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "transformer/model/fused/products.h"

namespace transformer {

/// Rows whose logits exist at once: enough of them to keep the products busy, few enough to stay near a cache. On a GPU
/// twice as many where their gradient takes their place.
inline int64_t chunk_rows(const at::Tensor& hidden, int64_t vocabulary, bool in_place = false) {
  const int64_t elements = hidden.is_cpu() ? int64_t{1} << 22 : int64_t{1} << (in_place ? 28 : 27);
  return std::max<int64_t>(512, elements / vocabulary);
}

/// Σ over `inputs` [N, D] of the mean of their logits under `matrix` [V, D] and `bias` [V], undefined for none: a
/// product of sums, without the logits. A scalar of `type`.
inline at::Tensor sum_of_mean_logits(const at::Tensor& inputs, const at::Tensor& matrix, const at::Tensor& bias,
                                     at::ScalarType type) {
  const auto sum = (inputs.sum(0, /*keepdim=*/false, type) * matrix.sum(0, /*keepdim=*/false, type)).sum();
  const auto mean = sum / static_cast<double>(matrix.size(0));
  return bias.defined() ? mean + bias.mean(type) * static_cast<double>(inputs.size(0)) : mean;
}

/// The gradients of hidden states [N, D], weight [V, D] and bias [V], undefined for none, as chunks of the logits' give
/// them.
struct ProjectionGradients {
  /// Of nothing: all undefined.
  ProjectionGradients() = default;
  /// Memory for gradients of such tensors, which `add` fills.
  ProjectionGradients(const at::Tensor& of_hidden, const at::Tensor& of_weight, const at::Tensor& of_bias)
      : hidden(at::empty(of_hidden.sizes(), of_hidden.options())),
        weight(of_hidden.size(0) > 0 ? at::empty(of_weight.sizes(), sums_of(of_weight))
                                     : at::zeros(of_weight.sizes(), sums_of(of_weight))),
        weight_type_(of_weight.scalar_type()) {
    if (!of_bias.defined()) return;
    bias = at::zeros(of_bias.sizes(), sums_of(of_bias));
    bias_type_ = of_bias.scalar_type();
  }

  /// From the `gradient` of the logits of `chunk`, the hidden states of rows `first` and following, under `matrix`, the
  /// weight: every row comes once.
  void add(const at::Tensor& gradient, const at::Tensor& chunk, const at::Tensor& matrix, int64_t first) {
    product_into(hidden.narrow(0, first, chunk.size(0)), gradient, matrix);
    product_into(weight, gradient.t(), chunk, begun_);
    begun_ = true;
    if (bias.defined()) bias.add_(gradient.sum(0, /*keepdim=*/false, bias.scalar_type()));
  }

  /// From a `gradient` that all logits have in common, those of `inputs`, all hidden states, under `matrix`: two
  /// outer products, where logits themselves would have to be gone over once more.
  void add_to_all(double gradient, const at::Tensor& inputs, const at::Tensor& matrix) {
    hidden.add_(matrix.sum(0, /*keepdim=*/false, hidden.scalar_type()), gradient);
    weight.add_(inputs.sum(0, /*keepdim=*/false, weight.scalar_type()), gradient);
    if (bias.defined()) bias.add_(gradient * static_cast<double>(inputs.size(0)));
  }

  /// For the backward pass, whose upstream gradient they still lack, in the types of what they are gradients of.
  std::vector<at::Tensor> list() const {
    return {hidden, weight.to(weight_type_), bias.defined() ? bias.to(bias_type_) : at::Tensor()};
  }

  at::Tensor hidden, weight, bias;  // of the loss, [N, D], [V, D] and [V]; the latter two sums over chunks

 private:
  // Chunk after chunk, what is small would be lost in bfloat16 and in float16.
  static at::TensorOptions sums_of(const at::Tensor& tensor) {
    return tensor.options().dtype(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }

  at::ScalarType weight_type_ = at::kFloat, bias_type_ = at::kFloat;
  bool begun_ = false;
};

}  // namespace transformer
