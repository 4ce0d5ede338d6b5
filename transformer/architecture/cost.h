#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "transformer/architecture/settings.h"

namespace transformer {

/// The shape of a batch, padding included: B rows, S source and T target tokens each.
struct BatchShape {
  int64_t rows = 0;           // B
  int64_t source_length = 0;  // S
  int64_t target_length = 0;  // T
  /// Target tokens whose hidden states are projected to the vocabulary; 0: all, B · T.
  /// projected_label_smoothing_loss leaves padding out.
  int64_t projected_tokens = 0;
};

/// Floating-point operations of matrix products, a multiplication and an addition counting two. Everything else (the
/// softmax, normalisation, embedding look-ups, the optimizer) is left out. Padding and what a causal mask hides count
/// as computed; what a fused attention computes again in its backward pass does not count.
///
/// With D d_model, h heads, N encoder layers and M decoder layers, forward:
struct MatrixFlops {
  /// 2 · D·h·(d_k + d_v) · (2·N·B·S + 2·M·B·T + M·B·(S + T)): W^Q, W^K, W^V and W^O of self-attention in encoder and
  /// decoder; then of the attention over the encoder's output, where W^Q and W^O see the target, the others the source.
  /// Additive compatibility adds W_q and W_k: 2 · h·d_k² · (2·N·B·S + 2·M·B·T + M·B·(S + T)). A recurrent unit in the
  /// place of the decoder's self-attention: 2 · 2·D² · M·B·T instead of its terms, those of 2·M·B·T.
  int64_t attention_projections = 0;
  /// 2 · B·h·(d_k + d_v) · (N · S² + M · T² + M · T·S): QK^T (or the products with additive compatibility's v) and the
  /// weighted sum of the values. With an attention window r a position compares itself with w = 2·⌊r/2⌋ + 1 positions,
  /// so S² becomes S · min(S, w) and T² T · min(T, w); what blocks compute beyond that is left out. With recurrent
  /// units M · T² falls away.
  int64_t attention_products = 0;
  /// 2 · 2·D·d_ff · (N · B·S + M · B·T): W_1 and W_2; SwiGLU's third matrix makes it 2 · 3·D·d_ff. Attention over
  /// parameters: 2 · h_p·(d_pk + d_pv)·(D + n_p) instead, projections of query and output and products with n_p pairs.
  int64_t feed_forward = 0;
  /// 2 · D·V · B·T, or as many target tokens as are projected; V is the target's vocabulary.
  int64_t vocabulary_projection = 0;

  /// Of one forward pass.
  int64_t forward() const { return attention_projections + attention_products + feed_forward + vocabulary_projection; }
  /// Forward and backward: every product has a gradient for each of its two factors, of the same cost.
  int64_t training() const { return 3 * forward(); }
};

/// Of one batch through the model. Throws Error where `settings` contradict each other.
MatrixFlops count_flops(const ModelSettings& settings, const BatchShape& batch);

/// GPUs and their sustained single-precision operations a second, as the paper estimates them (§6.1, footnote).
inline constexpr std::array<std::pair<const char*, double>, 4> paper_gpus = {
    {{"K80", 2.8e12}, {"K40", 3.7e12}, {"M40", 6.0e12}, {"P100", 9.5e12}}};

/// The operations a second of one of `paper_gpus`. Throws Error for another name.
double sustained_flops(const std::string& gpu);

/// The paper's estimate of a training's floating-point operations (§6.1, Table 2): training time · number of GPUs ·
/// what each sustains, operations a second.
double paper_training_cost(double seconds, int64_t gpus, double sustained_flops_each);

}  // namespace transformer
