#pragma once

#include <cstdint>

namespace transformer {

/// bfloat16 in memory: the upper half of a float32.
struct Bf16 {
  uint16_t bits;  // sign, 8 of exponent, 7 of fraction
};

}  // namespace transformer
