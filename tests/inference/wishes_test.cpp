#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "error_of.h"
#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/draft_pace.h"
#include "transformer/inference/engine.h"
#include "transformer/inference/forbidden_text.h"
#include "transformer/inference/output_prefix.h"
#include "transformer/inference/piece_biases.h"
#include "transformer/inference/required_phrases.h"
#include "transformer/inference/shortlist.h"
#include "transformer/inference/translator.h"
#include "transformer/text/text_end.h"

namespace transformer::test {

namespace {

using Ids = std::vector<int64_t>;
using Search = DecodingSettings::Search;

/// A model, its vocabulary and how both translate: once packed, once through the modules.
struct Tiny {
  TemporaryDirectory directory;
  std::shared_ptr<const Vocabulary> vocabulary;
  Transformer model{nullptr};
  std::unique_ptr<Translator> packed, modules;

  explicit Tiny(const DecodingSettings& settings) {
    write_tiny_model(directory.path());
    vocabulary = std::make_shared<const Vocabulary>(directory / "vocabulary.model");
    model = tiny_transformer(tiny_settings(vocabulary->size()), 4);
    packed = std::make_unique<Translator>(
        packed_translator(model, {vocabulary, vocabulary}, settings, InferenceOptions{.threads = 2}));
    modules = std::make_unique<Translator>(module_translator(model, {vocabulary, vocabulary}, settings));
  }
};

std::vector<std::vector<Translation>> translate(const Translator& translator, const std::vector<std::string>& lines,
                                                const std::vector<LineWishes>& wishes) {
  std::vector<EncodedWishes> encoded;
  for (const auto& wish : wishes) encoded.push_back(translator.encode_wishes(wish));
  return translator.translate_encoded(translator.encode(lines), encoded);
}

/// Whether `text` holds `phrase` as whole words, where its ends are letters: of texts in Latin letters and spaces.
bool holds_words(const std::string& text, const std::string& phrase) {
  const auto letter = [](unsigned char c) { return std::isalnum(c) || c >= 0xC3; };
  for (size_t at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1)) {
    // Behind the first byte of a character of two, as "é" has, stands the second.
    const auto before = at == 0 ? ' ' : text[at - 1];
    const bool continues = (static_cast<unsigned char>(before) & 0xC0) == 0x80;
    const size_t end = at + phrase.size();
    const bool begins = !letter(static_cast<unsigned char>(phrase.front())) ||
                        !(letter(static_cast<unsigned char>(before)) || continues);
    const bool last_is_letter =
        letter(static_cast<unsigned char>(phrase.back())) || (static_cast<unsigned char>(phrase.back()) & 0xC0) == 0x80;
    const bool ends = !last_is_letter || end == text.size() || !letter(static_cast<unsigned char>(text[end]));
    if (begins && ends) return true;
  }
  return false;
}

/// Whether `text` holds one of `phrases` by the definition: it stands there, and an end of it that is a word's is where
/// a word ends, or a letter's where no mark is behind. With `whole`, the text ends where it ends.
bool holds_forbidden(const std::string& text, const std::vector<std::string>& phrases, bool whole) {
  const auto stays_whole = [&](TextEnd end, size_t behind) {
    for (; behind < text.size(); ++behind) {
      if (end.broken_by(text[behind])) return true;
      const auto next = end.append(text[behind]);
      if (next != TextEnd::Next::unknown) return next == TextEnd::Next::apart;
    }
    return whole;
  };
  for (const auto& phrase : phrases) {
    TextEnd last;
    last.append(phrase);
    for (size_t at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1)) {
      TextEnd before;
      before.append(std::string_view(text).substr(0, at));
      if (before.in_word() && TextEnd(WordKind::word).continued_by(phrase)) continue;
      if (!last.may_go_on() || stays_whole(last, at + phrase.size())) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("what is allowed behind a beginning is every piece that agrees with it, by brute force") {
  const Tiny tiny({});
  const auto texts = std::make_shared<const PieceTexts>(*tiny.vocabulary);
  std::mt19937 random(3);
  for (const auto& sentence : made_up_sentences(25, 31, 4)) {
    for (const bool blank : {false, true}) {
      size_t cut = 1 + random() % sentence.size();
      while (cut < sentence.size() && (static_cast<unsigned char>(sentence[cut]) & 0xC0) == 0x80) ++cut;
      auto prefix = std::string(trim(sentence.substr(0, cut)));
      if (blank) prefix += ' ';
      const auto whole = " " + prefix;  // as pieces spell it
      INFO(prefix);
      std::shared_ptr<const OutputConstraint> state = begins_with(prefix, *tiny.vocabulary, texts).constraint;
      std::string text;
      bool open = false;  // pieces of the last word are free
      while (!state->free()) {
        const auto allowed = state->allowed();
        REQUIRE(!allowed.empty());
        open = open || allowed.size() > 1;
        std::set<int64_t> expected;
        for (int64_t piece = Vocabulary::unknown + 1; piece < tiny.vocabulary->size(); ++piece) {
          const auto next = text + texts->of(piece);
          if (tiny.vocabulary->piece(piece) == "<0x20>") continue;  // " ba" would not begin with "ba"
          if (whole.starts_with(next) || next.starts_with(whole)) expected.insert(piece);
        }
        for (const int64_t piece : allowed) CHECK(expected.contains(piece));
        // The vocabulary spells every character, so that nothing that agrees is a dead end.
        if (open) CHECK(allowed.size() == expected.size());
        const int64_t chosen = allowed[random() % allowed.size()];
        text += texts->of(chosen);
        state = state_after(state, chosen);
      }
      CHECK(text.starts_with(whole));
    }
  }
  CHECK_THAT(error_of([&] { (void)tiny.packed->encode_wishes({.prefix = std::string(9000, 'a')}); }), Equals(""));
}

TEST_CASE("translations begin with what they shall begin with, packed as through the modules") {
  const Tiny tiny({.beam = 3, .max_extra_length = 6, .n_best = 2});
  const auto lines = made_up_sentences(12, 8, 5), others = made_up_sentences(12, 9, 3);
  std::vector<LineWishes> wishes;
  for (size_t i = 0; i < lines.size(); ++i) {
    auto prefix = others[i].substr(0, 1 + i * others[i].size() / 12);
    while (find_broken_utf8(prefix) != std::string::npos) prefix.pop_back();
    wishes.push_back({.prefix = i % 4 == 3 ? "" : prefix});
  }
  const auto plain = tiny.packed->translate(lines);
  const auto found = translate(*tiny.packed, lines, wishes), by_modules = translate(*tiny.modules, lines, wishes);
  for (size_t i = 0; i < lines.size(); ++i) {
    INFO(wishes[i].prefix);
    for (const auto& translation : found[i]) CHECK(translation.text.starts_with(trim(wishes[i].prefix)));
    CHECK(found[i].front().tokens == by_modules[i].front().tokens);
    CHECK(found[i].front().log_probability == Approx(by_modules[i].front().log_probability).epsilon(1e-4));
    if (wishes[i].prefix.empty()) CHECK(found[i].front().tokens == plain[i].front().tokens);
    // One by one as all together, bit for bit.
    const auto alone = translate(*tiny.packed, {lines[i]}, {wishes[i]}).front();
    CHECK(alone.front().tokens == found[i].front().tokens);
    CHECK(alone.front().log_probability == found[i].front().log_probability);
  }
  auto bounded = DecodingSettings{};
  bounded.max_length = 2;
  CHECK_THAT(error_of([&] { (void)tiny.packed->with(bounded).encode_wishes({.prefix = "badoki luméno"}); }),
             Contains("at most 2 word pieces may end before it"));
}

TEST_CASE("forbidden phrases are found in texts as by looking for them, however they are spelled") {
  const Tiny tiny({});
  std::vector<std::string> phrases = {"ba", "doki", "mé", "no ra", "er.", "  ", "siß tu"};
  const auto forbidden = tiny.packed->forbid(phrases);
  std::mt19937 random(5);
  int held = 0, free = 0;
  for (const auto& sentence : made_up_sentences(400, 77, 6)) {
    const auto tokens = tiny.vocabulary->sample(sentence, 0.5);
    const bool expected = std::none_of(phrases.begin(), phrases.end(), [&](const auto& phrase) {
      return !trim(phrase).empty() && holds_words(" " + sentence, phrase);
    });
    INFO(sentence);
    CHECK(forbidden->found_in(tokens).empty() == expected);
    (expected ? free : held) += 1;
    // Token by token the same.
    int64_t state = ForbiddenText::beginning;
    bool allowed = true;
    for (const int64_t token : tokens) {
      const auto all = forbidden->at(state)->forbidden;
      if (std::find(all.begin(), all.end(), token) != all.end()) allowed = false;
      if (!allowed) break;
      state = forbidden->after(state, token);
    }
    CHECK((allowed && forbidden->at(state)->may_end) == expected);
  }
  CHECK(held > 20);
  CHECK(free > 20);
}

TEST_CASE("a forbidden word ends at the signs of all writing, though these come byte by byte") {
  const Tiny tiny({});
  const auto forbidden =
      tiny.packed->forbid({"ba", "\u0643\u0644\u0628", "\uAC1C", "\u0915\u0941", "\u5317\u4EAC", "\u00D7 2"});
  const auto by_tokens = [&](const std::string& text) {
    int64_t state = ForbiddenText::beginning;
    for (const int64_t token : tiny.vocabulary->encode(text)) {
      const auto all = forbidden->at(state)->forbidden;
      if (std::find(all.begin(), all.end(), token) != all.end()) return false;
      state = forbidden->after(state, token);
    }
    return forbidden->at(state)->may_end;
  };
  for (const char* text :
       {"ba\u00D7", "ba\u00F7do", "\u00D7ba", "ba\u060C do", "ba\u2013do", "\u00ABba\u00BB", "ba\u5317",
        "\u0643\u0644\u0628\u060C do", "\u0643\u0644\u0628\u061F", "do \u061B\u0643\u0644\u0628", "\u0915\u0941\u0964",
        "\uAC1C.", "\uAC1C", "do\u5317\u4EACdo", "2\u00D7 2", "\u00D7 2."}) {
    INFO(text);
    CHECK_FALSE(forbidden->found_in(tiny.vocabulary->encode(text)).empty());
    CHECK_FALSE(by_tokens(text));
  }
  for (const char* text : {"ba\u0639", "ba\u00E9", "\u00E9ba", "\u0643\u0644\u0628\u0639", "\u0639\u0643\u0644\u0628",
                           "\u0915\u0941\u0924", "\uAC1C\uB294", "\uD55C\uAC1C", "ba\uD55C", "\u00D7 23"}) {
    INFO(text);
    CHECK(forbidden->found_in(tiny.vocabulary->encode(text)).empty());
    CHECK(by_tokens(text));
  }
  // A text is not led into a character of which nearly all would complete the phrase.
  const PieceTexts texts(*tiny.vocabulary);
  const auto bytes = [&](unsigned char byte) {
    return texts.equal_to(std::string(1, static_cast<char>(byte))).front();
  };
  int64_t state = ForbiddenText::beginning;
  for (const int64_t token : tiny.vocabulary->encode("ba")) state = forbidden->after(state, token);
  const auto all = forbidden->at(state)->forbidden;
  for (const unsigned char lead : {0xC2, 0xE2, 0xE5, 0xF0}) CHECK(std::count(all.begin(), all.end(), bytes(lead)) == 1);
  for (const unsigned char lead : {0xC3, 0xD8, 0xEB}) CHECK(std::count(all.begin(), all.end(), bytes(lead)) == 0);
}

TEST_CASE("marks of signs and joiners are no part of what is forbidden or required, marks of letters make others") {
  const Tiny tiny({});
  const PieceTexts texts(*tiny.vocabulary);
  using Case = std::tuple<std::string, std::string, bool>;
  for (const auto& [phrase, text, there] : std::vector<Case>{{"ba", "\u2764\uFE0Fba", true},
                                                             {"ba", "do \U0001F468\u200D\U0001F467ba", true},
                                                             {"ba", "ba\u2764\uFE0Fdo", true},
                                                             {"\u2764", "do \u2764\uFE0F", true},
                                                             {"bado", "ba\u200Ddo", false},
                                                             {"ba", "ba\u00ADdo", false},
                                                             {"ba", "do\u200Cba", false},
                                                             {"ba", "do\u2060ba", false},
                                                             {"ba", "ba\u00AD do", true},
                                                             {"ba", "ba\u2060.", true},
                                                             {"ba", "ba\u200C", true},
                                                             {"ba", "do \u00ADba", true},
                                                             {"\u0E2B\u0E19", "\u0E2B\u0E19\u0E39", false},
                                                             {"\u0E2B\u0E19", "\u0E2B\u0E19\u0E14", true},
                                                             {"\u0E2B\u0E19", "\u0E2B\u0E19", true},
                                                             {"\u1780", "\u1780\u17BB", false},
                                                             {"\u5317", "\u5317\u4EAC", true}}) {
    INFO(phrase << " in " << text);
    const auto tokens = tiny.vocabulary->encode(text);
    const auto forbidden = tiny.packed->forbid({phrase});
    CHECK(forbidden->found_in(tokens).empty() == !there);
    int64_t state = ForbiddenText::beginning;
    bool allowed = true;
    for (const int64_t token : tokens) {
      const auto never = forbidden->at(state)->forbidden;
      allowed = allowed && std::find(never.begin(), never.end(), token) == never.end();
      state = forbidden->after(state, token);
    }
    // No text is led into the first byte of a soft hyphen, which begins signs, most likely.
    if (text != "ba\u00ADdo") CHECK((allowed && forbidden->at(state)->may_end) == !there);
    const auto spellings = spellings_of(phrase, *tiny.vocabulary, texts);
    const RequiredPhrases::Phrases phrases = {spellings.front()};
    std::vector<OtherSpelling> others;
    for (size_t i = 1; i < spellings.size(); ++i) others.push_back({0, spellings[i]});
    RequiredPhrases required(phrases, others, &texts);
    for (const int64_t token : tokens) required.append(token);
    CHECK(required.all_met() == there);
  }
}

TEST_CASE("what stands for what the vocabulary cannot spell ends a word that is forbidden") {
  const Tiny tiny({});
  const auto forbidden = tiny.packed->forbid({"ba"});
  auto tokens = tiny.vocabulary->encode("ki ba");
  int64_t state = ForbiddenText::beginning;
  for (const int64_t token : tokens) state = forbidden->after(state, token);
  const auto never = forbidden->at(state)->forbidden;
  CHECK(std::count(never.begin(), never.end(), Vocabulary::unknown) == 1);
  tokens.push_back(Vocabulary::unknown);
  INFO(tiny.vocabulary->decode(tokens));
  CHECK_FALSE(forbidden->found_in(tokens).empty());
}

TEST_CASE("what a forbidden phrase rules out is found for every piece as by the definition") {
  const Tiny tiny({});
  const PieceTexts texts(*tiny.vocabulary);
  // Ends and beginnings of one another, of one byte and many, with blanks and signs in them and at their ends.
  const std::vector<std::string> all = {
      "ba",   "bado",   "badoki",     "ba do",        "ba do ki",     "do",     "doki",
      "ki",   "k",      "m\u00E9",    "m\u00E9no",    "\u00E9",       "no ra",  "ra",
      "ra.",  ".",      "er.",        "si\u00DF",     "\u00DF tu",    "\u00D7", "\u00D7 2",
      "2",    "\u060C", "ba\u00D7do", "\u5317",       "\u5317\u4EAC", "\uAC1C", "\u0915\u0941",
      ", ba", "tu",     "\u2764",     "\u0E2B\u0E19", "\u0E19"};
  const std::vector<std::string> marks = {"\u0301", "\u0E39", "\uFE0F", "\u00AD", "\u200D"};
  std::mt19937 random(8);
  int forbidding = 0, ending = 0, states = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> phrases;
    for (const auto& phrase : all) {
      if (random() % 3 == 0) phrases.push_back(phrase);
    }
    std::shuffle(phrases.begin(), phrases.end(), random);
    const auto forbidden = tiny.packed->forbid(phrases);
    std::string line;
    for (int i = 0; i < 5; ++i) {
      line += all[random() % all.size()];
      if (random() % 4 == 0) line += marks[random() % marks.size()];
      if (random() % 2 == 0) line += ' ';
    }
    auto tokens = tiny.vocabulary->sample(line, 0.5);
    // Some are what no encoder writes: any piece, a byte of a character, the unknown piece.
    for (auto& token : tokens) {
      if (random() % 6 == 0) token = static_cast<int64_t>(random()) % texts.size();
    }
    int64_t state = ForbiddenText::beginning;
    std::string text;
    for (const int64_t token : tokens) {
      Ids expected, never_last;
      for (int64_t piece = 0; piece < texts.size(); ++piece) {
        const auto longer = text + texts.of(piece);
        TextEnd end;
        end.append(longer);
        const bool held = holds_forbidden(longer, phrases, false);
        const bool held_at_end = holds_forbidden(longer, phrases, true);
        const bool likely_sign = end.in_character() && !end.likely_to_go_on();
        if (held || (held_at_end && likely_sign)) {
          expected.push_back(piece);
        } else if (held_at_end) {
          never_last.push_back(piece);
        }
      }
      INFO(in_quotes(text));
      const auto found = forbidden->at(state);
      CHECK(found->forbidden == expected);
      CHECK(found->never_last == never_last);
      CHECK(found->may_end == !holds_forbidden(text, phrases, true));
      forbidding += expected.empty() ? 0 : 1;
      ending += never_last.empty() ? 0 : 1;
      ++states;
      if (holds_forbidden(text + texts.of(token), phrases, false)) continue;  // another comes instead
      text += texts.of(token);
      state = forbidden->after(state, token);
    }
    CHECK(forbidden->found_in(text, ForbiddenText::Extent::whole).empty() == !holds_forbidden(text, phrases, true));
  }
  CHECK(states > 200);
  CHECK(forbidding > 100);
  CHECK(ending > 100);
}

TEST_CASE("what may not come is found in a time that hardly grows with the phrases") {
  const Tiny tiny({});
  const std::vector<std::string> syllables = {"ba", "do", "ki", "lu", "no", "ra", "tu", "er", "si", "mo"};
  const auto seconds = [&](int phrases) {
    std::vector<std::string> words;
    for (int number = 0; number < phrases; ++number) {
      auto& word = words.emplace_back("ba");
      for (int i = 0, left = number; i < 5; ++i, left /= 10) word += syllables[static_cast<size_t>(left % 10)];
    }
    const auto forbidden = tiny.packed->forbid(words);
    const CpuClock clock;
    for (size_t number = 0; number < 300; ++number) {
      int64_t state = ForbiddenText::beginning;
      for (const int64_t token : tiny.vocabulary->encode(words[number])) {
        CHECK(forbidden->at(state)->may_end);
        state = forbidden->after(state, token);
      }
      CHECK_FALSE(forbidden->at(state)->may_end);
    }
    return clock.seconds();
  };
  CHECK(seconds(20000) < 4 * seconds(2000));
}

TEST_CASE("translations hold what is required and nothing that is forbidden, packed as through the modules") {
  const Tiny tiny({.beam = 4, .max_extra_length = 12});
  const auto lines = made_up_sentences(14, 18, 5);
  const auto plain = tiny.packed->translate(lines);
  std::vector<LineWishes> wishes(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i % 2 == 0) wishes[i].required = {"badoki", "tu ra"};
    if (i % 3 == 0) continue;
    // Words of its own plain translation.
    std::vector<std::string> words;
    for (const auto word : split_words(plain[i].front().text)) words.emplace_back(word);
    wishes[i].forbidden = tiny.packed->forbid(words);
  }
  const auto found = translate(*tiny.packed, lines, wishes), by_modules = translate(*tiny.modules, lines, wishes);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& best = found[i].front();
    INFO(best.text);
    CHECK(best.missing.empty());
    for (const auto& phrase : wishes[i].required) CHECK(best.text.find(phrase) != std::string::npos);
    if (wishes[i].forbidden) CHECK(wishes[i].forbidden->found_in(best.tokens).empty());
    CHECK(best.tokens == by_modules[i].front().tokens);
    if (wishes[i].required.empty() && !wishes[i].forbidden) {
      CHECK(best.tokens == plain[i].front().tokens);
      CHECK(best.log_probability == plain[i].front().log_probability);
    }
  }
  const auto refusal = [&](const LineWishes& wish) {
    return error_of([&] { (void)tiny.packed->encode_wishes(wish); });
  };
  const auto forbidden = tiny.packed->forbid({"do", "er."});
  CHECK_THAT(refusal({.required = {"ba do"}, .forbidden = forbidden}),
             Contains("'ba do' holds 'do', which is forbidden"));
  for (const char* prefix : {"ba do ki", "ba do ", "do, ", "luer. ba er.", "do."}) {
    CHECK_THAT(refusal({.prefix = prefix, .forbidden = forbidden}),
               StartsWith(in_quotes(prefix)) && Contains("which is forbidden"));
  }
  // What may still become another word.
  for (const char* prefix : {"ba do", "ba doki", "", "bado ki"}) {
    CHECK(refusal({.prefix = prefix, .forbidden = forbidden}).empty());
  }
  CHECK_THAT(
      error_of([&] { (void)tiny.packed->with({.search = Search::sampling}).encode_wishes({.required = {"ba"}}); }),
      Contains("decoding.search"));
}

