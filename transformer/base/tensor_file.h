#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

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

/// A safetensors file that is read a tensor, or some rows of one, at a time. The file is not trusted: the constructor
/// throws Error naming the file, and the tensor where there is one, when it is missing, cut short, or contradicts
/// itself in any way (sizes, offsets, overlaps, gaps, repeated names, unknown element types).
class TensorReader {
 public:
  struct Entry {
    at::ScalarType type;
    std::vector<int64_t> shape;
    uint64_t begin;  // of its data, in bytes from the start of all data
  };

  explicit TensorReader(const std::filesystem::path& file);
  ~TensorReader();
  TensorReader(TensorReader&&) noexcept;

  const std::map<std::string, Entry>& entries() const;
  const std::map<std::string, std::string>& metadata() const;

  /// A tensor of `entries()`, on the CPU, contiguous. Throws Failure when reading fails midway, and Error where
  /// booleans are neither true nor false.
  at::Tensor read(const std::string& name) const;
  /// `count` rows of the same from `first` on, along its first dimension.
  at::Tensor read_rows(const std::string& name, int64_t first, int64_t count) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// All of a file. Throws what TensorReader throws.
TensorFile read_tensors(const std::filesystem::path& file);

}  // namespace transformer
