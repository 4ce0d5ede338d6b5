#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

// Sub-layers of the paper's model with their residual connection and normalisation, forward and backward each in one
// piece, for training on CPUs: own loops (training_kernels.h) between matrix products, no masks of dropout, and nothing
// stored twice. What they compute is what the modules compute that use them; those go their general way wherever
// `fusable` says no. Parameters of sizes that do not fit throw c10::Error, and so do embeddings and the gain and bias
// of a normalisation that are not contiguous float32.

namespace transformer {

struct TrainingKernels;  // kernels/training_kernels.h

/// The kernels for this processor, or those that were chosen; null: nothing is fused.
const TrainingKernels* training_kernels();
/// Every set of kernels that this processor can run, the best first.
std::vector<const TrainingKernels*> runnable_training_kernels();
/// Chooses the kernels of all models in this process for forward passes from now on, each of which has its backward
/// pass by the same; null: the modules' general way is taken everywhere, for derivatives of derivatives, say, which the
/// fused sub-layers do not have.
void choose_training_kernels(const TrainingKernels* kernels);

/// Whether sub-layers on x are fused: float32 on a CPU, autocast off or to bfloat16.
bool fusable(const torch::Tensor& x);

/// The residual connection: LayerNorm(x + Dropout(Sublayer(x))), or, with normalisation `before` the sub-layer,
/// x + Dropout(Sublayer(LayerNorm(x))).
struct FusedResidual {
  torch::Tensor gain, bias;  // [D]
  double epsilon, dropout;   // added to the variance; rate
  bool before;               // else the normalisation is of the sum
};

/// The projections of MultiHeadAttention; biases may be undefined.
struct FusedProjections {
  torch::Tensor input_weight, input_bias, output_weight, output_bias;  // as MultiHeadAttention has them
  int64_t heads, d_k, d_v;                                             // H, widths of a head's keys and values
  double scale;                                                        // of the dot products
  double dropout;                                                      // on the weights
};

/// Attention by `projections` of x [B, T, D] over itself, or over `memory` [B, S, D] where that is defined, within
/// `residual`. `mask` [B, 1, 1, S] or none, as in AttentionOptions.
torch::Tensor fused_attention(const torch::Tensor& x, const torch::Tensor& memory,
                              const std::optional<torch::Tensor>& mask, bool causal,
                              const FusedProjections& projections, const FusedResidual& residual);
/// Whether `mask` is one that fused_attention takes for B sentences of S keys, and T·S few enough for a head's weights
/// to stay near the processor.
bool fusable_attention(const torch::Tensor& x, const torch::Tensor& memory, const std::optional<torch::Tensor>& mask);

/// The two linear layers of FeedForward, of ReLU; biases may be undefined.
struct FusedNetwork {
  torch::Tensor inner_weight, inner_bias, outer_weight, outer_bias;  // W_1, b_1, W_2, b_2 of eq. 2
  double dropout;                                                    // after the activation
};

/// max(0, x W_1 + b_1) W_2 + b_2, within `residual`.
torch::Tensor fused_feed_forward(const torch::Tensor& x, const FusedNetwork& network, const FusedResidual& residual);

/// Whether embeddings of ids [B, T] by `weight` are fused: contiguous float32 on a CPU.
bool fusable_embedding(const torch::Tensor& weight, const torch::Tensor& ids);
/// Dropout(scale * weight[ids] + positions): ids [B, T], positions [T, D] without gradient -> [B, T, D].
torch::Tensor fused_embedding(const torch::Tensor& weight, const torch::Tensor& ids, const torch::Tensor& positions,
                              double scale, double dropout);

}  // namespace transformer
