#include "transformer/text/split_text.h"

#include <algorithm>
#include <random>

#include "text/text_support.h"
#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"
#include "transformer/text/lines.h"

namespace transformer::test {

namespace {

using Strings = std::vector<std::string>;
using Language = SentenceLanguage;

Strings sentences(const std::string& line, Language language = Language::any) {
  Strings result;
  for (const auto& span : split_sentences(line, language)) result.emplace_back(span.of(line));
  return result;
}

Strings segments(const SplitText& text) {
  Strings result;
  for (size_t i = 0; i < text.segments().size(); ++i) result.emplace_back(text.segment(i));
  return result;
}

/// Whether all words of a text are numbers or letters of a list's items: "1.", "a)".
bool is_layout(const std::string& text) {
  for (auto word : split_words(text)) {
    while (!word.empty()) {  // what the paragraph before ends with
      size_t next = 0;
      if (is_letter_or_digit(next_code_point(word, next))) break;
      word.remove_prefix(next);
    }
    const size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
    const bool letter = word.size() == 2 && word[0] >= 'a' && word[0] <= 'z' && word[1] == ')';
    if (letter || (digits > 0 && digits <= 3 && (word.substr(digits) == "." || word.substr(digits) == ")"))) continue;
    for (size_t position = 0; position < word.size();) {
      if (is_letter_or_digit(next_code_point(word, position))) return false;
    }
  }
  return true;
}

/// Text of whatever splits, joins or breaks text, the same for the same seed.
std::string odd_text(std::mt19937& random, size_t pieces) {
  static const Strings parts = {"a",
                                "Ab",
                                " ",
                                "  ",
                                "\t",
                                "\n",
                                "\r\n",
                                "\xC2\xA0",
                                ".",
                                "!",
                                "?",
                                "…",
                                "\"",
                                "'",
                                "(",
                                ")",
                                "„",
                                "“",
                                "»",
                                "«",
                                "1",
                                "23",
                                "Dr",
                                "z.B",
                                "usw",
                                "。",
                                "！",
                                "你",
                                "好",
                                "é",
                                "e\xCC\x81",
                                "\xD8\x9F",
                                "שלום",
                                "مرحبا",
                                "\xE2\x80\x8F",
                                ",",
                                ";",
                                "-",
                                "–",
                                "\xF0\x9F\x98\x80",
                                "\xE2\x80\xA8",
                                std::string(1, '\0'),
                                "\x7F",
                                "*",
                                "I",
                                "und",
                                "Und"};
  std::string text;
  for (size_t i = 0; i < pieces; ++i) text += parts[random() % parts.size()];
  return text;
}

}  // namespace

TEST_CASE("sentences end where they do") {
  struct Case {
    Language language;
    Strings expected;
  };
  const std::vector<Case> cases = {
      {Language::any,
       {"Keep that in mind.", "She studied art.", "It is a gem.", "I saw Phil.", "He saw Art. 5 and Nr. 7."}},
      {Language::german, {"Nach Art. 5 sind es mind. Zehn."}},
      {Language::any, {"The weather is nice.", "It was not yesterday!", "Was it?", "\"Yes,\" she said."}},
      {Language::any, {"\"Really?\" he asked.", "\"It is.\"", "(So it is.)", "He left ..."}},
      {Language::any, {"Wait...", "What?!", "No"}},
      {Language::english,
       {"Dr. Smith met Mr. J. R. Jones at 5 p.m. in the U.S. Senate.", "He was 42.", "She was not."}},
      {Language::english, {"See Fig. 3 and No. 7, e.g. page 9.", "No.", "Smith et al. (2004) said vs. did."}},
      {Language::english, {"It costs 3.50 dollars at example.com today.", "He came at 5 p.m.", "We left."}},
      {Language::german, {"Am 3. Mai kam Dr. Müller, z. B. mit dem Zug.", "Er wohnt in St. Gallen.", "Gut!"}},
      {Language::german,
       {"Die Firma hat ca. 5 Mio. Euro, bzw. Nr. 4 hat sie.", "Das war 1990.", "Dann kam d.h. nichts."}},
      {Language::german, {"Er sagte: „Ich komme.“", "„Wann?“", "»Morgen.«", "Äpfel, Birnen usw.", "Ende."}},
      {Language::any, {"1. First the one.", "2. Then the other."}},
      {Language::any, {"¿Qué tal?", "¡Muy bien!", "Gracias."}},
      {Language::any, {"Привет.", "Как дела?"}},
      {Language::any, {"مرحبا؟", "نعم۔", "لا."}},
      {Language::any, {"यह है।", "वह है।"}},
      {Language::any, {"one. two. three."}},
  };
  for (const auto& [language, expected] : cases) {
    std::string line;
    for (const auto& sentence : expected) line += (line.empty() ? "" : " ") + sentence;
    CHECK(sentences(line, language) == expected);
  }
}

TEST_CASE("sentences of scripts without spaces need none between them") {
  CHECK(sentences("你好。世界！真的？“好。”然后。") == Strings{"你好。", "世界！", "真的？", "“好。”", "然后。"});
  CHECK(sentences("これは、ペンです。 あれも。") == Strings{"これは、ペンです。", "あれも。"});
}

TEST_CASE("a full-width full stop ends no number, no enumeration and no initial") {
  for (const auto language : {Language::any, Language::english, Language::german}) {
    CHECK(sentences("円周率は３．１４です。次です。", language) == Strings{"円周率は３．１４です。", "次です。"});
    CHECK(sentences("約１，２３４．５円です．Ａ３．５版です．", language) ==
          Strings{"約１，２３４．５円です．", "Ａ３．５版です．"});
    CHECK(sentences("１．はじめに", language) == Strings{"１．はじめに"});
    CHECK(sentences("著者はＪ．Ｋ．ローリングです．次です。", language) ==
          Strings{"著者はＪ．Ｋ．ローリングです．", "次です。"});
    CHECK(sentences("合計は１２．次です．", language) == Strings{"合計は１２．", "次です．"});
    CHECK(sentences("雨です．３人です．", language) == Strings{"雨です．", "３人です．"});
    CHECK(sentences("雨です｡３人です｡", language) == Strings{"雨です｡", "３人です｡"});
    CHECK(sentences("方案A. 方案B。", language) == Strings{"方案A.", "方案B。"});
    CHECK(sentences("我今年25. 他30.", language) == Strings{"我今年25.", "他30."});
  }
}

TEST_CASE("languages differ in numbers and abbreviations") {
  CHECK(sentences("He is 42. She is 40.", Language::english).size() == 2);
  CHECK(sentences("He is 42. She is 40.", Language::german).size() == 1);
  CHECK(sentences("Der Wert ist max. Das ist gut.", Language::german).size() == 1);
  CHECK(sentences("I know Max. He is nice.", Language::english).size() == 2);
  CHECK(sentences("I know Max. He is nice.", Language::any).size() == 2);
}

TEST_CASE("blank and odd lines are no sentences, or one") {
  CHECK(sentences("").empty());
  CHECK(sentences(" \t \xC2\xA0").empty());
  CHECK(sentences("...") == Strings{"..."});
  CHECK(sentences(" . ") == Strings{"."});
  CHECK(sentences(std::string(1, '\0') + ". A") == Strings{std::string(1, '\0') + ".", "A"});
  CHECK(sentences(std::string(100000, '.')).size() == 1);
  CHECK(sentences(std::string(100000, '"') + ". A" + std::string(100000, '(')).size() <= 2);
}

TEST_CASE("neighbouring sentences of a corpus are told apart") {
  for (const auto& [language, file] : {std::pair(Language::english, "en"), std::pair(Language::german, "de")}) {
    const auto lines = read_lines(demo_data(fmt::format("valid.{}.gz", file)));
    std::string text;
    size_t expected = 0;
    Strings whole;
    for (const auto& line : lines) {
      if (sentences(line, language).size() != 1) continue;  // the corpus has pairs of several
      whole.push_back(line);
      text += line + ' ';
    }
    const auto found = sentences(text, language);
    for (const auto& line : whole) expected += static_cast<size_t>(std::count(found.begin(), found.end(), line) > 0);
    INFO(file);
    CHECK(whole.size() > lines.size() * 9 / 10);
    CHECK(expected > whole.size() * 98 / 100);
  }
}

TEST_CASE("a text that is split and joined is the text, whatever it is") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto text = odd_text(random, 1 + random() % 60);
    CAPTURE(text);
    std::vector<size_t> breaks;
    for (size_t i = 0; i < text.size() && round % 3 == 0; ++i) {
      if (random() % 10 == 0 && (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) breaks.push_back(i);
    }
    SplitText split(text, static_cast<Language>(round % 3), breaks);
    const auto length = [](std::string_view part) { return static_cast<int64_t>(part.size()); };
    const int64_t longest = 1 + static_cast<int64_t>(random() % 40);
    const auto before = split.segments().size();
    const bool cuts = round % 2 == 1;
    const auto cut = cuts ? split.cut_longer(longest, length) : 0;
    CHECK((cut > 0) == (split.segments().size() > before));
    size_t end = 0;
    for (size_t i = 0; i < split.segments().size(); ++i) {
      const auto& segment = split.segments()[i];
      const auto part = split.segment(i);
      REQUIRE(segment.begin >= end);
      REQUIRE(segment.end > segment.begin);
      CHECK(trim(part) == part);
      CHECK(part.find('\n') == std::string::npos);
      CHECK(find_broken_utf8(part) == std::string_view::npos);
      if (!cuts) {
        for (const size_t place : breaks) CHECK((place <= segment.begin || place >= segment.end));
      } else {
        size_t first = 0;
        next_code_point(part, first);
        CHECK((length(part) <= longest || first == part.size()));
      }
      // Nothing that could be translated is left between: no word but an item's number or letter.
      if (!cuts) CHECK(is_layout(text.substr(end, segment.begin - end)));
      end = segment.end;
    }
    const auto joined = split.join(segments(split));
    CHECK(joined.text == text);
    // Every translation in its place, and nothing else changed.
    Strings translations;
    for (size_t i = 0; i < split.segments().size(); ++i) translations.push_back(fmt::format("<{}>", i));
    const auto other = split.join(translations);
    std::string rest = other.text, gaps = text;
    for (size_t i = translations.size(); i-- > 0;) {
      CHECK(other.segments[i].of(other.text) == translations[i]);
      rest.erase(other.segments[i].begin, translations[i].size());
      gaps.erase(split.segments()[i].begin, split.segments()[i].end - split.segments()[i].begin);
    }
    if (rest.size() == gaps.size()) CHECK(rest == gaps);
    CHECK(rest.size() >= gaps.size());
  }
}

