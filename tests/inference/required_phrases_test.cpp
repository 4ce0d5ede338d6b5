#include "transformer/inference/required_phrases.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>

#include "inference/table_model.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/translator.h"
#include "transformer/text/characters.h"

namespace transformer::test {

namespace {

/// The model that comes with the sources, whose vocabulary was learned from text.
std::filesystem::path shipped_model() {
  return std::filesystem::path(TRANSFORMER_SOURCE_DIR) / "data" / "model-en-de";
}

struct Shipped {
  Vocabulary vocabulary{shipped_model() / "vocabulary.model"};
  PieceTexts pieces{vocabulary};

  int64_t id(std::string_view text) const {
    const auto found = pieces.equal_to(text);
    REQUIRE(!found.empty());
    return found.front();
  }
};

/// The best translation of `line` that holds `required`, and the best of all.
struct Translations {
  Translation with, free;
};
Translations translations(const Translator& translator, const std::string& line,
                          const std::vector<std::string>& required) {
  const auto sources = translator.encode({line});
  const std::vector<EncodedWishes> wishes = {translator.encode_wishes({.required = required})};
  return {translator.translate_encoded(sources, wishes).front().front(),
          translator.translate_encoded(sources).front().front()};
}

}  // namespace

TEST_CASE("the piece for what a vocabulary cannot spell has the text that decoding writes, and spells none") {
  const Shipped shipped;
  const auto& pieces = shipped.pieces;
  const auto text = pieces.of(Vocabulary::unknown);
  CHECK(text == shipped.vocabulary.decode({Vocabulary::unknown}));
  REQUIRE(!text.empty());
  for (const int64_t piece : pieces.beginning_with(text.substr(0, 1))) CHECK(piece != Vocabulary::unknown);
  CHECK(pieces.equal_to(text).empty());
  // It ends a word, so that what follows does not go on with it.
  const RequiredPhrases::Phrases phrases = {{shipped.id(" ist")}};
  RequiredPhrases required(phrases, {}, &pieces);
  for (const int64_t token : {shipped.id(" ist"), Vocabulary::unknown, shipped.id("en")}) required.append(token);
  CHECK(required.all_met());
}

TEST_CASE("pieces begin and end in words where writing sets words apart") {
  const Shipped shipped;
  const auto& pieces = shipped.pieces;
  const auto begins = [&](const char* text) { return pieces.begin_in_word(Tokens{shipped.id(text)}); };
  for (const char* text : {"e", "en", "ß", "5"}) CHECK(begins(text));
  for (const char* text : {" der", ",", ".", " –", "\xE5"}) CHECK_FALSE(begins(text));
  CHECK_FALSE(pieces.begin_in_word({}));
  CHECK_FALSE(pieces.begin_in_word(Tokens{Vocabulary::end}));
  // Which come byte by byte.
  const auto within = [&](const char* text) {
    auto tokens = shipped.vocabulary.encode(text);
    while (pieces.of(tokens.front()) == " ") tokens.erase(tokens.begin());
    return tokens;
  };
  CHECK(pieces.begin_in_word(within("\uD55C\uAD6D")));
  CHECK_FALSE(pieces.begin_in_word(within("\u060C")));
  const auto in_word = [&](const char* text) { return pieces.end_in_word(shipped.vocabulary.encode(text)); };
  for (const char* text : {"Hund", ", dass", "Fuß", "5", "привет", "\uD55C"}) CHECK(in_word(text));
  for (const char* text : {"z. B.", "(EU)", "5 %", "北京", "ไทย", "\u060C", ""}) CHECK_FALSE(in_word(text));
}

TEST_CASE("a phrase is spelled as it is inside of a text, with a space before it and without where both may be") {
  const Shipped shipped;
  const auto& vocabulary = shipped.vocabulary;
  const auto inside = [](const Tokens& text, const Tokens& phrase) {
    return std::search(text.begin(), text.end(), phrase.begin(), phrase.end()) != text.end();
  };
  const auto spellings = [&](const char* phrase) { return spellings_of(phrase, vocabulary, shipped.pieces); };
  for (const auto& [phrase, texts] : std::map<std::string, std::vector<std::string>>{
           {", dass", {"Sie sagte, dass er da ist.", ", dass er", "Er , dass"}},
           {"(EU)", {"Sie (EU) war da.", "Sie(EU)", "(EU) und"}},
           {"\"Hund\"", {"Er sagte \"Hund\" und ging.", "der-\"Hund\""}},
           {"%", {"5 % davon", "5% davon"}},
           {"- da", {"Er - da", "Er- da"}},
           {"北京", {"Ich wohne in北京.", "Ich wohne in 北京."}}}) {
    INFO(phrase);
    const auto found = spellings(phrase.c_str());
    REQUIRE(!found.empty());
    for (const auto& tokens : found) {
      CHECK(tokens.size() <= found.front().size());
      CHECK(shipped.pieces.of(tokens).find(phrase) != std::string::npos);
    }
    for (const auto& text : texts) {
      INFO(text);
      const auto tokens = vocabulary.encode(text);
      CHECK(std::any_of(found.begin(), found.end(), [&](const auto& spelling) { return inside(tokens, spelling); }));
    }
  }
  // Words, behind signs.
  const auto dog = vocabulary.encode("Hund"), quoted = vocabulary.encode("\"Hund");
  CHECK(spellings("Hund") == std::vector<Tokens>{{quoted.begin() + 1, quoted.end()}, dog});
  CHECK(spellings(" Hund ") == spellings("Hund"));
  CHECK(spellings("  ").empty());
}

TEST_CASE("a phrase in one of its spellings, its last word a whole one, is there by looking for it") {
  const Shipped shipped;
  const auto& pieces = shipped.pieces;
  // The last two are a letter or, the second alone behind the first, a sign; others of them are no characters.
  const Tokens tokens = {shipped.id(" der"), shipped.id("e"),    shipped.id(","),   shipped.id(" –"),
                         shipped.id("\xD8"), shipped.id("\xA7"), shipped.id("\x8C")};
  // Whether a word would with what comes behind it, of which the first character may not be whole yet.
  const auto goes_on = [&](std::span<const int64_t> behind) {
    const auto text = pieces.of(behind);
    size_t position = 0;
    return !text.empty() && !begins_sequence(text) && is_of_spaced_word(next_code_point(text, position));
  };
  std::mt19937 random(12);
  const auto add_character = [&](Tokens& phrase) {
    const size_t which = random() % 6;
    phrase.push_back(tokens[std::min<size_t>(which, 4)]);
    if (which >= 4) phrase.push_back(tokens[which + 1]);
  };
  const auto drawn = [&](size_t longest) {
    Tokens phrase;
    for (size_t count = 1 + random() % longest; count > 0; --count) add_character(phrase);
    return phrase;
  };
  size_t met = 0, parts = 0, otherwise = 0, stayed = 0;
  for (int time = 0; time < 600; ++time) {
    RequiredPhrases::Phrases phrases;
    std::vector<OtherSpelling> others;
    int64_t all = 0;
    for (size_t count = 1 + random() % 4; count > 0; --count) phrases.push_back(drawn(3));
    if (random() % 3 == 0) phrases.push_back(phrases[0]);
    for (size_t i = 0; i < phrases.size(); ++i) {
      all += std::ssize(phrases[i]);
      // The same phrase has the same spellings, and each ends as the others do.
      const auto first = static_cast<size_t>(std::find(phrases.begin(), phrases.end(), phrases[i]) - phrases.begin());
      if (first < i) {
        for (size_t k = others.size(); k-- > 0;) {
          if (others[k].phrase == first) others.push_back({i, others[k].tokens});
        }
      } else if (random() % 2 == 0) {
        const auto& phrase = phrases[i];
        const auto last = phrase.end() - (phrase.back() == tokens[5] || phrase.back() == tokens[6] ? 2 : 1);
        Tokens other;
        for (size_t count = random() % 3; count > 0; --count) add_character(other);
        other.insert(other.end(), last, phrase.end());
        if (other.size() <= phrase.size()) others.push_back({i, other});
      }
    }
    RequiredPhrases progress(phrases, others, &pieces);
    Tokens output;
    for (int step = 0; step < 14; ++step) {
      const auto before = progress.missing();
      const auto tokens_before = progress.tokens();
      // Mostly whole characters.
      const bool within = !output.empty() && output.back() == tokens[4] && random() % 8 > 0;
      output.push_back(tokens[within ? 5 + random() % 2 : random() % tokens.size()]);
      const bool keeps = progress.keeps(output.back()), stays = progress.stays(output.back());
      progress.append(output.back());
      std::map<Tokens, int64_t> asked;
      std::vector<size_t> missing;
      for (size_t i = 0; i < phrases.size(); ++i) {
        int64_t times = 0, by_own = 0;
        for (auto past = output.begin() + 1; past <= output.end(); ++past) {
          const auto ends = [&](const Tokens& spelling) {
            if (past - output.begin() < std::ssize(spelling)) return false;
            const auto from = past - std::ssize(spelling);
            // Behind nothing, words begin with a space.
            const bool behind_word = from == output.begin() || pieces.end_in_word({output.begin(), from});
            return std::equal(spelling.begin(), spelling.end(), from) &&
                   !(behind_word && goes_on({spelling.begin(), spelling.end()}));
          };
          if (pieces.end_in_word(phrases[i]) && goes_on({past, output.end()})) continue;
          const bool by_other = std::any_of(others.begin(), others.end(),
                                            [&](const auto& other) { return other.phrase == i && ends(other.tokens); });
          if (ends(phrases[i])) ++by_own;
          if (ends(phrases[i]) || by_other) ++times;
        }
        const auto wanted = ++asked[phrases[i]];
        if (wanted > times) missing.push_back(i);
        if (wanted <= times && wanted > by_own) ++otherwise;
      }
      CHECK(progress.missing() == missing);
      CHECK(progress.all_met() == missing.empty());
      CHECK(progress.tokens() <= all);
      if (missing.empty()) CHECK(progress.next().empty());
      if (missing.empty()) CHECK(progress.tokens() == all);
      if (stays) {
        ++stayed;
        CHECK(keeps);
        CHECK_FALSE(progress.within());
        CHECK(missing == before);
        CHECK(progress.tokens() == tokens_before);
      }
      const bool lost = std::any_of(missing.begin(), missing.end(), [&](size_t phrase) {
        return std::find(before.begin(), before.end(), phrase) == before.end();
      });
      if (keeps) CHECK_FALSE(lost);
      met += missing.empty();
      parts += lost;
    }
  }
  CHECK(met > 100);
  CHECK(parts > 50);
  CHECK(otherwise > 100);
  CHECK(stayed > 100);
}

TEST_CASE("a phrase whose characters come byte by byte is there at the edges of words alone") {
  const Shipped shipped;
  const auto& pieces = shipped.pieces;
  const auto within = [&](const char* text) {
    auto tokens = shipped.vocabulary.encode(text);
    while (pieces.of(tokens.front()) == " ") tokens.erase(tokens.begin());
    return tokens;
  };
  const auto there = [&](const char* phrase, const std::vector<Tokens>& output) {
    const RequiredPhrases::Phrases phrases = {within(phrase)};
    RequiredPhrases progress(phrases, {}, &pieces);
    for (const auto& tokens : output) {
      for (const int64_t token : tokens) progress.append(token);
    }
    return progress.all_met();
  };
  const auto word = shipped.vocabulary.encode("haben"), stop = Tokens{shipped.id(".")};
  const auto korea = within("\uD55C\uAD6D"), comma = within("\u060C"), letter = within("\u0639");
  CHECK(there("\uD55C\uAD6D", {word, stop, korea}));
  CHECK(there("\uD55C\uAD6D", {word, comma, korea}));
  CHECK(there("\uD55C\uAD6D", {word, stop, korea, comma}));
  CHECK_FALSE(there("\uD55C\uAD6D", {word, korea}));
  CHECK_FALSE(there("\uD55C\uAD6D", {word, letter, korea}));
  CHECK_FALSE(there("\uD55C\uAD6D", {word, stop, korea, letter}));
  CHECK_FALSE(there("\uD55C\uAD6D", {word, stop, korea, {shipped.id("en")}}));
  CHECK(there("\uD55C\uAD6D", {word, stop, korea, word}));  // behind a space
  CHECK(there("\u060C", {word, comma}));
  // Nothing is begun within a character.
  const RequiredPhrases::Phrases phrases = {within("\u060C")};
  RequiredPhrases progress(phrases, {}, &pieces);
  progress.append(letter.front() == comma.front() ? korea.front() : letter.front());
  CHECK(progress.next().empty());
}

TEST_CASE("what a translation holds already, behind punctuation or in front of it, is not written again") {
  const Translator translator(shipped_model());
  for (const auto& [line, required] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"I know that he is here.", {", dass er"}},
           {"I know that he is here.", {"."}},
           {"If it rains, we stay at home.", {", bleiben"}},
           {"He asked: \"Where is the dog?\"", {"„Wo", "?“"}},
           {"He said: \"Tom is here.\"", {"Tom"}},
           {"The weather is nice today.", {"Wetter", "heute"}}}) {
    INFO(line);
    const auto [with, free] = translations(translator, line, required);
    for (const auto& phrase : required) REQUIRE(free.text.find(phrase) != std::string::npos);
    CHECK(with.missing.empty());
    // A wider beam may find a better one.
    CHECK((with.score > free.score || with.text == free.text));
  }
}

