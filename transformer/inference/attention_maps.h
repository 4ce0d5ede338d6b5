#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transformer/text/vocabulary.h"

namespace transformer {

class InferenceModel;

/// Attention's weights, [L, H, T, S]: of each layer, head and query, over the keys. Rows sum to 1.
struct AttentionWeights {
  int64_t layers = 0, heads = 0, queries = 0, keys = 0;  // L, H, T and S
  std::vector<float> values;                             // row after row

  /// The weights [keys] of one query.
  std::span<float> row(int64_t layer, int64_t head, int64_t query);
  /// The same, to be read.
  std::span<const float> row(int64_t layer, int64_t head, int64_t query) const;
};

/// The weights of every attention in one forced pass over a sentence and its output: what the paper's Figures 3 to 5
/// show.
///
/// The source is its pieces and the end, S = pieces + 1. The target is read behind the begin token and written up to
/// the end, T = pieces + 1: query t is the position that writes `written_tokens()[t]`, and key t of the decoder's
/// self-attention the one that reads `read_tokens()[t]`.
struct AttentionMaps {
  AttentionWeights encoder;  // [encoder layers, H, S, S]
  AttentionWeights decoder;  // [decoder layers, H, T, T], 0 above the diagonal; no layers where these are recurrent
  AttentionWeights cross;    // [decoder layers, H, T, S]
};

/// Ids are pieces without begin and end. Throws Error for one that is none of the vocabulary's, and past the last
/// learned position; Failure where the model gives weights that are no numbers.
AttentionMaps attention_maps(const InferenceModel& model, const std::vector<int64_t>& source,
                             const std::vector<int64_t>& target);

/// `AttentionMaps::cross` alone, of several pairs in one pass and of decoder layer `layer`, from 0: [1, H, T, S] each.
/// Throws the same, and std::invalid_argument for a layer that the model has not.
std::vector<AttentionWeights> cross_attention(const InferenceModel& model,
                                              const std::vector<std::vector<int64_t>>& sources,
                                              const std::vector<std::vector<int64_t>>& targets, int64_t layer);

/// `pieces` and the end: the source's positions, and what the decoder's positions write.
std::vector<int64_t> written_tokens(std::vector<int64_t> pieces);
/// The begin and `pieces`: what the decoder's positions read.
std::vector<int64_t> read_tokens(std::vector<int64_t> pieces);

/// Tokens joined to words. A word begins where white space stands between two pieces (pieces of a language written
/// without spaces are all one word), white space belongs to the word behind it, and begin and end tokens and languages
/// are words of their own. Bytes that together spell no character become U+FFFD.
struct JoinedTokens {
  std::vector<std::string> words;  // those as the vocabulary names them
  std::vector<int64_t> word_of;    // of every token, ascending, each word at least once
};
/// `tokens` are ids of `vocabulary`, in the order of the text.
JoinedTokens joined_tokens(const Vocabulary& vocabulary, const std::vector<int64_t>& tokens);

/// Weights of tokens as those of words [L, H, words of the queries, words of the keys]: how much attention a
/// word receives is the sum over its tokens, how a word attends is the mean of how its tokens do, so that rows
/// still sum to 1.
AttentionWeights joined_weights(const AttentionWeights& weights, const JoinedTokens& queries, const JoinedTokens& keys);

}  // namespace transformer
