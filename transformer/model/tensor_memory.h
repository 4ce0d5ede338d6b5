#pragma once

#include <cstdint>
#include <exception>
#include <functional>

namespace transformer {

/// Whether an exception says that memory ran out, on the CPU or on a GPU: std::bad_alloc, or what LibTorch throws.
bool is_out_of_memory(const std::exception& error);

/// The most bytes of CPU tensors at once that `work` allocates, on this thread and in the backward passes it starts,
/// besides those that exist before. Exact, and the same every time; buffers of LibTorch's libraries are not counted.
int64_t peak_tensor_bytes(const std::function<void()>& work);

}  // namespace transformer
