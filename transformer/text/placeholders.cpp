#include "transformer/text/placeholders.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "transformer/base/ascii.h"
#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"

namespace transformer {

namespace {

constexpr size_t nowhere = std::string_view::npos;
// Bytes between braces, at most.
constexpr size_t longest = 200;
// What units and plurals add to a conversion ("%dpx", "%ss"): letters, at most.
constexpr size_t longest_suffix = 3;

bool is_name(char c) {
  return is_ascii_letter(c) || is_ascii_digit(c) || c == '_';
}

bool is_path(char c) {
  return is_name(c) || c == '.' || c == '-' || c == '[' || c == ']';
}

bool is_any_of(char c, std::string_view characters) {
  return c != '\0' && characters.find(c) != nowhere;
}

/// The character at `position`, 0 behind the end.
char at(std::string_view text, size_t position) {
  return position < text.size() ? text[position] : '\0';
}

template <class Is>
size_t behind(std::string_view text, size_t position, const Is& is) {
  while (position < text.size() && is(text[position])) ++position;
  return position;
}

/// Behind the "}" that ends a format, whose characters are any but those of other placeholders and tags; one that
/// begins with a blank is a list of words and numbers.
size_t format_end(std::string_view text, size_t position, bool in_markup) {
  if (at(text, position) == ' ') return nowhere;
  const size_t end = text.find_first_of(in_markup ? "{}<\r\n" : "{}\r\n", position);
  return at(text, std::min(end, text.size())) == '}' ? end + 1 : nowhere;
}

/// What {name, TYPE} may be formatted as; texts to choose from are more than a placeholder.
bool is_type(std::string_view word) {
  static constexpr std::array<std::string_view, 6> types = {"number",   "date",    "time",
                                                            "spellout", "ordinal", "duration"};
  return std::find(types.begin(), types.end(), word) != types.end();
}

size_t single_braces_end(std::string_view text, bool in_markup) {
  size_t position = 1;
  const bool spaced = at(text, position) == ' ';
  position += spaced;
  const bool marked = is_any_of(at(text, position), "$@");
  position += marked;
  const size_t name = position;
  position = behind(text, position, is_path);
  const bool named = position > name && is_name(text[name]);
  if (!named && (marked || position > name)) return nowhere;
  if (spaced) return named && text.substr(position).starts_with(" }") ? position + 2 : nowhere;
  if (at(text, position) == '!' && is_ascii_letter(at(text, position + 1))) position += 2;
  if (at(text, position) == ':') return format_end(text, position + 1, in_markup);
  if (named && at(text, position) == ',') {
    ++position;
    if (at(text, position) == '-' || is_ascii_digit(at(text, position))) {  // a width
      position = behind(text, position + 1, is_ascii_digit);
      if (at(text, position) == ':') return format_end(text, position + 1, in_markup);
    } else {
      const size_t type = behind(text, position, [](char c) { return c == ' '; });
      position = behind(text, type, is_ascii_letter);
      if (!is_type(text.substr(type, position - type))) return nowhere;
      if (at(text, position) == ',') return format_end(text, position + 1 + (at(text, position + 1) == ' '), in_markup);
    }
  }
  return at(text, position) == '}' ? position + 1 : nowhere;
}

/// The end of what begins with "{" at the beginning of `text`.
size_t braces_end(std::string_view text, bool in_markup) {
  text = text.substr(0, longest);
  if (at(text, 1) != '{') return single_braces_end(text, in_markup);
  const size_t end = text.find_first_of("{}<>\r\n", 2);
  const bool ends = end != nowhere && text.substr(end).starts_with("}}") && !trim(text.substr(2, end - 2)).empty();
  return ends ? end + 2 : nowhere;
}

/// Whether the percent sign behind `before` is the second of "%%".
bool is_doubled(std::string_view before) {
  size_t signs = 0;
  while (signs < 8 && signs < before.size() && before[before.size() - 1 - signs] == '%') ++signs;
  return signs % 2 == 1;
}

/// Whether the percent sign at `position` belongs to a number before it.
bool is_percentage(std::string_view text, size_t position, size_t end) {
  const auto before = text.substr(0, position);
  if (before.empty()) return false;
  if (is_ascii_digit(before.back())) return true;
  const char next = at(text, end);
  const bool goes_on = is_ascii_letter(next) || next == '\'' || (static_cast<unsigned char>(next) & 0x80) != 0;
  constexpr std::string_view no_break_space = "\xC2\xA0", narrow_space = "\xE2\x80\xAF";
  for (const auto blank : {std::string_view(" "), no_break_space, narrow_space}) {
    if (goes_on && before.ends_with(blank) && before.size() > blank.size() &&
        is_ascii_digit(before[before.size() - blank.size() - 1])) {
      return true;
    }
  }
  return false;
}

size_t percent_end(std::string_view text, size_t begin) {
  if (is_doubled(text.substr(0, begin))) return nowhere;
  const auto rest = text.substr(begin, longest);
  size_t position = 1;
  if (at(rest, 1) == '{') {
    const size_t end = behind(rest, 2, is_path);
    return end > 2 && at(rest, end) == '}' ? begin + end + 1 : nowhere;
  }
  bool named = false;  // or numbered: nothing else is written so
  if (at(rest, 1) == '(') {
    const size_t end = behind(rest, 2, is_path);
    if (end == 2 || at(rest, end) != ')') return nowhere;
    position = end + 1;
    named = true;
  } else if (const size_t end = behind(rest, 1, is_ascii_digit); end > 1 && at(rest, end) == '$') {
    position = end + 1;
    named = true;
  }
  const size_t flags = position;
  position = behind(rest, position, [](char c) { return is_any_of(c, "-+0#"); });
  const bool left = rest.substr(flags, position - flags).find('-') != nowhere;
  const size_t width = position;
  position = at(rest, position) == '*' ? position + 1 : behind(rest, position, is_ascii_digit);
  if (left && position == width) return nowhere;  // "%-ig"
  if (at(rest, position) == '.') {
    position = at(rest, position + 1) == '*' ? position + 2 : behind(rest, position + 1, is_ascii_digit);
  }
  const size_t length = position;
  position = behind(rest, position, [](char c) { return is_any_of(c, "hlLqjzt"); });
  const char conversion = at(rest, position);
  if (position > length + 2 || !is_any_of(conversion, named ? "diouxXeEfFgGcsra@" : "diouxXeEfFgGcs@")) return nowhere;
  const size_t end = position + 1;
  if (named) return begin + end;
  const size_t suffix = behind(rest, end, is_ascii_letter) - end;
  if (suffix > (conversion == 'i' ? 0 : longest_suffix) || is_percentage(text, begin, begin + end)) return nowhere;
  return begin + end;
}

bool stands_for_a_delimiter(std::string_view reference) {
  for (const std::string_view name : {"&lt;", "&gt;", "&quot;", "&nbsp;", "&#"}) {
    if (reference.starts_with(name)) return true;
  }
  return false;
}

/// Of an address on the Web.
size_t address_end(std::string_view text, size_t begin, bool in_markup) {
  size_t position = begin;
  for (const std::string_view scheme : {"http://", "https://", "ftp://", "www."}) {
    const auto found = text.substr(begin, scheme.size());
    if (std::equal(found.begin(), found.end(), scheme.begin(), scheme.end(),
                   [](char a, char b) { return ascii_lower(a) == b; })) {
      position = begin + scheme.size();
    }
  }
  if (position == begin) return nowhere;
  const size_t host = position;
  // Looked at first: behind "www.(" is no address, however long what follows goes on.
  const auto begins = at(text, host);
  if (!is_name(begins) && (static_cast<unsigned char>(begins) & 0x80) == 0) return nowhere;
  int64_t round = 0, curly = 0;  // brackets that are open
  while (position < text.size()) {
    const char c = text[position];
    if (static_cast<unsigned char>(c) <= 0x20 || is_any_of(c, "<>\"`|\\^\x7F")) break;
    if (in_markup && c == '&' && stands_for_a_delimiter(text.substr(position, 6))) break;
    size_t next = position;
    char32_t code_point = next_code_point(text, next);
    if (is_joiner(code_point)) {  // within words alone
      while (is_joiner(code_point) && next < text.size()) code_point = next_code_point(text, next);
      if (!is_letter_or_digit(code_point)) break;
    }
    if (code_point >= 0x80 && !is_of_spaced_word(code_point)) break;
    round += c == '(' ? 1 : c == ')' ? -1 : 0;
    curly += c == '{' ? 1 : c == '}' ? -1 : 0;
    position = next;
  }
  for (; position > host; --position) {
    const char c = text[position - 1];
    if (c == ')' && round < 0) {
      ++round;
    } else if (c == '}' && curly < 0) {
      ++curly;
    } else if (!is_any_of(c, ".,;:!?'*_]")) {
      break;
    }
  }
  return position > host ? position : nowhere;
}

constexpr std::string_view local_signs = "_.%+-";
constexpr size_t longest_local = 64;

/// Whether a mail address may not begin at `position`: it would be a part of one, or of a word.
bool is_within_local(std::string_view text, size_t position) {
  const auto last_of = [&](size_t end) {
    size_t base = base_before(text, end);
    const char32_t c = next_code_point(text, base);
    return is_of_spaced_word(c) && kind_of(c) != CharacterKind::mark ? c : char32_t{0};
  };
  if (position == 0) return false;
  if (is_any_of(text[position - 1], local_signs)) return true;
  const char32_t last = last_of(position);
  if (last < 0x80 || static_cast<unsigned char>(text[position]) >= 0x80) return last != 0;
  // Where what a whole word of other letters begins would be too long for one, an address stands behind it.
  size_t begin = position;
  while (begin > 0 && position - begin <= longest_local && last_of(begin) != 0) begin = base_before(text, begin);
  return position - begin <= longest_local;
}

size_t local_end(std::string_view text) {
  size_t position = 0;
  for (size_t next = 0; next < text.size(); position = next) {
    const char32_t c = next_code_point(text, next);
    if (!is_of_spaced_word(c) && !is_any_of(text[position], local_signs)) break;
  }
  return position;
}

/// Of Latin script, or what goes with it: the blocks of letters, and the modifiers and marks between the first ones.
bool is_latin(char32_t c) {
  static constexpr std::array<std::pair<char32_t, char32_t>, 8> blocks = {{{0, 0x36F},
                                                                           {0x1D00, 0x1DBF},
                                                                           {0x1E00, 0x1EFF},
                                                                           {0x2C60, 0x2C7F},
                                                                           {0xA720, 0xA7FF},
                                                                           {0xAB30, 0xAB6F},
                                                                           {0xFF21, 0xFF5A},
                                                                           {0x1DF00, 0x1DFFF}}};
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](const auto& block) { return block.first <= c && c <= block.second; });
}

