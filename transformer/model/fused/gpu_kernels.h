#pragma once

#include <c10/core/Device.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "transformer/model/fused/gpu_arguments.h"

namespace transformer {

/// The kernels of gpu_kernels.cu and gpu_attention.cu on one GPU.
class GpuKernels {
 public:
  virtual ~GpuKernels() = default;

  /// For rows of `width`.
  void start(const gpu::ResidualForward& arguments, int64_t width) const;
  /// In `blocks`, as many as there are sums.
  void start(const gpu::ResidualBackward& arguments, int64_t width, int64_t blocks) const;
  /// `arguments.row_blocks` is what relu_backward_blocks says.
  void start(const gpu::ReluBackward& arguments) const;
  /// For heads of width 32 or 64, at most 128 queries and keys; of `sentences`.
  void start(const gpu::AttentionForward& arguments, int64_t head_width, int64_t sentences) const;
  /// The same.
  void start(const gpu::AttentionBackward& arguments, int64_t head_width, int64_t sentences) const;
  /// Of `rows` of logits.
  void start(const gpu::SmoothedLoss& arguments, int64_t rows) const;

 protected:
  /// What a kernel is compiled for: rows of WIDTH elements, or attention of up to LENGTH keys in heads of HEAD.
  struct Program {
    int64_t width = 0, length = 0, head = 0;  // width 0: attention
    auto operator<=>(const Program&) const = default;
  };
  /// Starts a kernel with the struct that it takes after all that the calling thread's current stream has to do before.
  /// Throws Failure where it cannot be compiled or started.
  virtual void launch(const char* name, const Program& program, int64_t blocks, int64_t threads,
                      const void* arguments) const = 0;
};

/// Blocks that residual_backward is started with for `rows`.
int64_t residual_backward_blocks(int64_t rows);

/// Shares of its rows, one at least, that relu_backward makes of a matrix.
int relu_backward_blocks(int64_t rows, int64_t columns);

/// Those of the GPU `device`, or those that were chosen; null where there are none.
const GpuKernels* gpu_kernels(const c10::Device& device);
/// Why the GPU `device` has none: what is missing. Empty where it has.
std::string missing_gpu_kernels(const c10::Device& device);
/// Chooses the kernels of all devices in this process from now on, the CPU with them: for tests. None: each has its
/// own.
void choose_gpu_kernels(const std::optional<const GpuKernels*>& kernels);

}  // namespace transformer