TEST_CASE("blank lines, indentation and rules between paragraphs stay") {
  const std::string text = "\n\n  One. Two?\r\n\r\n\t* Three  \n----\nFour.   Five\n\n";
  const SplitText split(text);
  CHECK(segments(split) == Strings{"One.", "Two?", "Three", "Four.", "Five"});
  CHECK(split.join(Strings{"1", "2", "3", "4", "5"}).text == "\n\n  1 2\r\n\r\n\t* 3  \n----\n4   5\n\n");
  CHECK(SplitText::whole(" \t one. Two \n").join(Strings{"x"}).text == " \t x \n");
  CHECK(SplitText::whole(" \t ").segments().empty());
}

TEST_CASE("emoji are no words, whatever marks and joiners they are made with") {
  for (const std::string emoji :
       {"\u2764\uFE0F", "\u2600\uFE0F", "\u2714\uFE0F", "\U0001F468\u200D\U0001F469\u200D\U0001F467",
        "\U0001F44D\U0001F3FD", "\U0001F1E9\U0001F1EA", "\u0301"}) {
    CAPTURE(emoji);
    CHECK(segments(SplitText(emoji)).empty());
    CHECK(segments(SplitText("- " + emoji + "\n\nGo.\n" + emoji)) == Strings{"Go."});
    CHECK(segments(SplitText("Go " + emoji)) == Strings{"Go " + emoji});
  }
  CHECK(segments(SplitText("1\uFE0F\u20E3")).size() == 1);  // a digit
}