size_t domain_end(std::string_view text) {
  size_t position = 0;
  char last = '\0';  // 0: beyond ASCII
  for (size_t next = 0; next < text.size(); position = next) {
    const char32_t c = next_code_point(text, next);
    const bool belongs = c == U'.' || c == U'-' || (is_of_spaced_word(c) && !is_joiner(c) && c != 0xFE0F);
    if (!belongs || (!is_latin(c) && is_letter_or_digit(c) && is_ascii_letter(last))) break;
    last = c < 0x80 ? static_cast<char>(c) : '\0';
  }
  return position;
}

size_t mail_end(std::string_view text, size_t begin) {
  constexpr size_t longest_domain = 253;
  const auto local = text.substr(begin, longest_local + 1);
  const size_t sign = local_end(local);
  if (at(local, sign) != '@') return nowhere;
  const auto rest = text.substr(begin + sign + 1, longest_domain);
  size_t end = domain_end(rest);
  while (end > 0 && is_any_of(rest[end - 1], ".-")) --end;
  const auto domain = rest.substr(0, end);
  const size_t point = domain.rfind('.');
  if (point == nowhere || point == 0 || domain.find("..") != nowhere || domain.front() == '.' ||
      domain.front() == '-') {
    return nowhere;
  }
  int letters = 0;
  for (size_t position = point + 1; position < domain.size();) {
    const char32_t c = next_code_point(domain, position);
    if (!is_word_character(c) || kind_of(c) == CharacterKind::digit) return nowhere;
    letters += is_letter_or_digit(c);
  }
  return letters >= 2 ? begin + sign + 1 + end : nowhere;
}

}  // namespace

