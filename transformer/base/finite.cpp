#include "transformer/base/finite.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "transformer/base/error.h"

namespace transformer {

bool all_finite(const at::Tensor& values) {
  if (values.is_cpu() && values.scalar_type() == at::kFloat && values.is_contiguous()) {
    // As integers, whose largest is found a vector at a time: weights are looked at whenever a model is loaded.
    const auto* numbers = values.const_data_ptr<float>();
    uint32_t largest = 0;
    for (int64_t i = 0; i < values.numel(); ++i) {
      largest = std::max(largest, std::bit_cast<uint32_t>(numbers[i]) & 0x7fffffffu);
    }
    return largest < 0x7f800000u;
  }
  // A sum of finite float32 numbers does not leave float64's, and one of others does not come back.
  return std::isfinite(values.detach().to(at::kDouble).abs().sum().item<double>());
}

void check_finite(const std::string& origin, const std::string& name, const at::Tensor& values) {
  if (all_finite(values)) return;
  throw Error(origin, fmt::format("the model is damaged: '{}' holds numbers that are not finite", name),
              "it comes from a run that diverged, or was written wrongly; use an earlier checkpoint or another copy");
}

}  // namespace transformer
