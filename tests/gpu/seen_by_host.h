#pragma once

#include <ATen/ops/from_blob.h>

/// The memory of a tensor on an imitated GPU, which is the host's own, for what the CPU does with it.
inline at::Tensor seen_by_host(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {},
      tensor.options().device(c10::kCPU).requires_grad(false));
}
