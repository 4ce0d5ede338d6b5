#include "transformer/text/glossary.h"

#include <random>

#include "text/text_support.h"
#include "transformer/base/unicode.h"

namespace transformer::test {

namespace {

using Strings = std::vector<std::string>;

Strings found(const Glossary& glossary, const std::string& text) {
  Strings terms;
  for (const auto& match : glossary.find(text)) terms.emplace_back(match.of(text));
  return terms;
}

}  // namespace

TEST_CASE("terms are found as whole words, the longest first") {
  const Glossary glossary(
      {{"hard drive", "Festplatte"}, {"hard", "hart"}, {"drive", "Laufwerk"}, {"drive bay", "Schacht"}});
  CHECK(found(glossary, "A hard drive, hardly a drive; harddrive") == Strings{"hard drive", "drive"});
  // A term that is taken is not taken again for another that begins within it.
  CHECK(found(glossary, "hard drive bay") == Strings{"hard drive"});
  CHECK(glossary.targets("drive hard  \t drive drive drives") == Strings{"Laufwerk", "Festplatte"});
  CHECK(found(glossary, "").empty());
  CHECK(found(glossary, "hard") == Strings{"hard"});
  CHECK(found(glossary, "(hard)-drive_bay hard.") == Strings{"hard", "drive", "hard"});
}

TEST_CASE("terms without a capital are found in any case, others as they are written") {
  const Glossary glossary({{"apple", "Apfel"}, {"Apple", "Apple Inc."}, {"USB", "USB"}, {"éclair", "Blitz"}});
  CHECK(glossary.targets("Apple, apple and APPLE") == Strings{"Apple Inc.", "Apfel"});
  CHECK(glossary.targets("usb Usb") == Strings{});
  CHECK(glossary.targets("USB") == Strings{"USB"});
  CHECK(glossary.targets("E\xCC\x81"
                         "CLAIR") == Strings{"Blitz"});
  CHECK(glossary.targets("e\xCC\x81"
                         "clair") == Strings{"Blitz"});
}

TEST_CASE("scripts without spaces have terms anywhere, and terms may begin with what is no letter") {
  const Glossary glossary({{"世界", "world"}, {"c++", "C++"}, {"-x", "minus x"}});
  CHECK(glossary.targets("你好世界！") == Strings{"world"});
  CHECK(glossary.targets("In C++ a-x, and c++11.") == Strings{"C++", "minus x"});
}

TEST_CASE("letters that are one in capitals are one") {
  const Glossary glossary({{"λόγος", "word"}, {"straße", "street"}, {"Σίγμας", "Sigma"}});
  CHECK(glossary.targets("ΛΌΓΟΣ") == Strings{"word"});
  CHECK(glossary.targets("λόγοσ λόγος") == Strings{"word"});
  CHECK(glossary.targets("STRAẞE") == Strings{"street"});
  CHECK(glossary.targets("STRASSE").empty());
  // As written alone, where it has a capital; ς is none.
  CHECK(glossary.targets("Σίγμας") == Strings{"Sigma"});
  CHECK(glossary.targets("ΣΊΓΜΑΣ Σίγμασ").empty());
}

TEST_CASE("a letter is not cut from its marks, nor a word at a joiner, and marks of signs are none of words") {
  const Glossary glossary({{"car", "Wagen"}, {"\u0E2B\u0E19", "nearby"}, {"\u845B", "kudzu"}});
  for (const std::string sign : {"\u2764\uFE0F", "\u2714\uFE0E", "#\uFE0F\u20E3", "\U0001F468\u200D\U0001F467",
                                 " \u0301", "\u200D", ".\u2060"}) {
    INFO(sign);
    CHECK(found(glossary, sign + "car.") == Strings{"car"});
    CHECK(Glossary(std::vector<Glossary::Term>{{sign, "x"}}).targets("a " + sign + "\uFE0F") == Strings{"x"});
  }
  for (const std::string joiner : {"\u00AD", "\u034F", "\u200C", "\u200D", "\u2060"}) {
    INFO(joiner);
    CHECK(found(glossary, "car" + joiner + "bon os" + joiner + "car").empty());
    CHECK(found(glossary, "car" + joiner + " car" + joiner + ", car" + joiner).size() == 3);
  }
  CHECK(found(glossary, "car\u0301").empty());
  // Thai: another word with the vowel sign, but not with another letter; of Chinese, the same with a variation.
  CHECK(found(glossary, "\u0E2B\u0E19\u0E39").empty());
  CHECK(found(glossary, "\u0E14\u0E2B\u0E19\u0E14").size() == 1);
  CHECK(found(glossary, "\u845B\U000E0100").size() == 1);
  for (const auto& [letter, mark] : {std::pair("\u0E99", "\u0EB9"), {"\u1780", "\u17BB"}, {"\u1000", "\u102F"}}) {
    const Glossary term(std::vector<Glossary::Term>{{letter, "x"}});
    CHECK(term.targets(letter + std::string(mark)).empty());
    CHECK(term.targets(letter + std::string(letter)).size() == 1);
  }
}

TEST_CASE("terms are those that trying every stretch finds") {
  std::mt19937 random(5);
  const Strings units = {"a", "B", " ", "ab", "é", "."};
  const auto draw = [&](size_t count) {
    std::string text;
    while (count-- > 0) text += units[random() % units.size()];
    return std::string(trim(text));
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<Glossary::Term> terms;
    for (int i = 0; i < 4; ++i) {
      const auto term = draw(1 + random() % 3);
      const auto same = [&](const auto& other) { return other.source == term; };
      if (term.empty() || term.find("  ") != std::string::npos || std::any_of(terms.begin(), terms.end(), same))
        continue;
      terms.push_back({term, "x"});
    }
    std::string text;
    const auto drawn = draw(12);
    for (const auto word : split_words(drawn)) text.append(text.empty() ? "" : " ").append(word);
    const auto folded = [](std::string s) {
      for (char& c : s) c = c == 'B' ? 'b' : c;
      return s;
    };
    const auto boundary = [&](size_t at) {
      const auto word = [](char c) { return c != ' ' && c != '.'; };
      return at == 0 || at == text.size() || !word(text[at - 1]) || !word(text[at]);
    };
    Strings expected;
    for (size_t begin = 0; begin < text.size();) {
      size_t longest = 0;
      for (const auto& [source, target] : terms) {
        const auto part = text.substr(begin, source.size());
        const bool capital = source.find('B') != std::string::npos;
        const bool equal = capital ? part == source : folded(part) == source;
        if (equal && boundary(begin) && boundary(begin + source.size())) longest = std::max(longest, source.size());
      }
      if (longest > 0) expected.push_back(text.substr(begin, longest));
      begin += std::max<size_t>(longest, 1);
    }
    CAPTURE(text);
    CHECK(found(Glossary(terms), text) == expected);
  }
}

TEST_CASE("glossaries are read, and mistakes in them named") {
  const TemporaryDirectory folder;
  const auto file = folder / "terms.tsv";
  write_file(file, "\xEF\xBB\xBFhard drive\tFestplatte\r\n\n  bay \t Schacht \n");
  const auto glossary = Glossary::read(file);
  REQUIRE(glossary.terms().size() == 2);
  CHECK(glossary.terms()[1].source == "bay");
  CHECK(glossary.terms()[1].target == "Schacht");
  for (const auto& [text, mistake] : std::vector<std::pair<std::string, std::string>>{
           {"a\tb\nno tab\n", ":2: expected a term, a tab and its translation, found 'no tab'"},
           {"a\tb\tc\n", ":1: expected"},
           {"\tb\n", ":1: there is no term"},
           {"a\t \n", ":1: there is no translation"},
           {"\n\n", "has no terms"},
           {"a b\tc\n\na  b\td\n", ":3: 'a b' came before"},
           {std::string(1001, 'a') + "\tb\n", ":1: a term of more than 1000 bytes"},
           {"a\xFF\tb\n", "UTF-8"}}) {
    write_file(file, text);
    CHECK_THAT(error_of([&] { Glossary::read(file); }), Contains(mistake));
  }
  CHECK_THAT(error_of([] { Glossary({{"a", "b"}, {"a", "c"}}); }), Contains("term 2 of the glossary"));
}

TEST_CASE("long texts are searched in a time that grows with their length alone") {
  std::string term = "a";
  while (term.size() < 990) term += " a";
  const Glossary glossary({{term, "x"}});
  std::string text;
  while (text.size() < (1 << 19)) text += "a ";
  CHECK(glossary.find(text + "b").size() > 500);
}

}  // namespace transformer::test
