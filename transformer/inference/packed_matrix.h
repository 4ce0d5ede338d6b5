#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "transformer/inference/precision.h"
#include "transformer/kernels/inference_kernels.h"

namespace transformer {

/// The kernel sets that this processor runs, the best first, the portable one last.
std::span<const Kernels* const> available_kernels();

/// Uninitialised memory, aligned for every kernel; large blocks ask for large pages.
template <class T>
class Buffer {
  static_assert(std::is_trivial_v<T>);

 public:
  /// No memory.
  Buffer() = default;
  /// Room for `size` elements.
  explicit Buffer(int64_t size);
  /// Null without memory.
  T* data() { return data_.get(); }
  /// The same, to be read.
  const T* data() const { return data_.get(); }
  /// Elements that there is room for.
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

/// Memory that is handed out piece by piece and freed all at once: the weights of a model, which lie in large pages
/// then, one matrix after the other. With small ones, where every matrix that is not large itself would lie, products
/// that stream through all weights take half as long again.
class WeightMemory {
 public:
  /// Asks for `block` bytes at a time, and for larger pieces by themselves. What is not handed out is never touched,
  /// and takes no memory.
  explicit WeightMemory(int64_t block = int64_t{32} << 20) : block_(block) {}
  /// Uninitialised, aligned for every kernel.
  unsigned char* take(int64_t bytes);

 private:
  int64_t block_;
  std::vector<Buffer<unsigned char>> blocks_;
  unsigned char* next_ = nullptr;
  int64_t left_ = 0;
};

/// Rows of activations [rows, depth], rounded as the matrix they meet wants them. Reused from product to product.
class Activations {
 public:
  /// For matrices of this precision, packed for these kernels.
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

class GatheredMatrix;

/// A weight matrix [N, K] of a linear layer, stored in the order in which products with few rows read it.
class PackedMatrix {
 public:
  /// Outputs are written in whole panels: rows of an output need room for a multiple of this many.
  static constexpr int64_t widest_panel = 64;
  /// The next multiple of widest_panel.
  static int64_t padded(int64_t columns) { return (columns + widest_panel - 1) / widest_panel * widest_panel; }

  /// Products of int8 that a sum of 32 bits has room for, whatever they are and where activations are 0 to 255 on the
  /// way. Every constructor of a deeper matrix in int8 throws Error.
  static constexpr int64_t deepest_int8 = std::numeric_limits<int32_t>::max() / (255 * 127);

  /// Gives rows [count, depth] of a weight, row-major, from `first` on; they are read before the next call.
  using RowSource = std::function<const float*(int64_t first, int64_t count)>;

  /// No matrix: to be assigned to.
  PackedMatrix() = default;
  /// Packs weight [outputs, depth], and `bias` [outputs] where there is one, into `memory`, which the matrix keeps
  /// alive. Rows are asked for in order, some at a time, so that the weight never has to be in memory whole.
  PackedMatrix(const Kernels& kernels, Precision precision, int64_t outputs, int64_t depth, const RowSource& rows,
               const float* bias, std::shared_ptr<WeightMemory> memory);
  /// The same of a weight in memory, into memory of its own.
  PackedMatrix(const Kernels& kernels, Precision precision, const float* weight, int64_t outputs, int64_t depth,
               const float* bias = nullptr);

  /// The form that files have, the same whatever the instruction set: panels of widest_panel columns.
  struct Stored {
    std::span<const unsigned char> panels;  // [stored_panels_bytes], kept as long as the matrix or its copies live
    std::span<const float> scales;          // [outputs], of int8 alone
    std::span<const int32_t> sums;          // [outputs], of int8 alone
  };
  /// Bytes of the panels of a matrix of these sizes.
  static int64_t stored_panels_bytes(Precision precision, int64_t outputs, int64_t depth);
  /// A matrix as it was stored. Where the kernels have panels of that width they read it where it lies (which should be
  /// a multiple of 64 bytes; else, and for other widths, it is copied).
  PackedMatrix(const Kernels& kernels, Precision precision, int64_t outputs, int64_t depth, const Stored& stored,
               const float* bias, std::shared_ptr<WeightMemory> memory);
  /// The panels as they are stored, whole.
  std::vector<unsigned char> stored_panels() const;
  /// What int8's columns are multiplied by, [outputs]; empty in other precisions.
  std::span<const float> scales() const { return {scales_, scales_ ? static_cast<size_t>(outputs_) : 0}; }
  /// Sums of int8's columns over the depth, [outputs]; empty in other precisions.
  std::span<const int32_t> sums() const { return {sums_, sums_ ? static_cast<size_t>(outputs_) : 0}; }

