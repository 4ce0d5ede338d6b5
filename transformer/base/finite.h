#pragma once

#include <span>
#include <string>

namespace transformer {

/// Whether `values` hold neither an infinity nor what is not a number.
bool all_finite(std::span<const float> values);

/// Throws Error: weight `name` of a model that comes from `origin` (its file) holds numbers that are not finite.
[[noreturn]] void refuse_not_finite(const std::string& origin, const std::string& name);

}  // namespace transformer
