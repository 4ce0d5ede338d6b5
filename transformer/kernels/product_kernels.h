#pragma once

#include <cstdint>

#include "transformer/kernels/bf16.h"

// Matrix products for training on CPUs, once for each instruction set. As in training_kernels.h, declarations only.

namespace transformer {

/// A factor of a product, a matrix or a transposed one: element (r, c) lies r * row_stride + c * column_stride elements
/// after the first, and one of the strides is 1.
template <class T>
struct Factor {
  const T* data;                      // its first element
  int64_t row_stride, column_stride;  // in elements
};

/// The rows and columns of a product's result, and the terms of a sum in it. None is 0.
struct ProductSize {
  int64_t rows, columns, depth;  // M, N and K
};

/// Where it goes: rows of columns side by side, a stride apart. With bias [columns], that is added to every row.
template <class T>
struct ProductResult {
  T* data;            // the first row's first element
  int64_t stride;     // in elements, from row to row
  bool accumulated;   // added to what is there
  const float* bias;  // may be null
};

/// One thread makes the whole product, in blocks that are packed into `scratch` [scratch(size, into_bf16)], which had
/// better begin with a cache line. An element is summed in the same order wherever it lies in the result, so that
/// threads may share one out as they like.
struct ProductKernels {
  const char* name;  // of the instruction set: "avx2"
  /// The most rows and columns whose sums are in registers; a share of a result had better be a multiple of them.
  int64_t tile_rows, tile_columns;
  /// Floats of scratch that a product of this size needs.
  int64_t (*scratch)(const ProductSize& size, bool into_bf16);
  /// Factors and result in float32. Null where LibTorch's products do not leave anything to gain.
  void (*in_float)(const Factor<float>& left, const Factor<float>& right, const ProductSize& size,
                   const ProductResult<float>& result, float* scratch);
  /// Null where the instruction set cannot multiply bf16. Sums are float32, and those that go into bf16 are rounded
  /// once; they cannot be accumulated.
  void (*bf16_into_float)(const Factor<Bf16>& left, const Factor<Bf16>& right, const ProductSize& size,
                          const ProductResult<float>& result, float* scratch);
  /// The same with a result in bf16.
  void (*bf16_into_bf16)(const Factor<Bf16>& left, const Factor<Bf16>& right, const ProductSize& size,
                         const ProductResult<Bf16>& result, float* scratch);
};

}  // namespace transformer
