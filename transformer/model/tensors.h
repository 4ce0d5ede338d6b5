#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

namespace transformer {

/// Named tensors, in the order of their names.
using TensorMap = std::map<std::string, at::Tensor>;

/// What a safetensors file holds.
struct TensorFile {
  TensorMap tensors;                            // on the CPU, contiguous
  std::map<std::string, std::string> metadata;  // free text that the writer added
};

/// Writes `tensors` as write_tensor_file (base/tensor_file.h) does, in row-major order, whatever their layout and
/// device. Throws std::invalid_argument for a tensor that is undefined, sparse, or of a type that is not written.
void write_tensors(const std::filesystem::path& file, const TensorMap& tensors,
                   const std::map<std::string, std::string>& metadata = {});

/// All of a file. Throws what TensorReader throws.
TensorFile read_tensors(const std::filesystem::path& file);

/// `ids`, row after row, as a tensor [rows, columns] of int64.
at::Tensor id_tensor(int64_t rows, int64_t columns, std::span<const int64_t> ids);

/// Whether `values`, of any floating-point type and device, hold neither an infinity nor what is not a number.
bool all_finite(const at::Tensor& values);

/// Throws Error unless all of `values`, weight `name` of a model that comes from `origin` (its file), are finite.
void check_finite(const std::string& origin, const std::string& name, const at::Tensor& values);

}  // namespace transformer
