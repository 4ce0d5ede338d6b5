#include "transformer/evaluation/lowercase.h"

#include <utf8proc.h>

#include <vector>

#include "transformer/base/unicode.h"

namespace transformer {
namespace {

constexpr char32_t i_with_dot = 0x130, capital_sigma = 0x3A3, final_sigma = 0x3C2;

utf8proc_category_t category_of(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

/// Unicode's property Cased; what is case-ignorable, too, is left out.
bool is_cased(char32_t code_point) {
  const auto within = [&](char32_t first, char32_t last) { return code_point >= first && code_point <= last; };
  switch (category_of(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:  // ordinals, Roman numerals, and letters in circles and squares
      return code_point == 0xAA || code_point == 0xBA || within(0x2160, 0x217F) || within(0x24B6, 0x24E9) ||
             within(0x1F130, 0x1F149) || within(0x1F150, 0x1F169) || within(0x1F170, 0x1F189);
  }
}

/// Unicode's property Case_Ignorable: what may stand within a word, or behind it.
bool is_case_ignorable(char32_t code_point) {
  switch (category_of(code_point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:  // UAX #29's MidLetter, MidNumLet and Single_Quote
      return std::u32string_view(
                 U"':.\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A")
                 .find(code_point) != std::u32string_view::npos;
  }
}

/// A capital sigma at the end of a word becomes the final form.
bool sigma_is_final(const std::vector<char32_t>& text, size_t position) {
  size_t before = position;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = position + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

}  // namespace

std::string lowercase(std::string_view text) {
  std::vector<char32_t> code_points;
  code_points.reserve(text.size());
  for (size_t position = 0; position < text.size();) code_points.push_back(next_code_point(text, position));
  std::string lower;
  lower.reserve(text.size());
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (code_points[i] == i_with_dot) {  // the one letter whose lower case is two code points
      lower += "i\u0307";
    } else if (code_points[i] == capital_sigma && sigma_is_final(code_points, i)) {
      append_utf8(final_sigma, lower);
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_points[i]))), lower);
    }
  }
  return lower;
}

}  // namespace transformer
