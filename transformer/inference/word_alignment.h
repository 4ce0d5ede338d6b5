#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/base/settings.h"
#include "transformer/inference/attention_maps.h"
#include "transformer/inference/decoding_settings.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

class InferenceModel;
struct Translation;

/// Which attention over the source word alignments are read from. The default is the best that was found without
/// choosing a head (benchmarks/results/alignment-model-en-de.txt); a single head may align far better, another one in
/// every model, which benchmarks/alignments.py finds.
struct AlignmentSettings {
  /// Which position's attention is a word's.
  enum class At {
    writing,  // of the one that writes it
    reading   // of the one behind, which reads it
  };

  int64_t alignment_layer = 0;  // of the decoder, from 1; 0: the last
  int64_t alignment_head = 0;   // of the layer, from 1; 0: the mean of all
  At alignment_at = At::writing;
  static void describe(Fields<AlignmentSettings>& field);
};

/// Word `target` of the output stands for word `source` of the input, both counted from 0.
struct AlignmentLink {
  int64_t source = 0, target = 0;  // indices of words
  bool operator==(const AlignmentLink&) const = default;
};

/// How much of the attention of each word of an output each word of the input received, by which alignments are found
/// (joined_weights). What the end token received, or wrote, is left out, so that rows sum to 1 at most.
struct WordAttention {
  size_t source_words = 0, target_words = 0;  // alignment_words of both lines
  std::vector<float> weights = {};            // [target_words, source_words]
};

/// "0-0 2-1", in the order of the output's words: the format of Pharaoh, Moses, fast_align and Marian.
std::string to_pharaoh(const std::vector<AlignmentLink>& links);

/// Words as alignments count them: those of base/unicode.h, which blanks of every kind separate. What normalises text
/// (text/normalization.h) leaves their number as it is; where SentencePiece's own tables do not
/// (Vocabulary::has_charsmap), they are still those of the line as it was given.
std::vector<std::string_view> alignment_words(std::string_view text);

/// For each of `joined`'s words, the last of which is the end token, which of the line's words it begins with: a piece
/// may hold white space and so join two. Words that the line has not (the end token, or text that the vocabulary writes
/// otherwise) are -1.
std::vector<int64_t> places_in_line(const JoinedTokens& joined, size_t line_words);

/// Word alignments from the attention over the source, by one forced pass over a line and its translation.
///
/// A word of the translation is linked to the word of the source that receives most attention of the positions that
/// write it (or read it), pieces joined as `joined_weights` does; to none where the end token receives most.
/// Lines whose pieces are not given are split anew; the shipped model writes one in two hundred in other pieces.
class WordAligner {
 public:
  /// Where the model knows many languages, `search` says which it is told. Throws Error for a layer or head that the
  /// model has not.
  WordAligner(std::shared_ptr<const InferenceModel> model, Vocabularies vocabularies, const AlignmentSettings& settings,
              const DecodingSettings& search = {});

  /// The links of each pair of lines; none where one of them is blank. `target_tokens`, where given, are the pieces
  /// that each target was written in (Translation::tokens); `said`, what the model was told of each source beside it
  /// (as_read), which is none of its words. Throws Error naming the line, counted from `first_line`, for a pair whose
  /// attention would not fit into memory or for which the model has no positions; Failure for attention that is not
  /// finite.
  std::vector<std::vector<AlignmentLink>> align(const std::vector<std::string>& sources,
                                                const std::vector<std::string>& targets, int64_t first_line = 1,
                                                const std::vector<std::vector<int64_t>>& target_tokens = {},
                                                const std::vector<std::string>& said = {}) const;

  /// The links of `translations` with the lines that they are of; none of a pair that is too long (`problem`).
  /// `pieces`: how many each line has as it was read; `said`: as above.
  std::vector<std::optional<std::vector<AlignmentLink>>> align_what_fits(
      const std::vector<std::string>& sources, const std::vector<size_t>& pieces,
      const std::vector<const Translation*>& translations, const std::vector<std::string>& said = {}) const;

  /// Of each pair as `align` takes it; of no words where one of its lines is blank. Throws as `align` does.
  std::vector<WordAttention> attention(const std::vector<std::string>& sources, const std::vector<std::string>& targets,
                                       const std::vector<std::vector<int64_t>>& target_tokens = {},
                                       const std::vector<std::string>& said = {}) const;

  /// What is wrong with a pair of so many pieces that it cannot be aligned; empty: nothing.
  std::string problem(size_t source_pieces, size_t target_pieces) const;

 private:
  /// Of a layer's weights [1, H, T, S], those that align: [1, 1, T, S].
  AttentionWeights chosen(const AttentionWeights& layer) const;
  /// Gives `visit` the index of each pair with text on both sides, the weights of its words as joined_tokens has them,
  /// and which of the lines' words these are (as places_in_line says).
  using Visit =
      std::function<void(size_t pair, const AttentionWeights& weights, const std::vector<int64_t>& source_places,
                         const std::vector<int64_t>& target_places)>;
  void visit_pairs(const std::vector<std::string>& sources, const std::vector<std::string>& targets, int64_t first_line,
                   const std::vector<std::vector<int64_t>>& target_tokens, const std::vector<std::string>& said,
                   const Visit& visit) const;

  std::shared_ptr<const InferenceModel> model_;
  Vocabularies vocabularies_;
  AlignmentSettings settings_;
  std::optional<std::pair<int64_t, int64_t>> told_;  // pieces of the source's language and of the target's
};

}  // namespace transformer
