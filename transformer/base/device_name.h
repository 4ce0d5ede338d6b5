#pragma once

#include <optional>
#include <string>

namespace transformer {

/// The GPU that `device` names: 0 for "cuda", 1 for "cuda:1"; none for "cpu". Throws Error for another name. Whether it
/// is there is not asked.
std::optional<int> gpu_of(const std::string& device);

}  // namespace transformer