TEST_CASE("what marks a list's items stays, and is not translated") {
  for (const std::string mark : {"- ", "* ", "+ ", "• ", "‣ ", "◦ ", "▪ ", "– ", "-\t", "1. ", "12. ", "7) ", "a) ",
                                 "-  \xC2\xA0", "  - * ", "- 1. "}) {
    CAPTURE(mark);
    for (const std::string before : {"", "\n", "Go.\n\n", "\t"}) {
      const SplitText split(before + mark + "One. Two");
      const bool first = before.find('G') == std::string::npos;
      CHECK(segments(split) == (first ? Strings{"One.", "Two"} : Strings{"Go.", "One.", "Two"}));
      CHECK(split.join(first ? Strings{"1", "2"} : Strings{"0", "1", "2"}).text ==
            (first ? before : "0\n\n") + mark + "1 2");
    }
  }
  // Also where markup begins a paragraph.
  const std::vector<size_t> breaks = {2};
  CHECK(segments(SplitText("A - b", Language::any, breaks)) == Strings{"A", "b"});
  for (const std::string line :
       {"-5 degrees", "*One*", "1.5 miles", "2024. It was", "3. Mai war es.", "1.", "1. ", "a. One", "A) One", "I) One",
        "(1) One", "--- One", "-- One", "One - two", "1 One", ") One"}) {
    CAPTURE(line);
    const auto found = segments(SplitText(line));
    REQUIRE(!found.empty());
    CHECK(line.starts_with(found.front()));
  }
  CHECK(segments(SplitText("1. Mail it.")) == Strings{"Mail it."});
  CHECK(segments(SplitText("- Mai ist da.")) == Strings{"Mai ist da."});  // numbers alone are a day
  CHECK(segments(SplitText("- - - - One")) == Strings{"One"});
  CHECK(segments(SplitText("- - - - - One")) == Strings{"- One"});  // more marks are text
  CHECK(segments(SplitText("- ***")).empty());
}

