#include "transformer/base/unicode.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>

#include "catch.h"
#include "transformer/base/ascii.h"

namespace transformer::test {

TEST_CASE("what is UTF-8 and what is not") {
  for (const std::string broken :
       {"\xFF", "\x80", "\xC3", "a\xC3(", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xE2\x82", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF0\x9F\x98",
        "\xE2\x28\xA1", "\xE2\x82\x28"}) {
    CAPTURE(broken);
    const size_t at = broken.starts_with('a') ? 1 : 0;
    CHECK(find_broken_utf8(broken) == at);
    CHECK(find_broken_utf8(std::string("\u20AC").append(broken)) == 3 + at);
    size_t position = at;
    CHECK(next_code_point(broken, position) == 0xFFFD);
    CHECK(position == at + 1);
  }
  for (const char32_t whole :
       std::initializer_list<char32_t>{1, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}) {
    std::string text;
    append_utf8(whole, text);
    CHECK(find_broken_utf8(text) == std::string_view::npos);
    CHECK(sequence_length(text) == text.size());
    size_t position = 0;
    CHECK(next_code_point(text, position) == whole);
    CHECK(position == text.size());
  }
  CHECK(sequence_length("") == 0);
  CHECK(find_broken_utf8(std::string_view("\0", 1)) == std::string_view::npos);
}

TEST_CASE("text is made UTF-8 byte by byte, and its control characters are known") {
  CHECK(repaired_utf8("").empty());
  CHECK(repaired_utf8("Übel \U0001F600") == "Übel \U0001F600");
  CHECK(repaired_utf8("a\xFF\xC3"
                      "b\xE2\x82") == "a\uFFFD\uFFFDb\uFFFD\uFFFD");
  CHECK(find_broken_utf8(repaired_utf8("\xED\xA0\x80\xC0\x80\xF4\x90\x80\x80")) == std::string_view::npos);
  for (const std::string_view control : {"\t", "a\nb", "\x1B", "\x7F", "\x01"}) CHECK(has_control_characters(control));
  CHECK(has_control_characters(std::string_view("\0", 1)));
  for (const std::string_view none : {"", "a b", "~", "\u0085", "ä"}) CHECK_FALSE(has_control_characters(none));
}

TEST_CASE("what a character begins with is what begins one, by trying them all") {
  std::set<std::string> beginnings;
  for (char32_t character = 0; character <= 0x10FFFF; ++character) {
    if (character >= 0xD800 && character <= 0xDFFF) continue;
    std::string whole;
    append_utf8(character, whole);
    for (size_t length = 1; length < whole.size(); ++length) beginnings.insert(whole.substr(0, length));
  }
  size_t found = 0, wrong = 0;
  const auto look_at = [&](const std::string& text) {
    found += begins_sequence(text);
    wrong += begins_sequence(text) != beginnings.contains(text);
  };
  for (int a = 0; a < 256; ++a) {
    const auto one = std::string(1, static_cast<char>(a));
    look_at(one);
    for (int b = 0; b < 256; ++b) {
      const auto two = one + static_cast<char>(b);
      look_at(two);
      if (a < 0xED && b % 7 != 0) continue;
      for (int c = 0; c < 256; ++c) look_at(two + static_cast<char>(c));
    }
  }
  CHECK(wrong == 0);
  CHECK(found == beginnings.size());
  CHECK_FALSE(begins_sequence(""));
  CHECK_FALSE(begins_sequence("\xF0\x9F\x98\x80"));
}

TEST_CASE("trim takes blanks of every kind off the ends only") {
  CHECK(trim(" \t a  b \r\t") == "a  b");
  CHECK(trim(" \t ").empty());
  CHECK(trim("").empty());
  CHECK(trim("\u00A0\u3000x\u00A0y\u2009\u0085") == "x\u00A0y");
  CHECK(trim_end(" x\u3000 ") == " x");
  CHECK(trim("\xFF \xFE") == "\xFF \xFE");
  // Not blank for Unicode: zero-width space, byte order mark.
  CHECK(trim("\u200Bx\uFEFF") == "\u200Bx\uFEFF");
}

TEST_CASE("a stranger's text cannot act on a terminal, nor fill a screen") {
  CHECK(printable("plain, \u00FC\u20AC\U0001F600") == "plain, \u00FC\u20AC\U0001F600");
  CHECK(printable("\x1B[31mred\x1B[0m\a\b\r\n\t\x7F") == "\\x1b[31mred\\x1b[0m\\x07\\x08\\x0d\\x0a\\x09\\x7f");
  // C1 controls, of which U+009B begins a sequence as ESC [ does; marks that reorder or hide text; noncharacters.
  CHECK(printable("\u009B31m\u202Ex\u2066\u200B\u2028\uFEFF\u00AD") ==
        "\\x9b31m\\u202ex\\u2066\\u200b\\u2028\\ufeff\\xad");
  CHECK(printable("\U000E0041\uFFFF\U0010FFFF") == "\\U000e0041\\uffff\\U0010ffff");
  CHECK(printable("a\xFFz\xE2\x82") == "a\\xffz\\xe2\\x82");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable(std::string(80, 'x')) == std::string(80, 'x'));
  CHECK(printable(std::string(81, 'x')) == std::string(80, 'x') + "...");
  CHECK(printable(std::string(3 << 20, 'x'), 10) == "xxxxxxxxxx...");
  // Never half a character.
  CHECK(printable("123\u20AC", 4) == "123...");
  CHECK(in_quotes("a\nb") == "'a\\x0ab'");
}

