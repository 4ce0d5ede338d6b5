#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "transformer/inference/decoding_settings.h"
#include "transformer/inference/forbidden_text.h"
#include "transformer/inference/output_constraint.h"
#include "transformer/inference/required_phrases.h"
#include "transformer/text/piece_texts.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

class Shortlist;

/// What is asked of one sentence's output beyond what every output of a search is asked.
struct OutputControl {
  /// Phrases that the output shall hold, each as its tokens, one as often as it stands here. What a hypothesis lacks of
  /// them is in Hypothesis::missing; others come first.
  RequiredPhrases::Phrases required = {};
  std::vector<OtherSpelling> other_spellings = {};  // of `required`
  /// The vocabulary's, by which a required phrase that ends in a word is told from the beginning of a longer one; null:
  /// its tokens count alone.
  std::shared_ptr<const PieceTexts> pieces = nullptr;
  /// What the output must not hold; null: anything may come.
  std::shared_ptr<const ForbiddenText> forbidden = nullptr;
  /// Tokens, each once, and what is added to their logits before hypotheses are compared or drawn.
  std::vector<std::pair<int64_t, double>> bias = {};
};

/// A sentence to be decoded, and how.
struct DecodingRequest {
  std::vector<int64_t> source;                                   // pieces and the end; not empty
  int64_t max_length = 0;                                        // of the output, its end not counted
  DecodingSettings settings = {};                                // how it is searched for
  std::shared_ptr<const OutputConstraint> constraint = nullptr;  // what the output may be; null: anything
  int64_t end = Vocabulary::end;                                 // the token that ends it, or SentenceSearch::no_end
  OutputControl control = {};                                    // what is asked of its output
  std::shared_ptr<const Shortlist> shortlist = nullptr;          // what it is written in; null: the whole vocabulary
  /// Tokens that the output begins with because it is told them, as `constraint` has it, and as many pieces of the
  /// source: languages, which are none of the text, so that no limit of lengths, n-gram or wish counts them. The length
  /// penalty does, as it did where such models were made.
  int64_t told = 0;
  /// `max_length`, as far as it can be added to what is told and the end.
  int64_t most_tokens() const { return std::min(max_length, std::numeric_limits<int64_t>::max() - 1 - told); }

  /// Hypotheses that the sentence has at the same time, at most: what its settings say, and where phrases are required
  /// one more for each of their tokens, up to `most_for_phrases`.
  int64_t hypotheses() const { return settings.hypotheses() + more_for_phrases(); }
  /// Of them, those for required phrases.
  int64_t more_for_phrases() const;
  /// As many at most.
  static constexpr int64_t most_for_phrases = 64;

  /// The tokens that the output is written in, ascending and each once, where there is a shortlist: its candidates, and
  /// whatever the constraint and the wishes ask for. Empty: in the whole vocabulary. Throws std::out_of_range
  /// where what is asked for is held by no output, or the source by no shortlist.
  std::vector<int32_t> candidates() const;
  /// Throws Error where wishes contradict each other or the settings, for a shortlist of other vocabularies, and for
  /// tokens that are none of a vocabulary of `size`, what a constraint asks a shortlist for among them.
  void check(int64_t size) const;
};

}  // namespace transformer
