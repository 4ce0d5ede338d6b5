#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/text/piece_texts.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// Words and phrases that an output must not hold, however it spells them in pieces. A phrase that begins or ends with
/// a letter or a digit is one of whole words: where "Hund" is forbidden, "Hunde" may come. Chinese, Japanese and other
/// writing whose words are not set apart is forbidden anywhere; in Thai, Lao, Khmer and Burmese a letter is another
/// with a mark on it. Safe to share between threads.
///
/// A text is followed token by token, from state to state. What may not come in a state is found once, and kept as long
/// as there is room: in memory that is bounded. There are about as many states as the phrases have bytes, at most.
class ForbiddenText {
 public:
  /// Phrases as the vocabulary normalises them; blank ones forbid nothing, nor do those that it cannot spell.
  ForbiddenText(const Vocabulary& vocabulary, std::shared_ptr<const PieceTexts> pieces,
                const std::vector<std::string>& phrases);
  ~ForbiddenText();

  /// The vocabulary's.
  const PieceTexts& pieces() const { return *pieces_; }

  /// Before the first token.
  static constexpr int64_t beginning = 0;
  /// What a text may not go on with.
  struct State {
    std::vector<int64_t> forbidden;   // tokens that complete a phrase, or most likely do with the character they begin
    std::vector<int64_t> never_last;  // others, after which the text must go on
    bool may_end = true;              // whether the text may end here
  };
  /// `state` is `beginning`, or came from `after`. Never null.
  std::shared_ptr<const State> at(int64_t state) const;
  /// The state that `token` leads to.
  int64_t after(int64_t state, int64_t token) const;

  /// What is known of an output: all of it, or what it begins with.
  enum class Extent { whole, beginning };
  /// A phrase that an output holds of which `text`, as PieceTexts has it, is known; empty: none. Where it is what the
  /// output begins with, none that may still become part of a longer word.
  std::string found_in(std::string_view text, Extent extent) const;
  /// The same of a whole output that these tokens spell.
  std::string found_in(const std::vector<int64_t>& tokens) const;

 private:
  struct Implementation;
  std::shared_ptr<const PieceTexts> pieces_;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace transformer
