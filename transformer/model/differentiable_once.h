#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

namespace transformer {

/// To be called by a backward pass that is no graph itself: throws where derivatives of derivatives are asked for,
/// which would be wrong without a word. `instead` says what has them.
inline void require_first_derivative(const char* what, const char* instead) {
  TORCH_CHECK(!at::GradMode::is_enabled(), what, " no derivatives of derivatives; ", instead);
}

}  // namespace transformer
