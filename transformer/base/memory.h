#pragma once

#include <exception>

namespace transformer {

/// Whether an exception says that memory ran out, on the CPU or on a GPU: std::bad_alloc, or what LibTorch throws.
bool is_out_of_memory(const std::exception& error);

}  // namespace transformer
