#include "transformer/text/text_end.h"

#include <utf8proc.h>

#include <array>
#include <cstddef>

#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"

namespace transformer {

namespace {

/// Whether most of the characters that begin with `part` are of words.
bool mostly_of_words(std::string_view part) {
  auto least = std::string(part), greatest = least;
  const auto lead = static_cast<unsigned char>(part.front());
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  least.resize(length, '\x80');
  greatest.resize(length, '\xBF');
  int words = 0, others = 0;
  for (auto bytes = least;;) {
    size_t position = 0;
    const auto character = next_code_point(bytes, position);
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
    if (position == length && category != UTF8PROC_CATEGORY_CN && category != UTF8PROC_CATEGORY_CO) {
      ++(is_of_spaced_word(character) ? words : others);
    }
    if (bytes == greatest) return words > others;
    size_t last = length - 1;
    for (; bytes[last] == '\xBF'; --last) bytes[last] = '\x80';
    ++bytes[last];
  }
}

/// The same of a first byte, from a table: there are many characters behind some.
bool mostly_of_words(unsigned char lead) {
  static const auto leads = [] {
    std::array<bool, 256> table{};
    // Behind 0xF1 and above is nothing but what is of private use.
    for (size_t byte = 0xC2; byte <= 0xF0; ++byte)
      table[byte] = mostly_of_words(std::string(1, static_cast<char>(byte)));
    return table;
  }();
  return leads[lead];
}

}  // namespace

bool TextEnd::broken_by(char byte) const {
  if (part_.empty()) return false;
  const auto longer = part_ + byte;
  return sequence_length(longer) == 0 && !begins_sequence(longer);
}

bool TextEnd::append(char byte) {
  if (broken_by(byte)) {
    part_.clear();
    in_word_ = false;
  }
  part_ += byte;
  if (begins_sequence(part_)) return false;
  size_t position = 0;
  in_word_ = is_of_spaced_word(next_code_point(part_, position));
  part_.clear();
  return true;
}

void TextEnd::append(std::string_view text) {
  for (const char byte : text) append(byte);
}

bool TextEnd::continued_by(std::string_view text) const {
  auto end = *this;
  for (const char byte : text) {
    if (end.broken_by(byte)) return false;
    if (end.append(byte)) return end.in_word();
  }
  return !text.empty() && end.likely_in_word();
}

bool TextEnd::likely_in_word() const {
  if (part_.empty()) return false;
  return part_.size() == 1 ? mostly_of_words(static_cast<unsigned char>(part_.front())) : mostly_of_words(part_);
}

}  // namespace transformer
