#include "transformer/text/text_end.h"

#include <utf8proc.h>

#include <array>
#include <cstddef>

#include "transformer/base/unicode.h"

namespace transformer {

namespace {

/// Characters that begin alike.
struct Beginning {
  int all = 0, marks = 0, of_words = 0;  // the latter of spaced writing, with its marks

  bool likely_behind(WordKind before) const {
    return before == WordKind::word ? of_words * 2 > all : before == WordKind::syllable && marks * 20 > all;
  }
};

/// Those that begin with `part`.
Beginning beginning_with(std::string_view part) {
  auto least = std::string(part), greatest = least;
  const auto lead = static_cast<unsigned char>(part.front());
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  least.resize(length, '\x80');
  greatest.resize(length, '\xBF');
  Beginning beginning;
  for (auto bytes = least;;) {
    size_t position = 0;
    const auto character = next_code_point(bytes, position);
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
    if (position == length && category != UTF8PROC_CATEGORY_CN && category != UTF8PROC_CATEGORY_CO) {
      ++beginning.all;
      beginning.marks += goes_on(WordKind::syllable, character);
      beginning.of_words += is_of_spaced_word(character);
    }
    if (bytes == greatest) return beginning;
    size_t last = length - 1;
    for (; bytes[last] == '\xBF'; --last) bytes[last] = '\x80';
    ++bytes[last];
  }
}

/// The same of a first byte, from a table: there are many characters behind some.
const Beginning& beginning_with(unsigned char lead) {
  static const auto leads = [] {
    std::array<Beginning, 256> table{};
    // Behind 0xF1 and above is nothing but what is of private use.
    for (size_t byte = 0xC2; byte <= 0xF0; ++byte)
      table[byte] = beginning_with(std::string(1, static_cast<char>(byte)));
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

TextEnd::Next TextEnd::append(char byte) {
  // As most are, without a detour.
  if (const auto value = static_cast<unsigned char>(byte); part_.empty() && value < 0x80) return take(value);
  if (broken_by(byte)) {
    part_.clear();
    last_ = WordKind::apart;
  }
  part_ += byte;
  if (begins_sequence(part_)) return Next::unknown;
  size_t position = 0;
  const char32_t character = next_code_point(part_, position);
  part_.clear();
  return take(character);
}

TextEnd::Next TextEnd::take(char32_t character) {
  if (is_joiner(character)) return Next::unknown;
  const bool on = goes_on(last_, character);
  if (!on) last_ = word_kind(WordKind::apart, character);
  return on ? Next::goes_on : Next::apart;
}

void TextEnd::append(std::string_view text) {
  for (const char byte : text) append(byte);
}

bool TextEnd::continued_by(std::string_view text) const {
  auto end = *this;
  for (const char byte : text) {
    if (const auto next = end.append(byte); next != Next::unknown) return next == Next::goes_on;
  }
  return !text.empty() && end.likely_to_go_on();
}

bool TextEnd::likely_to_go_on() const {
  if (part_.empty() || last_ == WordKind::apart) return false;
  const auto beginning =
      part_.size() == 1 ? beginning_with(static_cast<unsigned char>(part_.front())) : beginning_with(part_);
  return beginning.likely_behind(last_);
}

}  // namespace transformer