  /// That the weights were rounded to.
  Precision precision() const { return precision_; }
  /// N, columns of a product.
  int64_t outputs() const { return outputs_; }
  /// K, inputs of the layer.
  int64_t depth() const { return depth_; }
  /// Of panels, biases, scales and sums.
  size_t bytes() const;

  /// y [rows, outputs] = a W^T + bias, then max(0, .) with `relu`. Rows of y lie `stride` >= padded(outputs) apart.
  /// A row's result depends on that row alone.
  void multiply(const Activations& a, float* y, int64_t stride, bool relu = false) const;

  /// Gathers a W^T + bias row by row; `selections` are one a row. Where they are to be `kept`, the logits are in
  /// `scratch` afterwards, rows padded(outputs) apart.
  void select(const Activations& a, int64_t allowed, std::span<Selection> selections, Buffer<float>& scratch,
              bool kept = false) const;

  /// Row `output` of the weights as stored, times `scale`, without the bias: [depth]. An embedding.
  void row(int64_t output, float scale, float* values) const;

 private:
  int64_t panels() const { return (outputs_ + kernels_->columns - 1) / kernels_->columns; }
  const unsigned char* panel(int64_t index) const { return panels_ + index * panel_bytes_; }
  /// Of these sizes, without its panels and numbers.
  PackedMatrix(const Kernels& kernels, Precision precision, int64_t outputs, int64_t depth,
               std::shared_ptr<WeightMemory> memory);
  /// Room for the numbers of each column.
  void take_numbers(const float* bias);
  /// Packs `used` rows of weights as the columns of a panel, into `to`.
  void pack(int64_t index, const float* rows, int64_t used, std::vector<unsigned char>& scratch, unsigned char* to);
  /// One panel for `rows` rows of a from `first` on.
  void product(const Activations& a, int64_t first, int64_t rows, int64_t index, const PanelOutput& output) const;
  /// So many rows that what they read stays in the cache while all panels pass.
  int64_t block_rows(const Activations& a) const;

  const Kernels* kernels_ = nullptr;
  Precision precision_ = Precision::float32;
  int64_t outputs_ = 0, depth_ = 0;
  int64_t groups_ = 0;  // of 4 bytes along the depth
  int64_t panel_bytes_ = 0;
  std::shared_ptr<WeightMemory> memory_;  // of what follows
  const unsigned char* panels_ = nullptr;
  friend class GatheredMatrix;
  float *bias_ = nullptr, *scales_ = nullptr;  // whole panels of them; null: none
  int32_t* sums_ = nullptr;
};

/// Some outputs of a PackedMatrix side by side, in slots: products with fewer columns, which give what the whole
/// matrix gives in them, to the last bit.
class GatheredMatrix {
 public:
  /// `all` must outlive it.
  explicit GatheredMatrix(const PackedMatrix& all) : all_(all) {}

  /// Whoever needs an output says so, and says when it no longer does. An output's slot is the same as long as somebody
  /// needs it.
  void need(std::span<const int32_t> outputs);
  /// Takes back one `need` of each of these.
  void release(std::span<const int32_t> outputs);
  /// Nobody needs any output any more.
  void clear();

  /// The column of `matrix` that an output lies in which somebody needs; -1 where it lies in none.
  int64_t slot(int32_t output) const { return slots_[static_cast<size_t>(output)]; }
  /// Of slots, used or not: the columns of `matrix`.
  int64_t size() const { return std::ssize(users_); }
  /// To be multiplied with. It changes with the next `need`.
  const PackedMatrix& matrix() const { return matrix_; }

 private:
  void grow(int64_t slots);
  void copy(int32_t output, int64_t slot);

  const PackedMatrix& all_;
  PackedMatrix matrix_;
  Buffer<unsigned char> memory_;
  unsigned char* panels_ = nullptr;
  std::vector<int64_t> slots_;       // of every output; -1: in none
  std::vector<int64_t> users_;       // of every slot
  std::vector<int32_t> outputs_;     // in every slot
  std::vector<int64_t> free_slots_;  // that nobody needs, or that are needed again by whoever they are held for
  std::vector<bool> listed_;         // of every slot: whether it is among these
};

}  // namespace transformer
