#pragma once

namespace transformer {

/// What kind of character a code point is, as far as splitting text needs to know (Unicode's general categories).
enum class CharacterKind {
  blank,        // base/unicode.h
  lower,        // a small letter
  upper,        // a capital, or a letter of title case
  letter,       // of a script without case
  mark,         // belongs to the character before it
  digit,        // numbers of all kinds
  opening,      // an opening bracket or quotation mark
  closing,      // a closing one
  quote,        // a quotation mark that may be either
  dash,         // and hyphens
  punctuation,  // any other
  symbol,       // emoji, currencies, what has no category
};
/// Of any code point; those that Unicode assigns to nothing are symbols.
CharacterKind kind_of(char32_t code_point);

/// A line feed, a carriage return, or a separator of lines or paragraphs.
bool ends_line(char32_t code_point);

/// Letters, digits and marks: what words are made of.
bool is_word_character(char32_t code_point);

/// Word characters of writing that sets words apart: where one follows another, the word goes on.
bool is_of_spaced_word(char32_t code_point);
/// Characters of scripts that are written without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese),
/// and their punctuation.
bool is_unspaced(char32_t code_point);

}  // namespace transformer
