#include "transformer/evaluation/brackets.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "support.h"
#include "transformer/base/error.h"

using namespace transformer;

namespace {

Tree tree(const std::string& text) {
  return read_tree(text, "test");
}

/// The counts that decide: brackets of the treebank, of the parse, in both.
std::vector<int64_t> counts(const std::string& gold, const std::string& parsed) {
  const auto result = count_brackets(tree(gold), tree(parsed));
  return {result.gold, result.parsed, result.matched};
}

int64_t crossing(const std::string& gold, const std::string& parsed) {
  return count_brackets(tree(gold), tree(parsed)).crossing;
}

using Counts = std::vector<int64_t>;
const std::string dog = "(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat))) (. .)))";

}  // namespace

// Brackets are written label[first word, word behind the last) below, punctuation not numbered.

TEST_CASE("a perfect parse matches every bracket") {
  // S[0,5) NP[0,2) VP[2,5) NP[3,5); neither TOP nor the words' tags count.
  CHECK(counts(dog, dog) == Counts{4, 4, 4});
  const auto result = count_brackets(tree(dog), tree(dog));
  CHECK(result.exact == 1);
  CHECK(result.no_crossing == 1);
  CHECK(result.f1() == 100);
}

TEST_CASE("a missing and a wrong bracket") {
  // The parse lacks NP[3,5).
  CHECK(counts(dog, "(TOP (S (NP (XX the) (XX dog)) (VP (XX saw) (XX a) (XX cat)) (XX .)))") == Counts{4, 3, 3});
  // It says PP[3,5) for NP[3,5).
  const std::string wrong = "(TOP (S (NP (XX the) (XX dog)) (VP (XX saw) (PP (XX a) (XX cat))) (XX .)))";
  CHECK(counts(dog, wrong) == Counts{4, 4, 3});
  CHECK(count_brackets(tree(dog), tree(wrong)).exact == 0);
  CHECK(count_brackets(tree(dog), tree(wrong)).precision() == 75);
}

TEST_CASE("punctuation is taken out by the treebank's tags, wherever it is attached") {
  // Words that count: he, left, early. S[0,3) NP[0,1) VP[1,3) ADVP[2,3).
  const std::string gold =
      "(TOP (S (NP (PRP he)) (, ,) (VP (VBD left) (ADVP (RB early))) (: ;) (`` ``) (. !) ('' '')))";
  CHECK(counts(gold, "(TOP (S (NP (XX he) (XX ,)) (VP (XX left) (ADVP (XX early) (XX ;) (XX ``))) (XX !)) (XX ''))") ==
        Counts{4, 4, 4});
  // What the parse calls punctuation is none: 'left' stays, and is VP's first word.
  CHECK(counts(gold, "(TOP (S (NP (. he)) (XX ,) (VP (, left) (ADVP (XX early))) (XX ;) (XX ``) (XX !) (XX '')))") ==
        Counts{4, 4, 4});
}

TEST_CASE("a constituent of nothing but punctuation is no bracket") {
  // S[0,1) NP[0,1); PRN holds a dash alone, and so do the parse's two X.
  CHECK(counts("(TOP (S (NP (NN yes)) (PRN (: --))))", "(TOP (S (NP (XX yes)) (X (X (XX --)))))") == Counts{2, 2, 2});
}

TEST_CASE("bracket characters, hyphens and currency signs are words") {
  // S[0,4) NP[0,4) PRN[1,4): the words are it, -LRB-, $, -RRB-. The parse ends PRN before -RRB-: [1,3).
  const std::string gold = "(TOP (S (NP (PRP it) (PRN (-LRB- -LRB-) ($ $) (-RRB- -RRB-)))))";
  CHECK(counts(gold, "(TOP (S (NP (XX it) (PRN (XX -LRB-) (XX $)) (XX -RRB-))))") == Counts{3, 3, 2});
  CHECK(counts("(TOP (NP (JJ low) (HYPH -) (NN cost)))", "(TOP (NP (NP (XX low)) (XX -) (XX cost)))") ==
        Counts{1, 2, 1});
}

TEST_CASE("chains of equal labels count as often as they occur") {
  // NP[0,1) twice in the treebank, once in the parse.
  const std::string twice = "(TOP (S (NP (NP (PRP it))) (VP (VBZ is))))",
                    once = "(TOP (S (NP (PRP it)) (VP (VBZ is))))";
  CHECK(counts(twice, once) == Counts{4, 3, 3});
  CHECK(counts(once, twice) == Counts{3, 4, 3});
  CHECK(counts(twice, "(TOP (S (NP (NP (NP (NP (XX it))))) (VP (XX is))))") == Counts{4, 6, 4});
  // The order in a chain does not matter: S[0,1) VP[0,1) on both sides.
  CHECK(counts("(TOP (S (VP (VB go))))", "(TOP (VP (S (XX go))))") == Counts{2, 2, 2});
  // Punctuation taken out makes one: NP[0,1) over NP[0,1).
  CHECK(counts("(TOP (NP (NP (NN a)) (. .)))", "(TOP (NP (XX a) (XX .)))") == Counts{2, 1, 1});
}

