#pragma once

#include "transformer/model/attention.h"

namespace transformer {

/// Attention in blocks of queries, each against no more keys than its queries may see: restricted self-attention (§4,
/// conclusion) in O(r·n·d) operations, and additive attention in bounded memory. Scores exist for one block at a time;
/// the backward pass computes them again, so that training keeps none of them. Takes what `attention` takes, returns
/// its values [B, H, T, d_v]; weights cannot be asked for.
torch::Tensor blockwise_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                  const AttentionOptions& options);

}  // namespace transformer
