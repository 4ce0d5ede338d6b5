#include "transformer/text/text_end.h"

#include <initializer_list>
#include <random>
#include <string>

#include "catch.h"
#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"

namespace transformer::test {

TEST_CASE("the end of a text byte by byte is that of the whole text") {
  std::mt19937 random(4);
  const std::string bytes = "a1 .\xC3\xA4\x97\xD8\xA7\x8C\xE2\x80\x9C\xB5\xED\x95\xF0\x9F\xFF";
  int words = 0, parts = 0, broken = 0;
  for (int time = 0; time < 20000; ++time) {
    std::string text;
    TextEnd end;
    for (size_t length = 1 + random() % 7; length > 0; --length) {
      text += bytes[random() % bytes.size()];
      broken += end.broken_by(text.back());
      end.append(text.back());
    }
    // Where the text has no way to go on, its last bytes are no character.
    const auto tail = [&](size_t length) { return std::string_view(text).substr(text.size() - length); };
    bool in_character = false;
    for (size_t length = 1; length <= std::min<size_t>(3, text.size()); ++length) {
      in_character = in_character || begins_sequence(tail(length));
    }
    CHECK(end.in_character() == in_character);
    parts += in_character;
    if (in_character) continue;
    char32_t last = 0;
    for (size_t position = 0; position < text.size();) last = next_code_point(text, position);
    CHECK(end.in_word() == is_of_spaced_word(last));
    words += end.in_word();
  }
  CHECK(words > 1000);
  CHECK(parts > 1000);
  CHECK(broken > 1000);
}

TEST_CASE("a word is gone on with by letters and digits of writing that sets words apart") {
  const TextEnd nothing;
  for (const char* text : {"e", "é", "5", "ж", "ع", "न", "한", "ا،", "\u0301"}) CHECK(nothing.continued_by(text));
  for (const char* text : {"", " e", ".", "×", "÷", "،", "؟", "۔", "।", "։", "።", "–", "北", "ไ", "\xFF", "\xA4"}) {
    INFO(text);
    CHECK_FALSE(nothing.continued_by(text));
  }
  // Of the first bytes of a character, what most are that begin so.
  for (const char* part : {"\xC3", "\xD0", "\xD8", "\xE0", "\xEB", "\xEB\x8F"}) CHECK(nothing.continued_by(part));
  for (const char* part : {"\xC2", "\xE2", "\xE2\x80", "\xE5", "\xF0", "\xF0\x9F"})
    CHECK_FALSE(nothing.continued_by(part));
  // And then what it is.
  TextEnd begun;
  begun.append("\xD8");
  CHECK(begun.in_character());
  CHECK(begun.likely_in_word());
  CHECK_FALSE(begun.continued_by("\x8C"));
  CHECK(begun.continued_by("\xB9"));
  CHECK_FALSE(begun.continued_by("e"));  // behind what is broken off
  CHECK(TextEnd(true).in_word());
}

}  // namespace transformer::test
