#include "transformer/text/lexicon.h"

#include <map>
#include <random>

#include "support.h"
#include "text/text_support.h"

using namespace transformer;
using namespace transformer::test;

namespace {

using Sentence = std::vector<int32_t>;

/// Model 1 by its definition: p(t | s), with nothing as the source piece -1.
std::map<std::pair<int32_t, int32_t>, double> by_definition(const std::vector<std::pair<Sentence, Sentence>>& pairs,
                                                            int iterations) {
  std::map<std::pair<int32_t, int32_t>, double> probability;
  for (const auto& [source, target] : pairs) {
    for (const auto t : target) {
      probability[{-1, t}] = 1;
      for (const auto s : source) probability[{s, t}] = 1;
    }
  }
  for (int i = 0; i < iterations; ++i) {
    std::map<std::pair<int32_t, int32_t>, double> expected;
    std::map<int32_t, double> sums;
    for (const auto& [source, target] : pairs) {
      auto from = source;
      from.push_back(-1);
      for (const auto t : target) {
        double all = 0;
        for (const auto s : from) all += probability[{s, t}];
        for (const auto s : from) {
          expected[{s, t}] += probability[{s, t}] / all;
          sums[s] += probability[{s, t}] / all;
        }
      }
    }
    for (auto& [pair, value] : probability) value = expected[pair] / sums[pair.first];
  }
  return probability;
}

}  // namespace

TEST_CASE("a lexicon is that of IBM's Model 1, by its definition") {
  const TemporaryDirectory folder;
  const std::vector<std::string> words = {"ba", "do", "ki", "lu", "no", "ra", "si"};
  std::mt19937 random(5);
  std::string source_text, target_text;
  for (int line = 0; line < 60; ++line) {
    for (size_t i = 0, count = 1 + random() % 6; i < count; ++i) {
      const size_t word = random() % words.size();
      source_text += words[word] + " ";
      if (random() % 5 > 0) target_text += words[words.size() - 1 - word] + " ";
    }
    if (target_text.empty() || target_text.back() == '\n') target_text += "ba";
    source_text += '\n';
    target_text += '\n';
  }
  write_file(folder / "source", source_text);
  write_file(folder / "target", target_text);
  Vocabulary::train({folder / "source", folder / "target"}, 30, {.byte_fallback = false}, folder / "vocabulary.model");
  const Vocabulary vocabulary(folder / "vocabulary.model");
  const auto corpus =
      Corpus::read({(folder / "source").string()}, {(folder / "target").string()}, vocabulary, vocabulary, {});
  std::vector<std::pair<Sentence, Sentence>> pairs;
  std::map<int32_t, int64_t> counts;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    const auto source = corpus.source_ids(i), target = corpus.target_ids(i);
    pairs.push_back({{source.begin(), source.end()}, {target.begin(), target.end()}});
    for (const auto t : target) ++counts[t];
  }
  const auto size = vocabulary.size();
  for (const int iterations : {1, 4}) {
    const auto lexicon = Lexicon::learn(corpus, size, size, {.iterations = iterations});
    const auto expected = by_definition(pairs, iterations);
    size_t found = 0;
    for (int32_t source = 0; source < size; ++source) {
      float before = 2;
      for (const auto& [target, probability] : lexicon.of(source)) {
        CHECK(probability == Approx(expected.at({source, target})).epsilon(1e-4).margin(1e-6));
        CHECK(probability <= before);
        before = probability;
        ++found;
      }
    }
    const auto of_pieces =
        std::count_if(expected.begin(), expected.end(), [](const auto& item) { return item.first.first >= 0; });
    CHECK(found == static_cast<size_t>(of_pieces));
    CHECK(lexicon.frequent().size() == counts.size());
    for (size_t i = 1; i < lexicon.frequent().size(); ++i) {
      CHECK(counts[lexicon.frequent()[i - 1]] >= counts[lexicon.frequent()[i]]);
    }
  }
  // Fewer pairs, of the whole text.
  const auto some = Lexicon::learn(corpus, size, size, {.most_pairs = 10});
  CHECK(some.frequent().size() < counts.size() + 1);
  CHECK(Lexicon::learn(corpus, size, size, {.most_pieces = 0}).frequent().empty());
}
