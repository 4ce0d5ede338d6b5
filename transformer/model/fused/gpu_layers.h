#pragma once

#include <torch/types.h>

#include "transformer/model/attention.h"
#include "transformer/model/fused/fused_layers.h"

// Sub-layers on GPUs as fused_layers.h has them for CPUs, in training with bfloat16: LibTorch's products and attention,
// and own kernels (gpu_kernels.cu) for what lies between, in one pass over memory where operators need five or six. The
// stream between sub-layers and gradients of weights are float32, products bfloat16.

namespace transformer {

/// Whether sub-layers on x [B, T, D] are made so: float32 on a GPU that has kernels, or where choose_gpu_kernels chose
/// some; D a multiple of 64, 2048 at most; autocast to bfloat16; not where choose_training_kernels chose the general
/// way.
bool fusable_on_gpu(const torch::Tensor& x);

/// What fused_attention computes, in whatever way `call` has, without its weights.
torch::Tensor attention_on_gpu(const torch::Tensor& x, const torch::Tensor& memory, AttentionOptions call,
                               const FusedProjections& projections, const FusedResidual& residual);

/// What fused_feed_forward computes.
torch::Tensor feed_forward_on_gpu(const torch::Tensor& x, const FusedNetwork& network, const FusedResidual& residual);

}  // namespace transformer
