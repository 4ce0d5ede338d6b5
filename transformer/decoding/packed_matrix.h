#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "transformer/decoding/kernels.h"

namespace transformer {

/// The kernel sets that this processor runs, the best first, the portable one last.
std::span<const Kernels* const> available_kernels();

/// What weights and the activations that meet them are rounded to. Sums, normalisation and attention are float32.
enum class Precision {
  float32,
  bf16,
  int8,  // weights scaled by output column, activations by row
};

/// Uninitialised memory, aligned for every kernel; large blocks ask for large pages, which a product that streams
/// through all weights wants.
template <class T>
class Buffer {
  static_assert(std::is_trivial_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(int64_t size);
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  /// Room for `size`; what was there is lost when it has to grow.
  void reserve(int64_t size) {
    if (size > size_) *this = Buffer(size + size / 4);
  }

 private:
  struct Free {
    void operator()(T* memory) const;
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

/// Rows of activations [rows, depth], rounded as the matrix they meet wants them. Reused from product to product.
class Activations {
 public:
  Activations(const Kernels& kernels, Precision precision) : kernels_(kernels), precision_(precision) {}

  /// Takes up x, whose rows lie `stride` apart. In float32 nothing is copied: x has to stay.
  void set(const float* x, int64_t rows, int64_t depth, int64_t stride);

 private:
  friend class PackedMatrix;
  const Kernels& kernels_;
  Precision precision_;
  int64_t rows_ = 0, depth_ = 0;
  const void* data_ = nullptr;
  int64_t stride_bytes_ = 0;
  Buffer<unsigned char> rounded_;
  Buffer<float> scales_;
};

/// A weight matrix [N, K] of a linear layer, stored in the order in which products with few rows read it.
class PackedMatrix {
 public:
  /// Outputs are written in whole panels: rows of an output need room for a multiple of this many.
  static constexpr int64_t widest_panel = 64;
  static int64_t padded(int64_t columns) { return (columns + widest_panel - 1) / widest_panel * widest_panel; }

  PackedMatrix() = default;
  /// Packs weight [outputs, depth], row-major, and `bias` [outputs] where there is one.
  PackedMatrix(const Kernels& kernels, Precision precision, const float* weight, int64_t outputs, int64_t depth,
               const float* bias = nullptr);

  int64_t outputs() const { return outputs_; }
  int64_t depth() const { return depth_; }
  size_t bytes() const;

  /// y [rows, outputs] = a W^T + bias, then max(0, .) with `relu`. Rows of y lie `stride` >= padded(outputs) apart.
  /// A row's result depends on that row alone.
  void multiply(const Activations& a, float* y, int64_t stride, bool relu = false) const;

  /// Gathers a W^T row by row without storing it; `selections` are one a row, made by `select_from`.
  void select(const Activations& a, int64_t allowed, std::span<Selection> selections, Buffer<float>& scratch) const;

  /// Row `output` of the weights as stored, times `scale`: [depth]. An embedding.
  void row(int64_t output, float scale, float* values) const;

 private:
  const unsigned char* panel(int64_t index) const { return panels_.data() + index * panel_bytes_; }
  /// One panel for `rows` rows of a from `first` on.
  void product(const Activations& a, int64_t first, int64_t rows, int64_t index, const PanelOutput& output) const;
  /// So many rows that what they read stays in the cache while all panels pass.
  int64_t block_rows(const Activations& a) const;

  const Kernels* kernels_ = nullptr;
  Precision precision_ = Precision::float32;
  int64_t outputs_ = 0, depth_ = 0;
  int64_t groups_ = 0;  // of 4 bytes along the depth
  int64_t panel_bytes_ = 0;
  Buffer<unsigned char> panels_;
  std::vector<float> bias_, scales_;  // whole panels of them; empty: none
  std::vector<int32_t> sums_;
};

}  // namespace transformer
