#include "transformer/base/finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "transformer/base/error.h"

namespace transformer {

bool all_finite(std::span<const float> values) {
  // As integers, whose largest is found a vector at a time: weights are looked at whenever a model is loaded.
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  return largest < 0x7f800000u;
}

void refuse_not_finite(const std::string& origin, const std::string& name) {
  throw Error(origin, fmt::format("the model is damaged: '{}' holds numbers that are not finite", name),
              "it comes from a run that diverged, or was written wrongly; use an earlier checkpoint or another copy");
}

}  // namespace transformer