TEST_CASE("a shortlist that lacks what is wished for gets it") {
  Tiny tiny({.beam = 4, .max_extra_length = 12});
  const auto size = tiny.vocabulary->size();
  const auto lines = made_up_sentences(6, 18, 5);
  const auto plain = tiny.packed->translate(lines);
  const auto of_phrase = tiny.vocabulary->encode("badoki tu");
  std::vector<int32_t> always;
  for (int32_t id = Vocabulary::unknown + 1; id < size; id += 3) {
    if (std::find(of_phrase.begin(), of_phrase.end(), id) == of_phrase.end()) always.push_back(id);
  }
  tiny.packed->set_shortlist(
      std::make_shared<const Shortlist>(always, std::vector<std::vector<int32_t>>(static_cast<size_t>(size)), size));
  const auto biased = of_phrase.front();
  for (const auto search : {Search::beam, Search::sampling}) {
    auto settings = tiny.packed->settings();
    settings.search = search;
    if (search == Search::sampling) settings.seed = 3;
    tiny.packed->set(settings);
    const auto begun = translate(*tiny.packed, lines, std::vector<LineWishes>(lines.size(), {.prefix = "badoki tu"}));
    const auto pushed =
        translate(*tiny.packed, lines, std::vector<LineWishes>(lines.size(), {.bias = {{biased, 100.0}}}));
    for (size_t i = 0; i < lines.size(); ++i) {
      CHECK_THAT(begun[i].front().text, StartsWith("badoki tu"));
      CHECK(std::isfinite(begun[i].front().log_probability));
      CHECK(pushed[i].front().tokens.front() == biased);
    }
  }
  tiny.packed->set({.beam = 4, .max_extra_length = 12});
  for (const auto& found :
       translate(*tiny.packed, lines, std::vector<LineWishes>(lines.size(), {.required = {"badoki tu"}}))) {
    CHECK(found.front().missing.empty());
    CHECK(found.front().finished);
    CHECK(found.front().text.find("badoki tu") != std::string::npos);
  }
  // A constraint of anybody's may ask for any token: its outputs are written in the whole vocabulary.
  class Anything : public OutputConstraint {
   public:
    explicit Anything(int64_t vocabulary_size) : size_(vocabulary_size) {}
    Ids allowed() const override {
      Ids ids(static_cast<size_t>(size_ - Vocabulary::end));
      std::iota(ids.begin(), ids.end(), Vocabulary::end);
      return ids;
    }
    std::shared_ptr<const OutputConstraint> after(int64_t) const override { return std::make_shared<Anything>(size_); }

   private:
    int64_t size_;
  };
  // What one asks for that no output holds is told, as what it allows is.
  class Wrong : public Anything {
   public:
    Wrong(int64_t vocabulary_size, int64_t token) : Anything(vocabulary_size), token_(token) {}
    std::optional<Ids> asked_for() const override { return Ids{token_}; }

   private:
    int64_t token_;
  };
  for (const int64_t token : {int64_t{-1}, int64_t{Vocabulary::begin}, size, int64_t{1} << 40}) {
    CHECK_THROWS_WITH(tiny.packed->translate(lines, 1, [&](size_t) { return std::make_shared<Wrong>(size, token); }),
                      Contains(std::to_string(token)));
  }
  const auto unlisted = tiny.packed->translate(lines, 1, [&](size_t) { return std::make_shared<Anything>(size); });
  for (size_t i = 0; i < lines.size(); ++i) CHECK(unlisted[i].front().tokens == plain[i].front().tokens);
}