TEST_CASE("crossing brackets") {
  // The treebank: S[0,4) NP[0,2) VP[2,4).
  const std::string gold = "(TOP (S (NP (A a) (B b)) (VP (C c) (D d))))";
  // X[1,3) crosses both; it counts once.
  CHECK(crossing(gold, "(TOP (S (XX a) (X (XX b) (XX c)) (XX d)))") == 1);
  CHECK(counts(gold, "(TOP (S (XX a) (X (XX b) (XX c)) (XX d)))") == Counts{3, 2, 1});
  // X[0,3) crosses VP, the chain of two Y[1,4) crosses NP twice.
  CHECK(crossing(gold, "(TOP (S (X (XX a) (XX b) (XX c)) (XX d)))") == 1);
  CHECK(crossing(gold, "(TOP (S (XX a) (Y (Y (XX b) (XX c) (XX d)))))") == 2);
  // Nested and touching brackets do not cross.
  CHECK(crossing(gold, "(TOP (S (XX a) (X (XX b)) (X (XX c)) (XX d)))") == 0);
  // Without the comma's word NP[0,2) and X[1,3) would be disjoint: b and the comma, c. Words that count: a b c.
  CHECK(crossing("(TOP (S (NP (A a) (B b)) (, ,) (C c)))", "(TOP (S (XX a) (XX b) (X (XX ,) (XX c))))") == 0);
  CHECK(crossing("(TOP (S (NP (A a) (B b)) (, ,) (C c)))", "(TOP (S (XX a) (X (XX b) (XX ,) (XX c))))") == 1);

  // Three crossing brackets are more than two; the shares are of the parsed sentences.
  const auto three = count_brackets(tree(gold), tree("(TOP (S (XX a) (Y (Y (Y (XX b) (XX c) (XX d))))))"));
  CHECK(three.crossing == 3);
  CHECK(three.no_crossing == 0);
  CHECK(three.two_or_less_crossing == 0);
}

TEST_CASE("of random trees as many brackets cross as one by one") {
  std::mt19937 random(1);
  using Spans = std::vector<std::pair<int, int>>;
  // A tree over words [first, last), and where its constituents lie.
  const std::function<std::string(int, int, Spans&)> grown = [&](int first, int last, Spans& spans) {
    if (last - first == 1) return fmt::format("(N w{})", first);
    spans.emplace_back(first, last);
    const int middle = first + 1 + static_cast<int>(random() % static_cast<unsigned>(last - first - 1));
    if (random() % 3 > 0) return fmt::format("(X {} {})", grown(first, middle, spans), grown(middle, last, spans));
    std::string words;
    for (int word = middle; word < last; ++word) words += fmt::format(" (N w{})", word);
    return fmt::format("(X {}{})", grown(first, middle, spans), words);
  };
  int64_t all = 0;
  for (int i = 0; i < 300; ++i) {
    Spans gold, parsed;
    const int words = 2 + static_cast<int>(random() % 12);
    const auto gold_tree = grown(0, words, gold), parsed_tree = grown(0, words, parsed);
    const auto expected = std::count_if(parsed.begin(), parsed.end(), [&](const auto& a) {
      return std::any_of(gold.begin(), gold.end(), [&](const auto& b) {
        return (a.first < b.first && b.first < a.second && a.second < b.second) ||
               (b.first < a.first && a.first < b.second && b.second < a.second);
      });
    });
    CHECK(crossing(gold_tree, parsed_tree) == expected);
    all += expected;
  }
  CHECK(all > 300);
}

TEST_CASE("a sentence without a parse is missed, not left out") {
  for (const char* none : {"", "()", "(())", "(TOP)"}) {
    INFO(none);
    CHECK(counts(dog, none) == Counts{4, 0, 0});
    const auto result = count_brackets(tree(dog), tree(none));
    CHECK(result.unparsed == 1);
    CHECK(result.exact == 0);
    CHECK(result.f1() == 0);
  }
  // Beside a perfect one: 4 of 8 brackets found, 4 of 4 right, F1 = 2 * 4 / (8 + 4); half the sentences exact; of the
  // one that is parsed nothing crosses.
  const auto score = score_brackets({tree(dog), tree(dog)}, {tree(dog), tree("")}).all;
  CHECK(score.recall() == 50);
  CHECK(score.precision() == 100);
  CHECK(score.f1() == Approx(200.0 / 3));
  CHECK(score.exact_match() == 50);
  CHECK(score.without_crossing() == 100);
}

