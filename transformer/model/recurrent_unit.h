#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "transformer/model/quantization.h"

namespace transformer {

/// A simpler simple recurrent unit (SSRU; Kim et al. 2019, "From Research to Production and Back"), which stands where
/// a decoder's layer has self-attention: with f_t = σ(W_f x_t + b_f) the state is c_t = f_t c_{t-1} + (1 - f_t) W x_t,
/// number by number and from zeros on, and the output max(0, c_t).
///
/// Parameters: `input_weight` [2 D, D], the rows of W_f before those of W, so that they are one product, and
/// `forget_bias` [D]. The state is float32 (float64 where the weights are), also where products are bf16.
class RecurrentUnitImpl : public torch::nn::Module, public QuantizationAware {
 public:
  /// With random weights: uniform, within sqrt(6 / (rows + columns)) of either matrix; biases are zeros.
  explicit RecurrentUnitImpl(int64_t d_model);

  /// x [B, T, D] -> [B, T, D], in x's type.
  torch::Tensor forward(const torch::Tensor& x);
  /// One position x [N, 1, D] -> [N, 1, D]. `state` [N, D] goes a position further; undefined before the first.
  torch::Tensor step(const torch::Tensor& x, torch::Tensor& state);

 private:
  /// What of the state stays, and what is added to it.
  struct Gates {
    torch::Tensor kept, added;  // [.., D]
  };
  Gates gates(const torch::Tensor& x) const;

  torch::Tensor input_weight_, forget_bias_;
};
TORCH_MODULE(RecurrentUnit);

}  // namespace transformer
