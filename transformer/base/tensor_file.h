#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

namespace transformer {

/// Named tensors, in the order of their names.
using TensorMap = std::map<std::string, at::Tensor>;

/// What a safetensors file holds.
struct TensorFile {
  TensorMap tensors;                            // on the CPU, contiguous
  std::map<std::string, std::string> metadata;  // free text that the writer added
};

/// Writes `tensors` as a safetensors file, which Python's `safetensors` and any other reader opens. The file appears
/// whole or not at all. Element types: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool.
/// Tensors of any layout and on any device are written in row-major order.
/// Throws Failure naming the file and the reason when it cannot be written (full disk, missing folder).
void write_tensors(const std::filesystem::path& file, const TensorMap& tensors,
                   const std::map<std::string, std::string>& metadata = {});

/// Reads a safetensors file. The file is not trusted: throws Error naming the file, and the tensor where there is one,
/// when it is missing, cut short, or contradicts itself in any way (sizes, offsets, overlaps, gaps, repeated names,
/// unknown element types). Throws Failure when reading fails midway.
TensorFile read_tensors(const std::filesystem::path& file);

}  // namespace transformer