TEST_CASE("what several models translate together has positions in each of them, in whatever order") {
  const TemporaryDirectory folder;
  write_tiny_model(folder / "few", {}, false, 12);
  write_tiny_model(folder / "many", {}, false, 30);
  for (const auto& directories : {std::vector{folder / "few", folder / "many"}, {folder / "many", folder / "few"}}) {
    const Translator translator(directories, {}, Ensemble::Average::probabilities, {});
    CHECK(translator.longest_source() == 11);
    const auto found = translator.translate_ids({Ids(11, 300)});
    CHECK(found[0].front().tokens.size() <= 11);
  }
}

TEST_CASE("a bias is of a piece however the accents of both are composed") {
  TemporaryDirectory directory;
  write_tiny_model(directory.path());
  const Vocabulary vocabulary(directory / "vocabulary.model");
  int64_t id = Vocabulary::end;
  while (vocabulary.piece(id) != "é") ++id;
  const auto biases = [&](const std::vector<std::string>& lines) { return piece_biases(lines, "file", vocabulary); };
  const std::vector<std::pair<int64_t, double>> expected = {{id, 1.5}};
  CHECK(biases({"é\t1.5"}) == expected);
  CHECK(biases({"e\u0301\t1.5"}) == expected);
  CHECK(error_of([&] { biases({"é\t1", "e\u0301\t2"}); }).find("file:2: this piece came before") == 0);
  CHECK(error_of([&] { biases({" é\t1"}); }).find("file:1: ' é' is no piece") == 0);
}

