#include "transformer/evaluation/brackets.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "transformer/base/counted.h"
#include "transformer/base/error.h"

namespace transformer {

namespace {

struct Bracket {
  int64_t start, end;  // in words that count
  std::string label;
  auto operator<=>(const Bracket&) const = default;
};

struct Word {
  std::string tag, text;
};

bool is_punctuation(std::string_view tag) {
  return tag == "," || tag == ":" || tag == "``" || tag == "''" || tag == ".";
}

void collect(const Tree& tree, std::vector<Word>& words) {
  if (tree.is_word()) words.push_back({tree.label, tree.word});
  for (const auto& child : tree.children) collect(child, words);
}

/// `position[i]`: how many words that count stand before word i. `word` is the number of the tree's first word.
void collect(const Tree& tree, const std::vector<int64_t>& position, size_t& word, std::vector<Bracket>& brackets) {
  const size_t first = word;
  if (tree.is_word()) ++word;
  for (const auto& child : tree.children) collect(child, position, word, brackets);
  const int64_t start = position[first], end = position[word];
  if (tree.is_word() || start == end || is_top(tree.label) || is_punctuation(tree.label)) return;
  brackets.push_back({start, end, tree.label == "PRT" ? "ADVP" : tree.label});
}

std::vector<Bracket> brackets_of(const Tree& tree, const std::vector<int64_t>& position) {
  std::vector<Bracket> brackets;
  size_t word = 0;
  collect(tree, position, word, brackets);
  std::sort(brackets.begin(), brackets.end());
  return brackets;
}

/// How many of `found` cross one of `expected`: one that begins within it ends behind it, or one that ends within it
/// begins before it. A bracket is looked through once, whatever number of others there are.
int64_t count_crossing(const std::vector<Bracket>& found, const std::vector<Bracket>& expected, int64_t words) {
  std::vector<int64_t> last_end(static_cast<size_t>(words) + 1, 0), first_start(static_cast<size_t>(words) + 1, words);
  for (const auto& [start, end, label] : expected) {
    auto& last = last_end[static_cast<size_t>(start)];
    auto& first = first_start[static_cast<size_t>(end)];
    last = std::max(last, end);
    first = std::min(first, start);
  }
  return std::count_if(found.begin(), found.end(), [&](const Bracket& bracket) {
    for (int64_t inside = bracket.start + 1; inside < bracket.end; ++inside) {
      const auto at = static_cast<size_t>(inside);
      if (last_end[at] > bracket.end || first_start[at] < bracket.start) return true;
    }
    return false;
  });
}

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

BracketCounts count_cleaned(const Tree& gold, const Tree& parsed) {
  std::vector<Word> gold_words, parsed_words;
  collect(gold, gold_words);
  collect(parsed, parsed_words);
  std::vector<int64_t> position{0};
  bool same = gold_words.size() == parsed_words.size();
  for (size_t i = 0; i < gold_words.size(); ++i) {
    const bool counts = !is_punctuation(gold_words[i].tag);
    position.push_back(position.back() + (counts ? 1 : 0));
    if (same && counts && gold_words[i].text != parsed_words[i].text) same = false;
  }

  BracketCounts counts{.sentences = 1};
  if (position.back() == 0) {
    counts.unscored = 1;
    return counts;
  }
  const auto expected = brackets_of(gold, position);
  counts.gold = static_cast<int64_t>(expected.size());
  if (!same) {
    counts.unparsed = 1;
    return counts;
  }
  const auto found = brackets_of(parsed, position);
  counts.parsed = static_cast<int64_t>(found.size());
  std::vector<Bracket> both;
  std::set_intersection(expected.begin(), expected.end(), found.begin(), found.end(), std::back_inserter(both));
  counts.matched = static_cast<int64_t>(both.size());
  counts.exact = counts.matched == counts.gold && counts.matched == counts.parsed;
  counts.crossing = count_crossing(found, expected, position.back());
  counts.no_crossing = counts.crossing == 0;
  counts.two_or_less_crossing = counts.crossing <= 2;
  return counts;
}

}  // namespace

BracketCounts& BracketCounts::operator+=(const BracketCounts& other) {
  for (const auto member :
       {&BracketCounts::sentences, &BracketCounts::unparsed, &BracketCounts::unscored, &BracketCounts::gold,
        &BracketCounts::parsed, &BracketCounts::matched, &BracketCounts::exact, &BracketCounts::crossing,
        &BracketCounts::no_crossing, &BracketCounts::two_or_less_crossing}) {
    this->*member += other.*member;
  }
  return *this;
}

double BracketCounts::precision() const {
  return share(matched, parsed);
}

double BracketCounts::recall() const {
  return share(matched, gold);
}

double BracketCounts::f1() const {
  return share(2 * matched, gold + parsed);
}

double BracketCounts::exact_match() const {
  return share(exact, sentences - unscored);
}

double BracketCounts::average_crossing() const {
  return share(crossing, sentences - unscored - unparsed) / 100;
}

double BracketCounts::without_crossing() const {
  return share(no_crossing, sentences - unscored - unparsed);
}

double BracketCounts::with_two_or_less_crossing() const {
  return share(two_or_less_crossing, sentences - unscored - unparsed);
}

BracketCounts count_brackets(const Tree& gold, const Tree& parsed) {
  return count_cleaned(cleaned(gold), cleaned(parsed));
}

BracketScore score_brackets(const std::vector<Tree>& gold, const std::vector<Tree>& parsed) {
  if (gold.size() != parsed.size()) {
    throw Error("bracket F1", fmt::format("{} for {}", counted(parsed.size(), "parse"), counted(gold.size(), "tree")),
                "parse exactly the treebank's sentences, in its order");
  }
  BracketScore score;
  for (size_t i = 0; i < gold.size(); ++i) {
    const Tree tree = cleaned(gold[i]);
    const auto counts = count_cleaned(tree, cleaned(parsed[i]));
    score.all += counts;
    if (words_of(tree).size() <= static_cast<size_t>(BracketScore::short_length)) score.short_sentences += counts;
  }
  return score;
}

}  // namespace transformer
