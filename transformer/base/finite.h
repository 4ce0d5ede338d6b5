#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace transformer {

/// Whether `values`, of any floating-point type and device, hold neither an infinity nor what is not a number.
bool all_finite(const at::Tensor& values);

/// Throws Error unless all of `values`, weight `name` of a model that comes from `origin` (its file), are finite.
void check_finite(const std::string& origin, const std::string& name, const at::Tensor& values);

}  // namespace transformer
