#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "transformer/training/label_smoothing_loss.h"

namespace transformer {

/// R-Drop (Liang et al., 2021, "R-Drop: Regularized Dropout for Neural Networks"): every token is judged twice, under
/// two draws of dropout whose predictions p and q are also held together. Summed over tokens:
///
///     ½ (ℓ(p) + ℓ(q)) + strength/4 · (KL(p‖q) + KL(q‖p)),
///
/// ℓ the cross entropy against smoothed targets (projected_label_smoothing_loss). That is half of the published loss,
/// (ℓ(p) + ℓ(q)) + α · ½ (KL(p‖q) + KL(q‖p)), for α = `strength`, so that gradients are as long as those of plain
/// training. The negative log-likelihood is the mean of the two.
///
/// `hidden` [2B, T, D]: sentence b's first pass in row b, its second in row B + b; `targets` [B, T]. The rest, the
/// chunks of rows among it, is as in projected_label_smoothing_loss; a chunk has half as many rows, of two passes.
LossSums projected_rdrop_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                              double smoothing, double strength, int64_t padding, at::ScalarType product_type,
                              std::optional<int64_t> target_tokens = {}, const at::Tensor& bias = {});

}  // namespace transformer
