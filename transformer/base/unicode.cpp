#include "transformer/base/unicode.h"

#include <fmt/format.h>

#include <algorithm>

namespace transformer {
namespace {

/// Characters that change how what follows is shown, or that show as nothing at all.
bool is_hidden(char32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0) || code_point == 0xAD || code_point == 0x61C ||
         (code_point >= 0x200B && code_point <= 0x200F) || (code_point >= 0x2028 && code_point <= 0x202E) ||
         (code_point >= 0x2060 && code_point <= 0x206F) || code_point == 0xFEFF ||
         (code_point >= 0xFFF0 && code_point <= 0xFFFB) || (code_point & 0xFFFE) == 0xFFFE ||
         (code_point >= 0xE0000 && code_point <= 0xE0FFF);
}

}  // namespace

size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && continues_character(text[i]); };
  if (text.empty()) return 0;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead < 0xF0) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
    if (lead == 0xED && byte(1) >= 0xA0) return 0;  // surrogate
    return 3;
  }
  if (lead >= 0xF0 && lead < 0xF5) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;   // overlong
    if (lead == 0xF4 && byte(1) >= 0x90) return 0;  // above U+10FFFF
    return 4;
  }
  return 0;
}

bool begins_sequence(std::string_view text) {
  if (text.empty() || text.size() > 3 || static_cast<unsigned char>(text.front()) < 0xC2) return false;
  // Of what may follow a first byte, what is overlong is among the least, and surrogates are among the greatest.
  for (const char byte : {'\x80', '\xBF'}) {
    auto longest = std::string(text);
    longest.resize(4, byte);
    if (sequence_length(longest) > text.size()) return true;
  }
  return false;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const size_t length = sequence_length(text.substr(position));
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[position + i])); };
  char32_t code_point = 0xFFFD;
  if (length == 1) code_point = byte(0);
  if (length == 2) code_point = (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
  if (length == 3) code_point = (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (length == 4) {
    code_point = (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  position += std::max<size_t>(length, 1);
  return code_point;
}

void append_utf8(char32_t code_point, std::string& text) {
  const auto byte = [&](char32_t value) { text.push_back(static_cast<char>(value)); };
  const auto continuation = [&](int shift) { byte(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    byte(code_point);
  } else if (code_point < 0x800) {
    byte(0xC0 | code_point >> 6);
    continuation(0);
  } else if (code_point < 0x10000) {
    byte(0xE0 | code_point >> 12);
    continuation(6);
    continuation(0);
  } else {
    byte(0xF0 | code_point >> 18);
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

size_t find_broken_utf8(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const size_t length = sequence_length(text.substr(position));
    if (length == 0) return position;
    position += length;
  }
  return std::string_view::npos;
}

std::string repaired_utf8(std::string_view text) {
  std::string result;
  for (size_t position = 0; position < text.size();) append_utf8(next_code_point(text, position), result);
  return result;
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

bool is_blank(char32_t code_point) {
  return (code_point >= 0x9 && code_point <= 0xD) || (code_point >= 0x1C && code_point <= 0x20) || code_point == 0x85 ||
         code_point == 0xA0 || code_point == 0x1680 || (code_point >= 0x2000 && code_point <= 0x200A) ||
         code_point == 0x2028 || code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t here = position;
    if (is_blank(next_code_point(text, position))) {
      if (here > begin) words.push_back(text.substr(begin, here - begin));
      begin = position;
    }
  }
  if (text.size() > begin) words.push_back(text.substr(begin));
  return words;
}

std::string_view trim(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const size_t here = position;
    if (!is_blank(next_code_point(text, position))) return trim_end(text.substr(here));
  }
  return {};
}

std::string_view trim_end(std::string_view text) {
  size_t end = 0;
  for (size_t position = 0; position < text.size();) {
    if (!is_blank(next_code_point(text, position))) end = position;
  }
  return text.substr(0, end);
}

std::string printable(std::string_view text, size_t longest) {
  std::string shown;
  for (size_t position = 0; position < text.size();) {
    const size_t here = position;
    const bool broken = sequence_length(text.substr(here)) == 0;
    const char32_t code_point = next_code_point(text, position);
    std::string character(text.substr(here, position - here));
    if (broken) {
      character = fmt::format("\\x{:02x}", static_cast<unsigned char>(text[here]));
    } else if (is_hidden(code_point)) {
      character = code_point < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(code_point))
                  : code_point < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(code_point))
                                         : fmt::format("\\U{:08x}", static_cast<uint32_t>(code_point));
    }
    if (shown.size() + character.size() > longest) return shown + "...";
    shown += character;
  }
  return shown;
}

std::string in_quotes(std::string_view text, size_t longest) {
  return fmt::format("'{}'", printable(text, longest));
}

std::string shell_quoted(std::string_view word) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:,@%+=";
  const bool is_plain = !word.empty() && word.find_first_not_of(plain) == std::string_view::npos;
  // NAME=value is an assignment where a command is expected.
  const auto name = word.substr(0, word.find('='));
  const bool is_assignment = name != word && name.find_first_of("-./:,@%+") == std::string_view::npos;
  if (is_plain && !is_assignment) return std::string(word);
  std::string quoted = "'";
  for (const char character : word) {
    if (character == '\'') {
      quoted += "'\\''";
    } else {
      quoted += character;
    }
  }
  return quoted + "'";
}

}  // namespace transformer
