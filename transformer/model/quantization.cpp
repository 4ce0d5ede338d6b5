#include "transformer/model/quantization.h"

#include <torch/csrc/autograd/custom_function.h>

namespace transformer {
namespace {

using torch::Tensor;

class RoundedToInt8 : public torch::autograd::Function<RoundedToInt8> {
 public:
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) {
    const auto numbers = x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
    constexpr double least = 1e-30;  // up to it decoding takes a row for zeros
    const auto largest = numbers.abs().amax(-1, /*keepdim=*/true);
    const auto scale = largest.clamp_min(least) / 127;
    return (numbers / scale).round_().mul_(scale.masked_fill(largest <= least, 0));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& upstream) {
    return {upstream[0]};
  }
};

}  // namespace

Tensor rounded_to_int8(const Tensor& x) {
  return RoundedToInt8::apply(x);
}

}  // namespace transformer
