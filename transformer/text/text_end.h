#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "transformer/text/characters.h"

namespace transformer {

/// The end of a text that comes byte by byte, as pieces may spell it: what it ends with, and the character that is
/// under way. What is not UTF-8 counts as a sign.
class TextEnd {
 public:
  /// Of a text of nothing.
  TextEnd() = default;
  /// Of one that ends so.
  explicit TextEnd(WordKind last) : last_(last) {}

  /// Whether the last character is whole and a word's, of writing that sets words apart.
  bool in_word() const { return last_ == WordKind::word && !in_character(); }
  /// Whether it is whole, and a word or a letter may go on behind it.
  bool may_go_on() const { return last_ != WordKind::apart && !in_character(); }
  /// Whether a character is under way.
  bool in_character() const { return !part_.empty(); }

  /// Whether the character that is under way ends with `byte`, unfinished.
  bool broken_by(char byte) const;
  /// What a byte tells of the text that it comes behind.
  enum class Next {
    unknown,  // nothing yet: no character is whole with it, or a joiner, behind which words may go on or end
    goes_on,  // what the text ended with goes on with the character (characters.h)
    apart     // it does not
  };
  /// Takes up the next byte.
  Next append(char byte);
  /// Takes up all of `text`.
  void append(std::string_view text);

  /// Whether this goes on with the character that `text` ends or, if it is not whole with it, begins: likely, then.
  /// False for no text.
  bool continued_by(std::string_view text) const;
  /// Whether this will likely go on with the character that is under way: a word where most do that begin so, another
  /// letter where one in twenty does.
  bool likely_to_go_on() const;

  auto operator<=>(const TextEnd&) const = default;

 private:
  Next take(char32_t character);

  WordKind last_ = WordKind::apart;  // of the whole characters
  std::string part_;                 // the bytes of the character that is under way
};

}  // namespace transformer