TEST_CASE("a word may come right behind a sign, and not right behind a word") {
  const Translator translator(shipped_model());
  const auto found = translations(translator, "He said: \"Dog!\"", {"Hund"}).with;
  CHECK(found.missing.empty());
  CHECK(found.text.find("„Hund") != std::string::npos);
  const auto inside = translations(translator, "They saw the watchdogs.", {"hund"}).with;
  CHECK(inside.missing.empty());
  CHECK_FALSE(translator.forbid({"hund"})->found_in(inside.tokens).empty());
}

TEST_CASE("a longer word is not what was required, and may come all the same") {
  const Translator translator(shipped_model());
  const auto required = translations(translator, "The weather is nice today.", {"foo"}).with;
  CHECK(required.missing.empty());
  // As --forbid has words.
  CHECK_FALSE(translator.forbid({"foo"})->found_in(required.tokens).empty());
  const auto [with, free] = translations(translator, "The weather is nice today.", {"heut"});
  CHECK(free.text.find("heute") != std::string::npos);
  CHECK(with.missing.empty());
  CHECK_FALSE(translator.forbid({"heut"})->found_in(with.tokens).empty());
}

TEST_CASE("a phrase stays where it was written, though all that is likely behind it goes on with its last word") {
  const Translator translator(shipped_model());
  const auto found = translations(translator, "I just posted a great picture of wombats on Flickr.",
                                  {"habe gerade ein tolles Bild von Wombats auf Flickr"})
                         .with;
  CHECK(found.missing.empty());
  CHECK(found.text.starts_with("Ich habe gerade ein tolles Bild von Wombats auf Flickr "));
}

TEST_CASE("a line without text lacks everything that is required of it") {
  const Translator translator(shipped_model());
  const auto wishes = translator.encode_wishes({.required = {" ", "Hund", "Katze"}});
  const auto found = translator.translate_encoded(translator.encode({" ", "The dog and the cat."}),
                                                  std::vector<EncodedWishes>{wishes, wishes});
  CHECK(found[0].front().text.empty());
  CHECK(found[0].front().missing == std::vector<size_t>{1, 2});
  CHECK(found[1].front().missing.empty());
}

}  // namespace transformer::test