TEST_CASE("a missing phrase is named by its place among all that were given") {
  const Tiny tiny({.beam = 4, .max_length = 2});
  const auto found =
      translate(*tiny.packed, made_up_sentences(2, 18, 5),
                std::vector<LineWishes>(2, {.required = {" ", "badoki badoki badoki", "", "tutututututu"}}));
  for (const auto& line : found) CHECK(line.front().missing == std::vector<size_t>{1, 3});
}

TEST_CASE("rows that are looked at whole and left as they are change no bit") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  std::vector<DecodingRequest> plain;
  for (auto& source : random_sentences(20, 5, pieces)) {
    source.push_back(Vocabulary::end);
    plain.push_back({source, 15, {.beam = 3, .n_best = 3}});
  }
  auto whole = plain;
  for (auto& request : whole) request.control.bias = {{7, 0.0}};
  Engine engine(model, {.batch_sentences = 7});
  const auto expected = decode_all(engine, plain), found = decode_all(engine, whole);
  for (size_t i = 0; i < plain.size(); ++i) {
    REQUIRE(found[i].size() == expected[i].size());
    for (size_t k = 0; k < found[i].size(); ++k) {
      CHECK(found[i][k].tokens == expected[i][k].tokens);
      CHECK(found[i][k].log_probability == expected[i][k].log_probability);
      CHECK(found[i][k].score == expected[i][k].score);
    }
  }
}

