#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <string>

namespace transformer {

/// The device called `name`: "cpu", "cuda" (the first GPU) or "cuda:1". LibTorch's CUDA part is opened only when a GPU
/// is asked for, since it would double a CPU program's memory and start-up time; ask before any other work, because
/// LibTorch decides at its first need whether it has CUDA.
///
/// A GPU becomes the current one of the calling thread, so that what names no GPU goes there too. LibTorch's attention
/// is told to do without cuDNN's, which makes a plan for every shape: batches of text have a new one each.
///
/// Throws Error for another name, a LibTorch without CUDA, or a GPU that is not there.
c10::Device open_device(const std::string& name);

/// How many GPUs this process sees, where `name` asks for one; 0 for "cpu". Throws Error as open_device does where
/// there is none; none is touched.
int visible_gpus(const std::string& name);

/// The folder of the LibTorch that this program runs with; empty where it is linked statically.
std::filesystem::path torch_folder();

/// What tells a GPU from all others of all machines: its UUID. Empty for a CPU, and where the driver does not say.
std::string gpu_identity(const c10::Device& device);

/// Whether the device multiplies bfloat16 by itself: a CPU with AVX-512 BF16, a GPU from Ampere on.
bool multiplies_bf16(const c10::Device& device);

}  // namespace transformer
