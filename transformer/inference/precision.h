#pragma once

namespace transformer {

/// What weights and the activations that meet them are rounded to. In packed matrices sums, normalisation and attention
/// are float32.
enum class Precision {
  float32,
  bf16,
  fp16,  // on GPUs; there are no packed matrices of it
  int8,  // weights scaled by output column, activations by row
};

}  // namespace transformer
