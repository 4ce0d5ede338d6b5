#pragma once

namespace transformer {

// Classes of ASCII's characters, the same in all locales; the bytes of other characters are of none.

/// 0 to 9.
constexpr bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}
/// A to Z.
constexpr bool is_ascii_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
/// a to z.
constexpr bool is_ascii_lower(char c) {
  return c >= 'a' && c <= 'z';
}
/// A letter of either case.
constexpr bool is_ascii_letter(char c) {
  return is_ascii_upper(c) || is_ascii_lower(c);
}
/// A letter or a digit.
constexpr bool is_ascii_alphanumeric(char c) {
  return is_ascii_letter(c) || is_ascii_digit(c);
}

/// What shows and is neither.
constexpr bool is_ascii_punctuation(char c) {
  return c > ' ' && c <= '~' && !is_ascii_alphanumeric(c);
}

/// The small letter of a capital one; all else as it is.
constexpr char ascii_lower(char c) {
  return is_ascii_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
}
/// The capital letter of a small one; all else as it is.
constexpr char ascii_upper(char c) {
  return is_ascii_lower(c) ? static_cast<char>(c - 'a' + 'A') : c;
}

/// What a hexadecimal digit counts, of either case; -1 where it is none.
constexpr int hexadecimal_digit(char c) {
  if (is_ascii_digit(c)) return c - '0';
  const char letter = ascii_lower(c);
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

}  // namespace transformer
