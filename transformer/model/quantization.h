#pragma once

#include <torch/types.h>

namespace transformer {

/// x [.., K] with every row rounded as decoding in int8 rounds it: to whole multiples, from -127 to 127, of the row's
/// largest magnitude / 127, and to zeros where that magnitude is 1e-30 or less; but for ties, which decoding,
/// multiplying where this divides, may break otherwise. Gradients pass straight through, as if nothing had been rounded
/// (Bengio, Léonard and Courville 2013). float32 or float64 comes back as it came, other types as float32. Rows with
/// numbers that are none become NaN.
torch::Tensor rounded_to_int8(const torch::Tensor& x);

/// A module whose products are, in training, made of rounded factors where it is told so: quantization-aware training,
/// after which decoding in int8 computes what was trained.
class QuantizationAware {
 public:
  virtual ~QuantizationAware() = default;
  /// Whether factors are rounded from now on; not unless this is called.
  void set_quantization(bool on) { quantized_ = on; }

 protected:
  QuantizationAware() = default;
  /// Whether they are rounded.
  bool quantized() const { return quantized_; }
  /// x [.., K] as it is, or rounded_to_int8, in x's type, where factors are rounded and the module `trains`.
  torch::Tensor factor(const torch::Tensor& x, bool trains) const {
    return quantized_ && trains ? rounded_to_int8(x).to(x.scalar_type()) : x;
  }
  /// x W^T + bias of such factors: x [.., K], weight [N, K], bias [N] or undefined -> [.., N].
  torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                       bool trains) const {
    return torch::linear(factor(x, trains), factor(weight, trains), bias);
  }

 private:
  bool quantized_ = false;
};

}  // namespace transformer
