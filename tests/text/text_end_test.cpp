#include "transformer/text/text_end.h"

#include <initializer_list>
#include <random>
#include <string>
#include <utility>

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
    bool in_word = false;
    for (size_t position = 0; position < text.size();) {
      const char32_t c = next_code_point(text, position);
      if (kind_of(c) != CharacterKind::mark) in_word = is_of_spaced_word(c);
    }
    CHECK(end.in_word() == in_word);
    words += end.in_word();
  }
  CHECK(words > 1000);
  CHECK(parts > 1000);
  CHECK(broken > 1000);
}

TEST_CASE("a word is gone on with by letters and digits of writing that sets words apart") {
  const TextEnd word(WordKind::word);
  for (const char* text : {"e", "é", "5", "ж", "ع", "न", "한", "ا،", "\u0301", "\u00ADe"})
    CHECK(word.continued_by(text));
  for (const char* text :
       {"", " e", ".", "×", "÷", "،", "؟", "۔", "।", "։", "።", "–", "北", "ไ", "\xFF", "\xA4", "\u00AD", "\u00AD e"}) {
    INFO(text);
    CHECK_FALSE(word.continued_by(text));
  }
  for (const char* text : {"e", "\u0301", "\xC3"}) CHECK_FALSE(TextEnd().continued_by(text));
  // Of the first bytes of a character, what most are that begin so.
  for (const char* part : {"\xC3", "\xD0", "\xD8", "\xE0", "\xEB", "\xEB\x8F"}) CHECK(word.continued_by(part));
  for (const char* part : {"\xC2", "\xE2", "\xE2\x80", "\xE5", "\xF0", "\xF0\x9F"})
    CHECK_FALSE(word.continued_by(part));
  // And then what it is.
  auto begun = word;
  begun.append("\xD8");
  CHECK(begun.in_character());
  CHECK(begun.likely_to_go_on());
  CHECK_FALSE(begun.continued_by("\x8C"));
  CHECK(begun.continued_by("\xB9"));
  CHECK_FALSE(begun.continued_by("e"));  // behind what is broken off
}

TEST_CASE("a mark is of the kind of what it is behind, and a joiner a word's only within it") {
  const auto behind = [](const char* text) {
    TextEnd end;
    end.append(text);
    return end;
  };
  for (const char* text : {"e\u0301", "ed\u200D", "e\u0E39", "\u0915\u0941"}) CHECK(behind(text).in_word());
  // An emoji with its variation selector, a key, several as one, marks behind a blank and nothing.
  for (const char* text : {"\u2764\uFE0F", "e#\uFE0F\u20E3", "\U0001F468\u200D\U0001F467", "e \u0301", "\u0301"}) {
    INFO(text);
    CHECK_FALSE(behind(text).may_go_on());
    CHECK_FALSE(behind(text).continued_by("e"));
  }
  for (const char* joiner : {"\u00AD", "\u034F", "\u200C", "\u200D", "\u2060"}) {
    INFO(joiner);
    CHECK(behind("e").continued_by(joiner + std::string("e")));
    CHECK(behind((std::string("e") + joiner).c_str()).continued_by("e"));
    CHECK_FALSE(behind("e").continued_by(joiner + std::string(".")));
    CHECK_FALSE(behind((std::string(".") + joiner).c_str()).continued_by("e"));
  }
  // Where words are not set apart, a letter goes on with its marks alone.
  for (const auto& [letter, mark] :
       {std::pair("\u0E19", "\u0E39"), {"\u0E99", "\u0EB9"}, {"\u1780", "\u17BB"}, {"\u1000", "\u102F"}}) {
    INFO(letter);
    CHECK(behind(letter).may_go_on());
    CHECK_FALSE(behind(letter).in_word());
    for (size_t bytes = 1; bytes <= 3; ++bytes) CHECK(behind(letter).continued_by(std::string(mark).substr(0, bytes)));
    for (const std::string text : {letter, "e", "\u5317", " ", "\xC3", "\xE2", "\xE2\x80", "\xE3", "\xEF", "\xF0"})
      CHECK_FALSE(behind(letter).continued_by(text));
  }
  CHECK_FALSE(behind("\u5317").may_go_on());
}

}  // namespace transformer::test