TEST_CASE("translations into scripts with spaces get them between sentences") {
  const SplitText split("你好。世界！好");
  CHECK(split.join(Strings{"Hello.", "World!", "Good"}).text == "Hello. World! Good");
  CHECK(split.join(Strings{"你好。", "世界！", "好"}).text == "你好。世界！好");
  CHECK(SplitText("好。a").join(Strings{"Good.", "a"}).text == "Good. a");
  CHECK(SplitText("好。a").join(Strings{"好", "a"}).text == "好a");
  // By what stands beside the place, and not elsewhere in the translations.
  CHECK(split.join(Strings{"“你好” means hello.", "“World!”", "2 goods"}).text ==
        "“你好” means hello. “World!” 2 goods");
  CHECK(split.join(Strings{"“你好。”", "“世界！”", "2 好"}).text == "“你好。”“世界！”2 好");
}

TEST_CASE("so do translations of the parts of a sentence without spaces that was cut") {
  const auto joined = [](const std::string& text, int64_t longest, const Strings& translations) {
    SplitText split(text);
    split.cut_longer(longest, [](std::string_view part) { return std::ssize(part); });
    CHECK(split.join(segments(split)).text == text);
    return split.join(translations).text;
  };
  CHECK(joined("今天天气，很好很好很好", 18, {"The weather today,", "is very good"}) ==
        "The weather today, is very good");
  CHECK(joined("今天天气，很好很好很好", 18, {"今日の天気は、", "とてもいい"}) == "今日の天気は、とてもいい");
  CHECK(joined("今天天气很好", 9, {"today", "the weather"}) == "today the weather");
  CHECK(joined("สวัสดีครับ", 20, {"hello", "sir"}) == "hello sir");
  CHECK(joined("我们使用Python", 12, {"we use", "Python"}) == "we use Python");
  CHECK(joined("one two three", 8, {"eins zwei", "drei"}) == "eins zwei drei");
  CHECK(joined("aaaaaaaaaaaaaaaa", 8, {"bbb", "ccc"}) == "bbbccc");  // within a word
}

TEST_CASE("long sentences are cut at the best place") {
  const auto cut = [](const std::string& text, int64_t longest) {
    SplitText split(text);
    const auto count = split.cut_longer(longest, [](std::string_view part) { return std::ssize(part); });
    CHECK(count == (std::ssize(text) > longest ? 1 : 0));
    for (size_t i = 0; i < split.segments().size(); ++i) {
      CHECK(split.segments()[i].cut == (i + 1 < split.segments().size()));
    }
    return segments(split);
  };
  CHECK(cut("one two three", 20) == Strings{"one two three"});
  CHECK(cut("one two, three and four five", 20) == Strings{"one two,", "three and four five"});
  CHECK(cut("one, two three; and four five", 20) == Strings{"one, two three;", "and four five"});
  CHECK(cut("a, bbbbbbbbb cccccccccc ddddd", 20) == Strings{"a, bbbbbbbbb", "cccccccccc ddddd"});
  CHECK(cut("aaaaaaaaaaaaaaaa", 8) == Strings{"aaaaaaaa", "aaaaaaaa"});
  CHECK(cut("ae\xCC\x81"
            "e\xCC\x81",
            6) == Strings{"ae\xCC\x81", "e\xCC\x81"});
  CHECK(cut("今天天气，很好很好很好", 18) == Strings{"今天天气，", "很好很好很好"});
}

TEST_CASE("a megabyte of anything is split and cut in reasonable time") {
  const auto length = [](std::string_view part) { return std::ssize(part); };
  std::mt19937 random(3);
  for (const auto& unit :
       Strings{"a", ".", "\xCC\x81", " a.", "a. A", "\"", "（", "1. ", "A.", "。", "a,", "- ", "\n- a"}) {
    std::string text;
    while (text.size() < (1 << 19)) text += unit;
    SplitText split(text);
    split.cut_longer(1000, length);
    CHECK(split.join(segments(split)).text == text);
    for (size_t i = 0; i < split.segments().size(); ++i) REQUIRE(split.segment(i).size() <= 1000);
  }
}

}  // namespace transformer::test