TEST_CASE("tokens that are told on the way begin the result, also of sentences that are put back") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  std::vector<DecodingRequest> requests;
  for (auto& source : random_sentences(40, 6, pieces)) {
    source.push_back(Vocabulary::end);
    const auto kind = requests.size() % 3;
    requests.push_back({source, 20, {.beam = kind == 0 ? 1 : 4}});
    if (kind == 2) requests.back().settings = {.n_best = 2, .search = Search::sampling};
  }
  const auto bytes = GENERATE(int64_t{0}, int64_t{30'000});
  Engine engine(model, {.threads = 2, .batch_sentences = 8, .cache_bytes = bytes});
  std::vector<Ids> told(requests.size()), first(requests.size());
  std::vector<int> calls(requests.size());
  const auto job = engine.submit(
      requests, [&](size_t index, const DecodingResult& result) { first[index] = result.hypotheses.front().tokens; },
      [&](size_t index, std::span<const int64_t> tokens) {
        CHECK(!tokens.empty());
        ++calls[index];
        told[index].insert(told[index].end(), tokens.begin(), tokens.end());
      });
  engine.wait(*job);
  int several = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    REQUIRE(told[i].size() <= first[i].size());
    CHECK(std::equal(told[i].begin(), told[i].end(), first[i].begin()));
    // A beam tells of what all have in common, greedy search of every token.
    if (i % 3 == 0) CHECK(told[i].size() + 1 >= first[i].size());
    several += calls[i] > 2 ? 1 : 0;
  }
  CHECK(several > 5);
}

