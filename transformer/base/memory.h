#pragma once

#include <cstdint>
#include <exception>
#include <functional>

namespace transformer {

/// Whether an exception says that memory ran out, on the CPU or on a GPU: std::bad_alloc, or what LibTorch throws.
bool is_out_of_memory(const std::exception& error);

/// Bytes of this process in the machine's memory: now, and at most since the last reset. Resetting may be forbidden (in
/// some containers); the peak is then that of the process's whole life.
int64_t resident_bytes();
int64_t peak_resident_bytes();
void reset_peak_resident_bytes();

/// Bytes of this process's address space, whether memory lies behind them or not.
int64_t address_bytes();

/// The most bytes of CPU tensors at once that `work` allocates, on this thread and in the backward passes it starts,
/// besides those that exist before. Exact, and the same every time; buffers of LibTorch's libraries are not counted.
int64_t peak_tensor_bytes(const std::function<void()>& work);

/// Bytes that this process can still take: what the machine has free or could free, within the limits of its control
/// group and of RLIMIT_AS.
int64_t available_bytes();

}  // namespace transformer
