#include "transformer/text/characters.h"

#include <utf8proc.h>

#include "transformer/base/unicode.h"

namespace transformer {

namespace {

/// Of Thai and Lao, Burmese, Khmer.
bool is_of_syllables(char32_t code_point) {
  const auto within = [&](char32_t first, char32_t last) { return code_point >= first && code_point <= last; };
  return within(0x0E00, 0x0EFF) || within(0x1000, 0x109F) || within(0x1780, 0x17FF);
}

bool is_of_letter_or_digit(CharacterKind kind) {
  using enum CharacterKind;
  return kind == lower || kind == upper || kind == letter || kind == digit;
}

}  // namespace

CharacterKind kind_of(char32_t code_point) {
  using enum CharacterKind;
  if (is_blank(code_point)) return blank;
  switch (code_point) {
    case U'"':
    case U'\'':
    case U'\u2018':  // ‘ and “ close German quotations, ’ and » open others
    case U'\u2019':
    case U'\u201C':
    case U'\u201D':
    case U'\u00AB':
    case U'\u00BB':
    case U'\u2039':
    case U'\u203A':
      return quote;
    case U'\u00A1':  // ¡ and ¿
    case U'\u00BF':
      return opening;
    default:
      break;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LL:
      return lower;
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return upper;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return letter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return mark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return digit;
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PI:
      return opening;
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PF:
      return closing;
    case UTF8PROC_CATEGORY_PD:
      return dash;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PO:
      return punctuation;
    default:
      return is_joiner(code_point) ? mark : symbol;
  }
}

bool ends_line(char32_t code_point) {
  return code_point == U'\n' || code_point == U'\r' || code_point == 0x2028 || code_point == 0x2029;
}

bool is_joiner(char32_t code_point) {
  switch (code_point) {
    case 0x00AD:  // soft hyphen
    case 0x034F:  // combining grapheme joiner
    case 0x200C:  // zero width non-joiner, as within words of Persian
    case 0x200D:  // zero width joiner, which also makes one emoji of several
    case 0x2060:  // word joiner
      return true;
    default:
      return false;
  }
}

bool is_letter_or_digit(char32_t code_point) {
  return is_of_letter_or_digit(kind_of(code_point));
}

bool is_word_character(char32_t code_point) {
  const auto kind = kind_of(code_point);
  return is_of_letter_or_digit(kind) || kind == CharacterKind::mark;
}

bool is_of_spaced_word(char32_t code_point) {
  return is_word_character(code_point) && !is_unspaced(code_point);
}

bool is_unspaced(char32_t code_point) {
  const auto within = [&](char32_t first, char32_t last) { return code_point >= first && code_point <= last; };
  if (code_point < 0x0E00) return false;
  return is_of_syllables(code_point) || within(0x2E80, 0x31FF) || within(0x3400, 0x9FFF) || within(0xF900, 0xFAFF) ||
         within(0xFE30, 0xFE4F) || within(0xFF01, 0xFFEF) || within(0x20000, 0x3FFFF);
}

size_t step_back(std::string_view text, size_t position) {
  do {
    --position;
  } while (position > 0 && continues_character(text[position]));
  return position;
}

size_t base_before(std::string_view text, size_t position) {
  constexpr int most_marks = 30;  // as in Unicode's stream-safe text
  position = step_back(text, position);
  for (int marks = 0; position > 0 && marks < most_marks; ++marks) {
    size_t behind = position;
    if (kind_of(next_code_point(text, behind)) != CharacterKind::mark) break;
    position = step_back(text, position);
  }
  return position;
}

bool goes_on(WordKind before, char32_t next) {
  if (before == WordKind::apart) return false;
  const auto kind = kind_of(next);
  return kind == CharacterKind::mark || (before == WordKind::word && is_of_letter_or_digit(kind) && !is_unspaced(next));
}

WordKind word_kind(WordKind before, char32_t next) {
  if (goes_on(before, next)) return before;
  if (!is_letter_or_digit(next)) return WordKind::apart;
  return !is_unspaced(next) ? WordKind::word : is_of_syllables(next) ? WordKind::syllable : WordKind::apart;
}

}  // namespace transformer
