#pragma once

#include "transformer/model/attention.h"

namespace transformer {

/// How well every query fits every key (§3.2.1), before mask and softmax, as `options` ask: query [B, H, T, d_k],
/// key [B, H, S, d_k] -> [B, H, T, S].
torch::Tensor compatibility(const torch::Tensor& query, const torch::Tensor& key, const AttentionOptions& options);

/// The softmax of `scores` [B, H, T, S] over the keys that `mask` (broadcastable to them) permits; zeros for a query
/// that may attend to nothing.
torch::Tensor masked_softmax(torch::Tensor scores, const std::optional<torch::Tensor>& mask);

/// Which of the keys `first_key` .. `first_key + keys` the queries `first_query` .. see, bool [queries, keys], by
/// causality and window; none where they see all.
std::optional<torch::Tensor> neighbourhood(int64_t first_query, int64_t queries, int64_t first_key, int64_t keys,
                                           const AttentionOptions& options, torch::Device device);

}  // namespace transformer
