#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace transformer {

/// The element types of safetensors files that are read and written.
enum class ElementType {
  float64,   // F64 in the file
  float32,   // F32
  float16,   // F16
  bfloat16,  // BF16: the upper half of a float32
  int64,     // I64
  int32,     // I32
  int16,     // I16
  int8,      // I8
  uint8,     // U8
  boolean    // BOOL: a byte each, 0 or 1
};

/// Bytes of an element.
int64_t element_size(ElementType type);
/// As messages name it: "float32".
const char* element_name(ElementType type);
/// Whether to_float takes it.
bool is_floating_point(ElementType type);

/// `count` elements of a floating-point type as float32: rounded to nearest, even, from float64. Throws
/// std::invalid_argument for other types.
void to_float(ElementType type, const void* elements, int64_t count, float* numbers);

/// A tensor to be written: `data`, called when it is its turn, gives its elements in row-major order; they are used
/// before the next call.
struct TensorSource {
  ElementType type = ElementType::float32;  // as it is written; nothing is converted
  std::vector<int64_t> shape;               // empty: a single number
  std::function<const void*()> data;        // at least as many elements as `shape` holds
};

/// Writes `tensors` as a safetensors file, which Python's `safetensors` and any other reader opens. Those that fill
/// whole lines of 64 bytes lie at multiples of 64, for whoever maps the file. It appears whole or not at all. Throws
/// Failure naming the file and the reason when it cannot be written (full disk, missing folder).
void write_tensor_file(const std::filesystem::path& file, const std::map<std::string, TensorSource>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// A safetensors file that is read a tensor, or some rows of one, at a time. The file is not trusted: the constructor
/// throws Error naming the file, and the tensor where there is one, when it is missing, cut short, or contradicts
/// itself in any way (sizes, offsets, overlaps, gaps, repeated names, unknown element types).
class TensorReader {
 public:
  /// A tensor of the file.
  struct Entry {
    ElementType type;            // of the file, which may be none that is computed in
    std::vector<int64_t> shape;  // empty: a single number
    uint64_t begin;              // of its data, in bytes from the start of all data

    /// The product of `shape`; 1 of a single number.
    int64_t elements() const;
    /// Of its data, which has no gaps.
    int64_t bytes() const { return elements() * element_size(type); }
  };

  /// Opens the file and checks its header.
  explicit TensorReader(const std::filesystem::path& file);
  ~TensorReader();
  TensorReader(TensorReader&&) noexcept;

  /// All tensors by their names.
  const std::map<std::string, Entry>& entries() const;
  /// Where all data starts, in bytes: for whoever maps the file.
  uint64_t data_begin() const;
  /// Where the file ends, in bytes.
  uint64_t file_bytes() const;
  /// Texts that the writer added, by their keys.
  const std::map<std::string, std::string>& metadata() const;

  /// The elements of a tensor of `entries()`, in row-major order, into data [bytes()]. Throws Failure when reading
  /// fails midway, and Error where booleans are neither true nor false.
  void read(const std::string& name, void* data) const;
  /// `count` rows of the same from `first` on, along its first dimension. Throws std::invalid_argument for rows
  /// that it has not.
  void read_rows(const std::string& name, int64_t first, int64_t count, void* data) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// What the writer of a safetensors file said of `key`; empty where it said nothing, or `file` is none. Throws nothing
/// for a damaged file.
std::string metadata_of(const std::filesystem::path& file, const std::string& key);

}  // namespace transformer
