#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/text/piece_texts.h"
#include "transformer/text/text_end.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// The tokens that `phrase` has in a text, the most first: behind a space, and right behind other characters, where it
/// is spelled otherwise there. Where it begins in a word, these are signs, as in "l'Europe" or brackets. None where it
/// is blank. `pieces` are the vocabulary's.
std::vector<std::vector<int64_t>> spellings_of(std::string_view phrase, const Vocabulary& vocabulary,
                                               const PieceTexts& pieces);

/// Tokens that a phrase is there with, too: no more of them than it has itself.
struct OtherSpelling {
  size_t phrase = 0;            // its index
  std::vector<int64_t> tokens;  // at least one
};

/// Phrases that an output shall hold, and how far a hypothesis is with them. A copy takes little, and so does a token,
/// however many phrases have not begun.
class RequiredPhrases {
 public:
  /// Each as its tokens.
  using Phrases = std::vector<std::vector<int64_t>>;

  /// What is given, no phrase of which is empty, must outlive it. With `pieces`, a phrase that ends in a word is there
  /// where this does not go on (nor, in Thai, Lao, Khmer or Burmese, its last letter with a mark), and one whose tokens
  /// begin in a word where none ends before it; null: wherever its tokens are. A hypothesis without a token.
  explicit RequiredPhrases(const Phrases& phrases, std::span<const OtherSpelling> others = {},
                           const PieceTexts* pieces = nullptr);

  /// Takes up the next token. A phrase is there once the output ends with it, whatever else has begun; of phrases that
  /// are the same, one at a time. Where the next token goes on with its last word, it is not there. Where it does not
  /// go on with a phrase that has begun, what counted of it is lost, but for what begins the phrase again.
  void append(int64_t token);

  /// Whether no phrase that is there would be lost by the next token, which goes on with its last word.
  bool keeps(int64_t token) const { return open_.empty() || !end_.continued_by(pieces_->of(token)); }

  /// Whether the next token leaves all phrases as they are: none has begun, and it begins none.
  bool stays(int64_t token) const;

  /// Whether no phrase is missing, if the output ends here.
  bool all_met() const;
  /// Indices of the phrases that are not there yet, ascending.
  std::vector<size_t> missing() const;
  /// Tokens that count: those of the phrases that are there, and of the missing one that most has begun of. The token
  /// that goes on with this one makes them more, unless it goes on with the last word of one that is there.
  int64_t tokens() const;
  /// Whether it ends within a missing phrase, which the next token may go on with.
  bool within() const { return begun() > 0; }
  /// The tokens that go on with the missing phrases that most has begun of, or begin one; each once.
  std::vector<int64_t> next() const;

 private:
  /// What does not change as tokens come.
  struct Fixed {
    std::vector<bool> begins_in_word;                // each spelling
    std::vector<std::pair<int64_t, size_t>> firsts;  // each spelling's first token, and the spelling; ascending
  };
  /// Of a spelling, the tokens of its beginning that the output ends with.
  struct Held {
    size_t spelling, tokens;
  };

  // All spellings in one order: the phrases' own, and then the others.
  size_t spellings() const { return phrases_->size() + others_.size(); }
  size_t phrase_of(size_t spelling) const;
  const std::vector<int64_t>& tokens_of(size_t spelling) const;
  /// The spellings that begin with `token`, ascending: the second of each pair.
  std::span<const std::pair<int64_t, size_t>> beginning_with(int64_t token) const;
  /// Tokens of the missing phrase that most has begun of.
  size_t begun() const;
  void settle(int64_t token);
  void set_met(size_t phrase, bool met);
  /// Whether a spelling may begin behind what ends in a word or does not.
  bool may_begin(size_t spelling, bool behind_word) const { return !behind_word || !fixed_->begins_in_word[spelling]; }

  const Phrases* phrases_;
  std::span<const OtherSpelling> others_;
  const PieceTexts* pieces_;
  std::shared_ptr<const Fixed> fixed_;
  std::vector<Held> held_;  // of spellings that have begun, ascending
  std::vector<bool> met_;   // of each phrase
  size_t tokens_of_met_ = 0;
  /// Of the output: as behind a word at first, where words are written behind a space.
  TextEnd end_{WordKind::word};
  std::vector<size_t> open_;  // phrases that the output ends with, and whose last word may go on
};

/// How many of `slots` each bank of candidates gets (Post and Vilar 2018, dynamic beam allocation): an equal share
/// for each that has any, the last one what cannot be divided, and what one has no candidates for goes to the others,
/// the last first.
std::vector<int64_t> bank_sizes(int64_t slots, std::span<const int64_t> candidates);

}  // namespace transformer
