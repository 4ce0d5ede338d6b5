#pragma once

#include <compare>
#include <string>
#include <string_view>

namespace transformer {

/// The end of a text that comes byte by byte, as pieces may spell it: whether it is in a word, and the character that
/// is under way. Words are those of writing that sets them apart; what is not UTF-8 counts as a sign.
class TextEnd {
 public:
  TextEnd() = default;
  /// Of a text whose last character is a word's, or none.
  explicit TextEnd(bool in_word) : in_word_(in_word) {}

  /// Whether the last character is whole and a word's.
  bool in_word() const { return in_word_ && !in_character(); }
  /// Whether a character is under way.
  bool in_character() const { return !part_.empty(); }

  /// Whether the character that is under way ends with `byte`, unfinished.
  bool broken_by(char byte) const;
  /// Takes up the next byte. Whether a character is whole with it; `in_word` says of which kind.
  bool append(char byte);
  /// Takes up all of `text`.
  void append(std::string_view text);

  /// Whether the character that `text` ends or, if it is not whole with it, begins is a word's. Of one that is not,
  /// what most characters are that begin so. False for no text.
  bool continued_by(std::string_view text) const;
  /// Whether the character that is under way will most likely be a word's.
  bool likely_in_word() const;

  auto operator<=>(const TextEnd&) const = default;

 private:
  bool in_word_ = false;  // the last whole character is a word's
  std::string part_;      // the bytes of the character that is under way
};

}  // namespace transformer
