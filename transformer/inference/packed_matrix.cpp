#include "transformer/inference/packed_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "transformer/base/error.h"
#include "transformer/kernels/instruction_sets.h"

namespace transformer {

namespace {

constexpr size_t large_page = size_t{2} << 20;

/// Of 4 bytes along the depth.
int64_t groups_of(Precision precision, int64_t depth) {
  const int64_t per_group = 4 / weight_bytes(precision);
  return (depth + per_group - 1) / per_group;
}

float bf16_value(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

std::span<const Kernels* const> available_kernels() {
  // Never destroyed: workers may still be at theirs while the process ends.
  static const auto& kernels = *new auto(runnable_kernels(&InstructionSet::inference));
  return kernels;
}

template <class T>
Buffer<T>::Buffer(int64_t size) : size_(size) {
  const size_t bytes = std::max(static_cast<size_t>(size) * sizeof(T), size_t{1});
  const size_t alignment = bytes >= large_page ? large_page : 64;
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;  // the last page can be a large one, too
  auto* memory = static_cast<T*>(std::aligned_alloc(alignment, whole));
  if (!memory) throw std::bad_alloc();
  data_.reset(memory);
#if defined(__linux__)
  if (bytes >= large_page) madvise(memory, whole, MADV_HUGEPAGE);
#endif
}

template <class T>
void Buffer<T>::Free::operator()(T* memory) const {
  std::free(memory);
}

template class Buffer<float>;
template class Buffer<unsigned char>;

unsigned char* WeightMemory::take(int64_t bytes) {
  constexpr int64_t alignment = 64;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  if (bytes > left_) {
    blocks_.emplace_back(std::max(bytes, block_));
    if (bytes >= block_) return blocks_.back().data();
    next_ = blocks_.back().data();
    left_ = block_;
  }
  auto* taken = next_;
  next_ += bytes;
  left_ -= bytes;
  return taken;
}

void Activations::set(const float* x, int64_t rows, int64_t depth, int64_t stride) {
  rows_ = rows;
  depth_ = depth;
  if (precision_ == Precision::float32) {
    data_ = x;
    stride_bytes_ = stride * static_cast<int64_t>(sizeof(float));
    return;
  }
  // Whole cache lines, whose ends meet weights of 0.
  stride_bytes_ = (depth * weight_bytes(precision_) + 63) / 64 * 64;
  rounded_.reserve(rows * stride_bytes_);
  data_ = rounded_.data();
  const bool int8 = precision_ == Precision::int8;
  if (int8) scales_.reserve(rows);
  for (int64_t row = 0; row < rows; ++row) {
    unsigned char* to = rounded_.data() + row * stride_bytes_;
    if (int8) {
      scales_.data()[row] = kernels_.to_int8(x + row * stride, depth, to);
      std::memset(to + depth, 0, static_cast<size_t>(stride_bytes_ - depth));
    } else {
      kernels_.to_bf16(x + row * stride, depth, reinterpret_cast<uint16_t*>(to));
      std::memset(to + 2 * depth, 0, static_cast<size_t>(stride_bytes_ - 2 * depth));
    }
  }
}

void PackedMatrix::take_numbers(const float* bias) {
  const int64_t padded = panels() * kernels_->columns;
  const auto numbers = [&]<class T>(T*& array) {
    array = reinterpret_cast<T*>(memory_->take(padded * static_cast<int64_t>(sizeof(T))));
    std::fill(array, array + padded, T{0});
  };
  if (bias) {
    numbers(bias_);
    std::copy(bias, bias + outputs_, bias_);
  }
  if (precision_ == Precision::int8) {
    numbers(scales_);
    numbers(sums_);
  }
}

PackedMatrix::PackedMatrix(const Kernels& kernels, Precision precision, int64_t outputs, int64_t depth,
                           std::shared_ptr<WeightMemory> memory)
    : kernels_(&kernels),
      precision_(precision),
      outputs_(outputs),
      depth_(depth),
      groups_(groups_of(precision, depth)),
      panel_bytes_(groups_ * kernels.columns * 4),
      memory_(std::move(memory)) {
  if (precision == Precision::int8 && depth > deepest_int8) {
    throw Error(
        "precision",
        fmt::format("int8 adds {} products at most, and a matrix of this model is {} deep", deepest_int8, depth),
        "use bf16 or float32");
  }
}

PackedMatrix::PackedMatrix(const Kernels& kernels, Precision precision, int64_t outputs, int64_t depth,
                           const RowSource& rows, const float* bias, std::shared_ptr<WeightMemory> memory)
    : PackedMatrix(kernels, precision, outputs, depth, std::move(memory)) {
  const int64_t columns = kernels.columns;
  unsigned char* const to = memory_->take(panels() * panel_bytes_);
  panels_ = to;
  take_numbers(bias);
  constexpr int64_t bytes_at_once = int64_t{1} << 20;
  const int64_t panel_floats = std::max<int64_t>(depth * columns, 1) * static_cast<int64_t>(sizeof(float));
  const int64_t some = std::max<int64_t>(1, bytes_at_once / panel_floats) * columns;
  std::vector<unsigned char> scratch(static_cast<size_t>(panel_bytes_));
  for (int64_t first = 0; first < outputs; first += some) {
    const int64_t end = std::min(first + some, outputs);
    const float* weight = rows(first, end - first);
    for (int64_t row = first; row < end; row += columns) {
      pack(row / columns, weight + (row - first) * depth, std::min(columns, end - row), scratch,
           to + row / columns * panel_bytes_);
    }
  }
}

PackedMatrix::PackedMatrix(const Kernels& kernels, Precision precision, const float* weight, int64_t outputs,
                           int64_t depth, const float* bias)
    : PackedMatrix(
          kernels, precision, outputs, depth, [&](int64_t first, int64_t) { return weight + first * depth; }, bias,
          std::make_shared<WeightMemory>(1)) {}

int64_t PackedMatrix::stored_panels_bytes(Precision precision, int64_t outputs, int64_t depth) {
  return padded(outputs) * groups_of(precision, depth) * 4;
}

PackedMatrix::PackedMatrix(const Kernels& kernels, Precision precision, int64_t outputs, int64_t depth,
                           const Stored& stored, const float* bias, std::shared_ptr<WeightMemory> memory)
    : PackedMatrix(kernels, precision, outputs, depth, std::move(memory)) {
  if (static_cast<int64_t>(stored.panels.size()) != stored_panels_bytes(precision, outputs, depth)) {
    throw std::invalid_argument("PackedMatrix: stored panels of another size");
  }
  const int64_t columns = kernels.columns;
  if (columns == widest_panel && reinterpret_cast<uintptr_t>(stored.panels.data()) % 64 == 0) {
    panels_ = stored.panels.data();
  } else {
    unsigned char* const to = memory_->take(panels() * panel_bytes_);
    for (int64_t first = 0; first < outputs_; first += columns) {
      const unsigned char* from = stored.panels.data() + first / widest_panel * groups_ * widest_panel * 4;
      for (int64_t group = 0; group < groups_; ++group) {
        std::memcpy(to + first / columns * panel_bytes_ + group * columns * 4,
                    from + (group * widest_panel + first % widest_panel) * 4, static_cast<size_t>(columns * 4));
      }
    }
    panels_ = to;
  }
  take_numbers(bias);
  if (precision == Precision::int8) {
    std::copy_n(stored.scales.data(), outputs, scales_);
    std::copy_n(stored.sums.data(), outputs, sums_);
  }
}

std::vector<unsigned char> PackedMatrix::stored_panels() const {
  const int64_t columns = kernels_->columns;
  std::vector<unsigned char> stored(static_cast<size_t>(stored_panels_bytes(precision_, outputs_, depth_)));
  for (int64_t first = 0; first < outputs_; first += columns) {
    unsigned char* to = stored.data() + first / widest_panel * groups_ * widest_panel * 4;
    for (int64_t group = 0; group < groups_; ++group) {
      std::memcpy(to + (group * widest_panel + first % widest_panel) * 4, panel(first / columns) + group * columns * 4,
                  static_cast<size_t>(columns * 4));
    }
  }
  return stored;
}

void PackedMatrix::pack(int64_t index, const float* rows, int64_t used, std::vector<unsigned char>& scratch,
                        unsigned char* panel_data) {
  const int64_t columns = kernels_->columns, line_bytes = groups_ * 4;
  std::fill(scratch.begin(), scratch.end(), static_cast<unsigned char>(0));
  // The panel's columns, one by one.
  for (int64_t column = 0; column < used; ++column) {
    const float* from = rows + column * depth_;
    unsigned char* line = scratch.data() + column * line_bytes;
    if (precision_ == Precision::float32) {
      std::memcpy(line, from, static_cast<size_t>(depth_) * sizeof(float));
    } else if (precision_ == Precision::bf16) {
      kernels_->to_bf16(from, depth_, reinterpret_cast<uint16_t*>(line));
    } else {
      scales_[index * columns + column] = kernels_->to_int8(from, depth_, line);
      int32_t sum = 0;
      for (int64_t k = 0; k < depth_; ++k) {
        const int value = line[k] - 128;
        sum += value;
        line[k] = static_cast<unsigned char>(value);
      }
      sums_[index * columns + column] = sum;
    }
  }
  auto* to = reinterpret_cast<uint32_t*>(panel_data);
  const auto* from = reinterpret_cast<const uint32_t*>(scratch.data());
  // In blocks of a cache line of every column.
  for (int64_t group = 0; group < groups_; group += 16) {
    const int64_t end = std::min(group + 16, groups_);
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t g = group; g < end; ++g) to[g * columns + column] = from[column * groups_ + g];
    }
  }
}

size_t PackedMatrix::bytes() const {
  const int64_t numbers = (bias_ ? 1 : 0) + (scales_ ? 1 : 0) + (sums_ ? 1 : 0);
  return static_cast<size_t>(panels() * (panel_bytes_ + numbers * kernels_->columns * 4));
}

void PackedMatrix::product(const Activations& a, int64_t first, int64_t rows, int64_t index,
                           const PanelOutput& output) const {
  const auto* data = static_cast<const unsigned char*>(a.data_) + first * a.stride_bytes_;
  const int64_t column = index * kernels_->columns;
  switch (precision_) {
    case Precision::float32:
      kernels_->product_float(data, a.stride_bytes_, rows, groups_, panel(index), output);
      break;
    case Precision::bf16:
      kernels_->product_bf16(data, a.stride_bytes_, rows, groups_, panel(index), output);
      break;
    case Precision::int8:
      kernels_->product_int8(data, a.stride_bytes_, rows, groups_, panel(index),
                             {a.scales_.data() + first, scales_ + column, sums_ + column}, output);
      break;
    case Precision::fp16:
      throw std::logic_error("there are no packed matrices of fp16");
  }
}

int64_t PackedMatrix::block_rows(const Activations& a) const {
  constexpr int64_t cached_bytes = 384 << 10;
  return std::clamp<int64_t>(cached_bytes / std::max<int64_t>(a.stride_bytes_, 1) / 12 * 12, 24, 192);
}

void PackedMatrix::multiply(const Activations& a, float* y, int64_t stride, bool relu) const {
  const int64_t columns = kernels_->columns, block = block_rows(a);
  for (int64_t first = 0; first < a.rows_; first += block) {
    const int64_t rows = std::min(block, a.rows_ - first);
    for (int64_t index = 0; index < panels(); ++index) {
      const int64_t column = index * columns;
      product(a, first, rows, index, {bias_ ? bias_ + column : nullptr, relu, y + first * stride + column, stride});
    }
  }
}

void PackedMatrix::select(const Activations& a, int64_t allowed, std::span<Selection> selections,
                          Buffer<float>& scratch, bool kept) const {
  const int64_t columns = kernels_->columns, block = block_rows(a), stride = kept ? padded(outputs_) : columns;
  scratch.reserve(kept ? a.rows_ * stride : block * columns);
  for (int64_t first = 0; first < a.rows_; first += block) {
    const int64_t rows = std::min(block, a.rows_ - first);
    for (int64_t index = 0; index < panels(); ++index) {
      const int64_t column = index * columns;
      float* logits = kept ? scratch.data() + first * stride + column : scratch.data();
      product(a, first, rows, index, {bias_ ? bias_ + column : nullptr, false, logits, stride});
      for (int64_t row = 0; row < rows; ++row) {
        kernels_->select(logits + row * stride, std::min(columns, outputs_ - column), static_cast<int32_t>(column),
                         static_cast<int32_t>(allowed), selections[first + row]);
      }
    }
  }
}

void PackedMatrix::row(int64_t output, float scale, float* values) const {
  const int64_t columns = kernels_->columns, bytes = weight_bytes(precision_), per_group = 4 / bytes;
  const unsigned char* from = panel(output / columns) + output % columns * 4;
  const float factor = precision_ == Precision::int8 ? scales_[output] * scale : scale;
  for (int64_t k = 0; k < depth_; ++k) {
    const unsigned char* element = from + k / per_group * columns * 4 + k % per_group * bytes;
    if (precision_ == Precision::float32) {
      float value;
      std::memcpy(&value, element, sizeof value);
      values[k] = value * factor;
    } else if (precision_ == Precision::bf16) {
      uint16_t half;
      std::memcpy(&half, element, sizeof half);
      values[k] = bf16_value(half) * factor;
    } else {
      values[k] = static_cast<float>(static_cast<int8_t>(*element)) * factor;
    }
  }
}

void GatheredMatrix::need(std::span<const int32_t> outputs) {
  if (slots_.empty()) slots_.assign(static_cast<size_t>(all_.outputs()), -1);
  for (const int32_t output : outputs) {
    auto& slot = slots_[static_cast<size_t>(output)];
    if (slot < 0) {
      // Some are needed again by whom they are held for.
      while (!free_slots_.empty() && users_[static_cast<size_t>(free_slots_.back())] > 0) {
        listed_[static_cast<size_t>(free_slots_.back())] = false;
        free_slots_.pop_back();
      }
      if (free_slots_.empty()) {
        // Half as many again, in whole panels: growing copies all of them.
        const int64_t before = size();
        grow(PackedMatrix::padded(std::max<int64_t>(before + before / 2, std::ssize(outputs))));
        for (int64_t i = size(); i-- > before;) {
          free_slots_.push_back(i);
          listed_[static_cast<size_t>(i)] = true;
        }
      }
      slot = free_slots_.back();
      free_slots_.pop_back();
      listed_[static_cast<size_t>(slot)] = false;
      auto& held = outputs_[static_cast<size_t>(slot)];
      if (held >= 0) slots_[static_cast<size_t>(held)] = -1;
      held = output;
      copy(output, slot);
    }
    ++users_[static_cast<size_t>(slot)];
  }
}

void GatheredMatrix::release(std::span<const int32_t> outputs) {
  for (const int32_t output : outputs) {
    const int64_t slot = slots_[static_cast<size_t>(output)];
    if (--users_[static_cast<size_t>(slot)] > 0 || listed_[static_cast<size_t>(slot)]) continue;
    free_slots_.push_back(slot);
    listed_[static_cast<size_t>(slot)] = true;
  }
}

void GatheredMatrix::clear() {
  std::fill(slots_.begin(), slots_.end(), -1);
  users_.clear();
  outputs_.clear();
  free_slots_.clear();
  listed_.clear();
  matrix_ = {};
}

// Columns that nothing was copied to are zeros.
void GatheredMatrix::grow(int64_t slots) {
  const auto& kernels = *all_.kernels_;
  const int64_t numbers = (all_.bias_ ? 1 : 0) + (all_.scales_ ? 2 : 0), columns = PackedMatrix::padded(slots);
  const int64_t panel_bytes = columns / kernels.columns * all_.panel_bytes_;
  Buffer<unsigned char> memory(panel_bytes + numbers * columns * 4);
  std::memset(memory.data(), 0, static_cast<size_t>(memory.size()));
  auto* next = memory.data() + panel_bytes;
  const auto take = [&]<class T>(T* old, bool wanted) {
    if (!wanted) return static_cast<T*>(nullptr);
    auto* taken = reinterpret_cast<T*>(next);
    if (old) std::copy_n(old, users_.size(), taken);
    next += columns * 4;
    return taken;
  };
  PackedMatrix grown;
  grown.kernels_ = &kernels;
  grown.precision_ = all_.precision_;
  grown.outputs_ = slots;
  grown.depth_ = all_.depth_;
  grown.groups_ = all_.groups_;
  grown.panel_bytes_ = all_.panel_bytes_;
  grown.bias_ = take(matrix_.bias_, all_.bias_ != nullptr);
  grown.scales_ = take(matrix_.scales_, all_.scales_ != nullptr);
  grown.sums_ = take(matrix_.sums_, all_.sums_ != nullptr);
  if (panels_ && !users_.empty()) {
    std::memcpy(memory.data(), panels_,
                users_.size() / static_cast<size_t>(kernels.columns) * static_cast<size_t>(all_.panel_bytes_));
  }
  memory_ = std::move(memory);
  panels_ = memory_.data();
  grown.panels_ = panels_;
  matrix_ = std::move(grown);
  users_.resize(static_cast<size_t>(slots));
  outputs_.resize(static_cast<size_t>(slots), -1);
  listed_.resize(static_cast<size_t>(slots));
}

void GatheredMatrix::copy(int32_t output, int64_t slot) {
  const int64_t columns = all_.kernels_->columns;
  const unsigned char* from = all_.panel(output / columns) + output % columns * 4;
  unsigned char* to = panels_ + slot / columns * all_.panel_bytes_ + slot % columns * 4;
  for (int64_t group = 0; group < all_.groups_; ++group) {
    std::memcpy(to + group * columns * 4, from + group * columns * 4, 4);
  }
  if (all_.bias_) matrix_.bias_[slot] = all_.bias_[output];
  if (all_.scales_) matrix_.scales_[slot] = all_.scales_[output];
  if (all_.sums_) matrix_.sums_[slot] = all_.sums_[output];
}

}  // namespace transformer