size_t placeholder_end(std::string_view text, size_t position, bool in_markup) {
  const char c = text[position];
  if (c == '{' || (c == '$' && at(text, position + 1) == '{')) {
    const size_t begin = position + (c == '$');
    const size_t end = braces_end(text.substr(begin), in_markup);
    return end == nowhere ? nowhere : begin + end;
  }
  if (c == '%') return percent_end(text, position);
  const auto before = text.substr(0, position);
  size_t end = position;
  const bool beyond_ascii = (static_cast<unsigned char>(c) & 0x80) != 0;
  if (beyond_ascii ? !is_letter_or_digit(next_code_point(text, end)) : !is_name(c)) return nowhere;
  if (!beyond_ascii) {
    if (!before.empty() && is_name(before.back())) return nowhere;
    end = address_end(text, position, in_markup);
    if (end != nowhere) return end;
  }
  return is_within_local(text, position) ? nowhere : mail_end(text, position);
}

std::vector<TextSpan> find_placeholders(std::string_view text) {
  std::vector<TextSpan> found;
  for (size_t position = 0; position < text.size();) {
    const size_t end = placeholder_end(text, position);
    if (end != nowhere) found.push_back({position, end});
    position = end != nowhere ? end : position + 1;
  }
  return found;
}

}  // namespace transformer
