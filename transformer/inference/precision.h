#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace transformer {

/// What weights and the activations that meet them are rounded to. In packed matrices sums, normalisation and attention
/// are float32.
enum class Precision {
  float32,  // as weights are trained
  bf16,     // the upper half of a float32
  fp16,     // on GPUs; there are no packed matrices of it
  int8,     // weights scaled by output column, activations by row
};

/// Bytes of a packed matrix's number.
constexpr int64_t weight_bytes(Precision precision) {
  return precision == Precision::float32 ? 4 : precision == Precision::int8 ? 1 : 2;
}
/// Bytes of a number that attention reads, a key's or a value's, which is bf16 wherever it is not float32.
constexpr int64_t attended_bytes(Precision precision) {
  return precision == Precision::float32 ? 4 : 2;
}

/// As options and files name it: "float32".
const char* precision_name(Precision precision);
/// Nothing where there is none of this name.
std::optional<Precision> precision_named(std::string_view name);

}  // namespace transformer
