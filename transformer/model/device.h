#pragma once

#include <c10/core/Device.h>

#include <string>

namespace transformer {

/// The device called `name`: "cpu", "cuda" (the first GPU) or "cuda:1". LibTorch's CUDA part is opened only when a GPU
/// is asked for, since it would double a CPU program's memory and start-up time; ask before any other work, because
/// LibTorch decides at its first need whether it has CUDA.
///
/// Throws Error for another name, a LibTorch without CUDA, or a GPU that is not there.
c10::Device open_device(const std::string& name);

}  // namespace transformer
