#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace transformer {

/// The product of sizes that somebody else chose (a file's, a setting's), or nothing where a factor is negative or the
/// product is more than an int64_t holds. A product that overflowed unseen makes a large size small, and what was
/// checked against the small one is then used as the large one. A factor of 0 makes the product 0 only where the
/// others' product could be held: strides of empty tensors exist, too.
template <class Sizes>
std::optional<int64_t> checked_product(const Sizes& sizes) {
  int64_t product = 1;
  bool is_zero = false;
  for (const int64_t size : sizes) {
    if (size < 0 || (size > 0 && __builtin_mul_overflow(product, size, &product))) return std::nullopt;
    is_zero = is_zero || size == 0;
  }
  return is_zero ? 0 : product;
}

/// The same of sizes between braces.
inline std::optional<int64_t> checked_product(std::initializer_list<int64_t> sizes) {
  return checked_product<std::initializer_list<int64_t>>(sizes);
}

}  // namespace transformer
