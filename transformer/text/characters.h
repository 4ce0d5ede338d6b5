#pragma once

#include <cstddef>
#include <string_view>

namespace transformer {

/// What kind of character a code point is, as far as splitting text needs to know (Unicode's general categories).
enum class CharacterKind {
  blank,        // base/unicode.h
  lower,        // a small letter
  upper,        // a capital, or a letter of title case
  letter,       // of a script without case
  mark,         // belongs to the character before it; and joiners
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

/// Soft hyphens, joiners and non-joiners (U+00AD, U+034F, U+200C, U+200D, U+2060): nothing that shows.
/// One within a word does not end it, and one behind it is no part of it.
bool is_joiner(char32_t code_point);

/// Letters and digits: what has words, and signs do not.
bool is_letter_or_digit(char32_t code_point);
/// Letters, digits and marks: what words are made of. A mark behind a sign is none: see WordKind.
bool is_word_character(char32_t code_point);

/// Word characters of writing that sets words apart: where one follows another, the word goes on (but behind a mark on
/// a sign: see WordKind).
bool is_of_spaced_word(char32_t code_point);
/// Characters of scripts that are written without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese),
/// and their punctuation.
bool is_unspaced(char32_t code_point);

/// Where the character before `position`, which is not 0, begins in UTF-8.
size_t step_back(std::string_view text, size_t position);
/// The same of the one whose marks, if any, are before `position`; a few dozen of them, at most, are looked over.
size_t base_before(std::string_view text, size_t position);

/// What a text ends with, as far as its words are concerned. A mark is of the kind of what it is behind.
enum class WordKind {
  apart,     // a sign, a blank, nothing; a character of Chinese or Japanese, whose marks make no other of it
  syllable,  // a letter or digit of Thai, Lao, Khmer or Burmese, which marks go on with
  word       // a letter or digit of writing that sets words apart: marks go on with it, and the word's next letters
};
/// Whether `next` goes on with what a text ends with, so that no word or phrase ends before it.
bool goes_on(WordKind before, char32_t next);
/// What a text that ended with `before` ends with behind `next`.
WordKind word_kind(WordKind before, char32_t next);

}  // namespace transformer
