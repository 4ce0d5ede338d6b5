#pragma once

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

/// As options and files name it: "float32".
const char* precision_name(Precision precision);
/// Nothing where there is none of this name.
std::optional<Precision> precision_named(std::string_view name);

}  // namespace transformer
