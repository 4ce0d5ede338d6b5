#include "transformer/text/normalization.h"

#include <nlohmann/json.hpp>

#include "text_support.h"
#include "transformer/base/unicode.h"

namespace transformer::test {

TEST_CASE("normal forms are those of Python's unicodedata") {
  const TemporaryDirectory folder;
  run_reference("normal_forms.py", (folder / "forms.json").string());
  size_t wrong = 0, plain = 0;
  for (const auto& pair : nlohmann::json::parse(read_file(folder / "forms.json"))) {
    const auto text = pair[0].get<std::string>(), expected = pair[1].get<std::string>();
    const auto found = normalized(text);
    const bool same = found == expected && normalized(found) == found && (!is_plainly_normal(text) || text == expected);
    plain += is_plainly_normal(text) && text.size() > 1;
    if (same || ++wrong > 5) continue;
    CHECK(printable(text) + " -> " + printable(found) == printable(text) + " -> " + printable(expected));
  }
  CHECK(wrong == 0);
  CHECK(plain > 300);
}

TEST_CASE("normal text has the words of the text, one for one") {
  const std::string words_of_the_text =
      "Caf\u00E9 au  lait\t\u00A0na\u0131\u0308ve \x01 \u2003\x7Fx\u0085 e\u0301\u3000";
  const auto normal = normalized(words_of_the_text);
  CHECK(normal == "Caf\u00E9 au lait na\u0131\u0308ve \uFFFD x \u00E9");
  const auto before = split_words(words_of_the_text), after = split_words(normal);
  REQUIRE(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) CHECK(normalized(before[i]) == after[i]);
}

TEST_CASE("text that is no UTF-8 becomes text, and odd text stays") {
  CHECK(normalized("a\xFF z") == "a\uFFFD z");
  CHECK(normalized("\xE2\x82") == "\uFFFD\uFFFD");
  CHECK(normalized(std::string("a\0b", 3)) == "ab");
  CHECK(normalized("") == "");
  CHECK(normalized(" \t\u2028") == "");
  for (const std::string text :
       {"\u2581", "\uFB01", "\uFEFF", "\u00AD", "\U0010FFFE", "\U0001F468\u200D\U0001F469", "x\u00B2"}) {
    CHECK(normalized(text) == text);
  }
}

TEST_CASE("a line of nothing but marks takes no longer than another") {
  std::string marks = "a", sorted = "\u1EA1";  // with one dot below
  for (int i = 0; i < 260000; ++i) marks += "\u0301\u0323";
  for (int i = 1; i < 260000; ++i) sorted += "\u0323";
  for (int i = 0; i < 260000; ++i) sorted += "\u0301";
  CHECK(normalized(marks) == sorted);
}

}  // namespace transformer::test