TEST_CASE("a shell takes a quoted word for what it is") {
  CHECK(shell_quoted("--set") == "--set");
  CHECK(shell_quoted("training.seed=1") == "training.seed=1");
  CHECK(shell_quoted("PATH=x") == "'PATH=x'");
  const std::array words = {"",        " ",  "a b",    "it's",  "'",    "\"",  "$HOME",  "`id`",
                            "a\\b",    "*",  "~",      "a;b",   "a\nb", "&&",  "\u00FC", "x=y",
                            "=x",      "#x", "!!",     "{a,b}", "-",    "[a]", "a\tb",   "runs/x.",
                            "\x1B[0m", "(",  "it''s'", "\\",    "%1",   "|",   "<>",     "?"};
  std::string command = "printf '%s\\0'";
  std::string expected;
  for (const std::string word : words) {
    command.append(" ").append(shell_quoted(word));
    expected += word + '\0';
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  REQUIRE(pipe);
  std::string found(2 * expected.size(), '\0');
  found.resize(std::fread(found.data(), 1, found.size(), pipe.get()));
  CHECK(found == expected);
}

TEST_CASE("classes of ASCII are the C library's without a locale, of every byte") {
  for (int byte = 0; byte < 256; ++byte) {
    const auto c = static_cast<char>(byte);
    CAPTURE(byte);
    CHECK(is_ascii_digit(c) == (std::isdigit(byte) != 0));
    CHECK(is_ascii_upper(c) == (std::isupper(byte) != 0));
    CHECK(is_ascii_lower(c) == (std::islower(byte) != 0));
    CHECK(is_ascii_letter(c) == (std::isalpha(byte) != 0));
    CHECK(is_ascii_alphanumeric(c) == (std::isalnum(byte) != 0));
    CHECK(is_ascii_punctuation(c) == (std::ispunct(byte) != 0));
    CHECK(ascii_lower(c) == static_cast<char>(std::tolower(byte)));
    CHECK(ascii_upper(c) == static_cast<char>(std::toupper(byte)));
    const char text[] = {c, 0};
    CHECK(hexadecimal_digit(c) == (std::isxdigit(byte) ? static_cast<int>(std::strtol(text, nullptr, 16)) : -1));
  }
}

}  // namespace transformer::test
