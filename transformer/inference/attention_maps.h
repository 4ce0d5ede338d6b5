#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "transformer/model/transformer.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// The weights of every attention in one forced pass over a sentence and its output: what the paper's Figures 3 to 5
/// show. On the CPU, in the type of the model's own weights; every row sums to 1.
///
/// The source is its pieces and the end, S = pieces + 1. The target is read behind the begin token and written up to
/// the end, T = pieces + 1: query t is the position that writes `written_tokens()[t]`, and key t of the decoder's
/// self-attention the one that reads `read_tokens()[t]`.
struct AttentionMaps {
  torch::Tensor encoder;  // [encoder layers, H, S, S]
  torch::Tensor decoder;  // [decoder layers, H, T, T], 0 above the diagonal
  torch::Tensor cross;    // [decoder layers, H, T, S]
};

/// Ids are pieces without begin and end. The model must be in evaluation mode.
AttentionMaps attention_maps(Transformer model, const std::vector<int64_t>& source, const std::vector<int64_t>& target);

/// `AttentionMaps::cross` alone, of several pairs in one pass: a tensor each, [decoder layers, H, T, S] of its own
/// lengths.
std::vector<torch::Tensor> cross_attention(Transformer model, const std::vector<std::vector<int64_t>>& sources,
                                           const std::vector<std::vector<int64_t>>& targets);

/// `pieces` and the end: the source's positions, and what the decoder's positions write.
std::vector<int64_t> written_tokens(std::vector<int64_t> pieces);
/// The begin and `pieces`: what the decoder's positions read.
std::vector<int64_t> read_tokens(std::vector<int64_t> pieces);

/// Tokens joined to words. A word begins where white space stands between two pieces (pieces of a language written
/// without spaces are all one word), white space belongs to the word behind it, and begin and end tokens are words of
/// their own. Bytes that together spell no character become U+FFFD.
struct JoinedTokens {
  std::vector<std::string> words;
  std::vector<int64_t> word_of;  // of every token, ascending, each word at least once
};
JoinedTokens joined_tokens(const Vocabulary& vocabulary, const std::vector<int64_t>& tokens);

/// Weights [.., T, S] of tokens as those of words [.., words of the queries, words of the keys]: how much attention a
/// word receives is the sum over its tokens, how a word attends is the mean of how its tokens do, so that rows
/// still sum to 1.
torch::Tensor joined_weights(const torch::Tensor& weights, const JoinedTokens& queries, const JoinedTokens& keys);

}  // namespace transformer