TEST_CASE("an ensemble searches by the mean of its models, alone and in batches") {
  // Of many, most are passed over in blocks.
  const int64_t outputs = GENERATE(int64_t{40}, int64_t{1500});
  auto a = tiny_transformer(tiny_settings(outputs), 4), b = tiny_transformer(tiny_settings(outputs), 5);
  const std::vector<double> weights = {2, 1};
  std::vector<DecodingRequest> requests;
  for (auto& source : random_sentences(10, 12, outputs)) {
    source.push_back(Vocabulary::end);
    requests.push_back({source, 14, {.beam = 3, .n_best = 2}});
    if (requests.size() % 4 == 1) requests.back().settings.no_repeat_ngram = 1;
  }
  for (const auto average : {Ensemble::Average::probabilities, Ensemble::Average::log_probabilities}) {
    const bool of_logs = average == Ensemble::Average::log_probabilities;
    Engine engine(Ensemble{.models = {packed_model(a), packed_model(b)}, .weights = weights, .average = average},
                  {.threads = 2, .batch_sentences = 4});
    const auto found = decode_all(engine, requests);
    int different = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto source = torch::tensor(requests[i].source).unsqueeze(0);
      const StepFunction steps[] = {transformer_step(a, source), transformer_step(b, source)};
      const auto mean = [&](std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width) {
        std::vector<std::vector<double>> rows(tokens.size(), std::vector<double>(outputs));
        for (size_t member = 0; member < 2; ++member) {
          const auto all = steps[member](tokens, parents, outputs);
          for (size_t at = 0; at < all.tokens.size(); ++at) {
            auto& value = rows[at / outputs][static_cast<size_t>(all.tokens[at])];
            value += weights[member] / 3 * (of_logs ? all.log_probabilities[at] : std::exp(all.log_probabilities[at]));
          }
        }
        Continuations best{std::min(width, outputs), {}, {}};
        for (const auto& row : rows) {
          std::vector<Continuations::Candidate> candidates;
          for (int64_t token = 0; token < outputs; ++token) {
            const double value = row[static_cast<size_t>(token)];
            candidates.push_back({of_logs ? value : std::log(value), token});
          }
          best.add_row(std::move(candidates));
        }
        return best;
      };
      const auto expected = beam_search(mean, std::span(requests).subspan(i, 1), Vocabulary::begin).front();
      REQUIRE(found[i].size() == expected.size());
      for (size_t k = 0; k < expected.size(); ++k) {
        CHECK(found[i][k].tokens == expected[k].tokens);
        CHECK(found[i][k].log_probability == Approx(expected[k].log_probability).epsilon(1e-4));
      }
      Engine alone(packed_model(a), {});
      if (decode_all(alone, {requests[i]})[0][0].tokens != found[i][0].tokens) ++different;
    }
    CHECK(different > 0);
    // A model with itself is the model, up to rounding.
    Engine twice(Ensemble{.models = {packed_model(a), packed_model(a)}, .average = average}, {});
    Engine once(packed_model(a), {});
    const auto same = decode_all(twice, requests), plain = decode_all(once, requests);
    for (size_t i = 0; i < requests.size(); ++i) CHECK(same[i][0].tokens == plain[i][0].tokens);
  }
  // .. also where what is forced upon them is so unlikely that float32 has no such probability, in a beam of any width.
  auto sharp = a;
  {
    torch::NoGradGuard no_grad;
    sharp->projection_weight().mul_(60);
  }
  const auto packed = packed_model(sharp);
  Engine twice(Ensemble{.models = {packed, packed}, .average = Ensemble::Average::probabilities}, {});
  Engine once(packed, {});
  for (auto& request : requests) {
    request.settings = {.beam = outputs > 1000 ? 80 : 2, .n_best = 1};
    request.constraint = begins_with(std::vector<int64_t>{request.source.front()});
  }
  const auto same = decode_all(twice, requests), plain = decode_all(once, requests);
  double least = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    REQUIRE(!same[i].empty());
    CHECK(same[i][0].tokens == plain[i][0].tokens);
    CHECK(same[i][0].log_probability == Approx(plain[i][0].log_probability).epsilon(1e-4));
    least = std::min(least, plain[i][0].log_probability);
  }
  CHECK(least < -90);
  const auto refusal = [&](const Ensemble& ensemble) { return error_of([&] { (void)ensemble.validated(); }); };
  CHECK_THAT(refusal({}), Contains("no model"));
  CHECK_THAT(refusal({.models = {packed_model(a)}, .weights = {1, 2}}), Contains("weights"));
  CHECK_THAT(refusal({.models = {packed_model(a)}, .weights = {0}}), Contains("more than 0"));
  CHECK_THAT(refusal({.models = {packed_model(a), packed_model(tiny_transformer(tiny_settings(outputs + 1)))}}),
             Contains("different sizes"));
}

}  // namespace transformer::test