TEST_CASE("a parse over other words counts as none") {
  const std::string gold = "(TOP (S (NP (NN time)) (VP (VBZ flies)) (. .)))";
  CHECK(counts(gold, "(TOP (S (NP (XX time)) (VP (XX flies))))") == Counts{3, 0, 0});                // too few
  CHECK(counts(gold, "(TOP (S (NP (XX time)) (VP (XX flies) (XX .) (XX .))))") == Counts{3, 0, 0});  // too many
  CHECK(counts(gold, "(TOP (S (NP (XX Time)) (VP (XX flies)) (XX .)))") == Counts{3, 0, 0});         // another
  CHECK(counts(gold, "(TOP (S (NP (XX time)) (VP (XX flies)) (XX !)))") == Counts{3, 3, 3});         // punctuation
}

TEST_CASE("PRT equals ADVP") {
  // S VP PRT; the parse says ADVP, and the other way round.
  CHECK(counts("(TOP (S (VP (VB go) (PRT (RP on)))))", "(TOP (S (VP (XX go) (ADVP (XX on)))))") == Counts{3, 3, 3});
  CHECK(counts("(TOP (S (VP (VB go) (ADVP (RB on)))))", "(TOP (S (VP (XX go) (PRT (XX on)))))") == Counts{3, 3, 3});
}

TEST_CASE("function tags, indices and traces do not count") {
  // S[0,2) NP[0,1) VP[1,2) on both sides; the second NP and the SBAR hold traces alone.
  const std::string gold =
      "( (S (NP-SBJ-1 (NNS prices)) (VP (VBD fell) (NP=2 (-NONE- *-1)) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))))";
  CHECK(counts(gold, "(TOP (S (NP (XX prices)) (VP (XX fell))))") == Counts{3, 3, 3});
}

TEST_CASE("topmost nodes of all names are no brackets") {
  for (const char* top : {"TOP", "ROOT", "S1", ""}) {
    INFO(top);
    CHECK(counts(fmt::format("({} (NP (NN x)))", top), "(NP (XX x))") == Counts{1, 1, 1});
    CHECK(counts("(NP (NN x))", fmt::format("({} (NP (XX x)))", top)) == Counts{1, 1, 1});
  }
}

TEST_CASE("a sentence of punctuation counts for nothing") {
  const auto score = score_brackets({tree("(TOP (X (: ...)))"), tree(dog)}, {tree(""), tree(dog)}).all;
  CHECK(score.sentences == 2);
  CHECK(score.unscored == 1);
  CHECK(score.unparsed == 0);
  CHECK(score.gold == 4);
  CHECK(score.exact_match() == 100);
}

TEST_CASE("sentences of up to 40 words, punctuation counted, are scored by themselves") {
  const auto sentence = [](int words) {
    std::string text = "(TOP (NP";
    for (int i = 1; i < words; ++i) text += " (NN x)";
    return tree(text + " (. .)))");
  };
  const auto score = score_brackets({sentence(40), sentence(41), tree(dog)}, {sentence(40), sentence(41), tree("")});
  CHECK(score.all.sentences == 3);
  CHECK(score.all.matched == 2);
  CHECK(score.short_sentences.sentences == 2);
  CHECK(score.short_sentences.matched == 1);
  CHECK(score.short_sentences.gold == 5);
  CHECK_THROWS_AS(score_brackets({tree(dog)}, {}), Error);
}

TEST_CASE("brackets are counted as an independent program counts them") {
  test::TemporaryDirectory folder;
  test::run_reference("brackets.py", "'" + (folder / "pairs.json").string() + "'");
  const auto pairs = nlohmann::json::parse(test::read_file(folder / "pairs.json"));
  REQUIRE(pairs.size() == 600);
  BracketCounts sum, short_sentences;
  std::vector<Tree> gold, parsed;
  for (const auto& pair : pairs) {
    gold.push_back(tree(pair.at("gold")));
    parsed.push_back(tree(pair.at("parsed")));
    const auto& expected = pair.at("counts");
    const BracketCounts counts{.sentences = expected.at("sentences"),
                               .unparsed = expected.at("unparsed"),
                               .unscored = expected.at("unscored"),
                               .gold = expected.at("gold"),
                               .parsed = expected.at("parsed"),
                               .matched = expected.at("matched"),
                               .exact = expected.at("exact"),
                               .crossing = expected.at("crossing"),
                               .no_crossing = expected.at("no_crossing"),
                               .two_or_less_crossing = expected.at("two_or_less_crossing")};
    INFO(pair.dump());
    CHECK(count_brackets(gold.back(), parsed.back()) == counts);
    sum += counts;
    if (expected.at("words") <= 40) short_sentences += counts;
  }
  // The pairs put the rules to the test: some of everything occurs.
  CHECK(sum.crossing > 100);
  CHECK(sum.unparsed > 10);
  CHECK(sum.unscored > 5);
  CHECK(sum.exact > 10);
  CHECK(sum.matched > 1000);
  const auto score = score_brackets(gold, parsed);
  CHECK(score.all == sum);
  CHECK(score.short_sentences == short_sentences);
  CHECK(score.short_sentences.sentences < score.all.sentences);
}
