#include "transformer/inference/tree_constraint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <sstream>

#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/inference/decoding_request.h"
#include "transformer/inference/shortlist.h"
#include "transformer/inference/translator.h"
#include "transformer/text/treebank.h"

namespace transformer::test {

namespace {

using Ids = std::vector<int64_t>;

const std::vector<std::string> labels = {"S", "NP", "VP", "PP", "ADVP", "SBAR", "WHNP"};

/// At most 5 constituents open one in the other, none in one of its own label.
Tree random_tree(std::mt19937& random, int depth, const std::string& parent = "") {
  Tree tree{labels[random() % labels.size()]};
  while (tree.label == parent) tree.label = labels[random() % labels.size()];
  for (size_t children = 1 + random() % 3; children > 0; --children) {
    if (depth > 0 && random() % 2) {
      tree.children.push_back(random_tree(random, depth - 1, tree.label));
    } else {
      tree.children.push_back({"XX", made_up_sentences(1, static_cast<unsigned>(random()), 1).front()});
    }
  }
  return tree;
}

Tree random_whole(std::mt19937& random) {
  return {"TOP", "", {random_tree(random, 4)}};
}

/// Of trees with words copied, and without; `split_scripts` keeps brackets and labels in pieces of their own.
std::shared_ptr<const Vocabulary> tree_vocabulary(const TemporaryDirectory& directory, bool split_scripts,
                                                  int64_t size = 400) {
  std::mt19937 random(7);
  std::string text;
  for (int i = 0; i < 600; ++i) {
    const auto tree = random_whole(random);
    text += linearize(tree, {.copy_words = true}) + "\n" + linearize(tree) + "\n";
  }
  write_file(directory / "text", text);
  VocabularySettings settings;
  settings.split_scripts = split_scripts;
  Vocabulary::train({directory / "text"}, size, settings, directory / "vocabulary.model");
  return std::make_shared<const Vocabulary>(directory / "vocabulary.model");
}

bool contains(const Ids& tokens, int64_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

TEST_CASE("every linearized tree over a sentence's words is allowed, as far as and no further than it goes") {
  const TemporaryDirectory directory;
  const auto vocabulary = tree_vocabulary(directory, GENERATE(false, true));
  const TreeConstraints trees(vocabulary);
  std::mt19937 random(11);
  for (int i = 0; i < 100; ++i) {
    const auto tree = random_whole(random);
    for (const bool copied : {true, false}) {
      const auto text = linearize(tree, {.copy_words = copied});
      INFO(text);
      auto state = trees.over(words_of(tree));
      for (const int64_t token : vocabulary->encode(text)) {
        INFO(vocabulary->piece(token));
        REQUIRE(contains(state->allowed(), token));
        REQUIRE_FALSE(contains(state->allowed(), Vocabulary::end));
        state = state->after(token);
      }
      CHECK(state->allowed() == Ids{Vocabulary::end});
    }
  }
}

TEST_CASE("whatever is chosen among what is allowed ends in a tree that needs no repair") {
  const TemporaryDirectory directory;
  const auto vocabulary = tree_vocabulary(directory, GENERATE(false, true));
  const TreeConstraints trees(vocabulary);
  CHECK(trees.has_labels() == !vocabulary->piece(vocabulary->encode("(NP").front()).ends_with("("));
  std::mt19937 random(5);
  const std::vector<std::string> odd = {"-LRB-", "XX", "XXL", "NP", "😀", "a\u00A0b", "\u200B", ")S", "Ωmega"};
  for (int i = 0; i < 300; ++i) {
    std::vector<std::string> words;
    for (size_t k = 1 + random() % 6; k > 0; --k) {
      words.push_back(random() % 3 ? made_up_sentences(1, static_cast<unsigned>(random()), 1).front()
                                   : odd[random() % odd.size()]);
    }
    Ids output;
    auto state = trees.over(words);
    while (true) {
      const auto allowed = state->allowed();
      REQUIRE_FALSE(allowed.empty());
      CHECK(std::set<int64_t>(allowed.begin(), allowed.end()).size() == allowed.size());
      // Whole outputs are more likely where closing is.
      auto token = allowed[random() % allowed.size()];
      for (const auto other : allowed) {
        if (random() % 4 == 0 && !vocabulary->piece(other).starts_with("▁(")) token = other;
      }
      if (token == Vocabulary::end) break;
      output.push_back(token);
      state = state->after(token);
      REQUIRE(output.size() < 10000);
    }
    const auto text = vocabulary->decode(output);
    INFO(text);
    const auto result = delinearize(text, words);
    CHECK(words_of(result.tree) == words);
    const bool spelled = std::none_of(words.begin(), words.end(), [&](const auto& word) {
      return word == "\u200B" || vocabulary->decode(vocabulary->encode(word)) != word || word.starts_with("XX") ||
             word.starts_with(")");
    });
    if (spelled) CHECK(result.well_formed);
  }
}

TEST_CASE("trees are written in what a shortlist lists, and all that they need") {
  const TemporaryDirectory directory;
  const auto vocabulary = tree_vocabulary(directory, GENERATE(false, true));
  const auto size = vocabulary->size();
  const TreeConstraints trees(vocabulary);
  const auto shortlist = std::make_shared<const Shortlist>(
      std::vector<int32_t>(), std::vector<std::vector<int32_t>>(static_cast<size_t>(size)), size);
  std::mt19937 random(13);
  for (int i = 0; i < 50; ++i) {
    const auto tree = random_whole(random);
    const DecodingRequest request{
        .source = {Vocabulary::end}, .constraint = trees.over(words_of(tree)), .shortlist = shortlist};
    request.check(size);
    const auto candidates = request.candidates();
    CHECK(!candidates.empty());
    CHECK(std::ssize(candidates) < size);
    for (const bool copied : {true, false}) {
      auto state = request.constraint;
      for (const int64_t token : vocabulary->encode(linearize(tree, {.copy_words = copied}))) {
        for (const int64_t allowed : state->allowed()) {
          CHECK(std::binary_search(candidates.begin(), candidates.end(), static_cast<int32_t>(allowed)));
        }
        state = state->after(token);
      }
    }
  }
  // What is likeliest of what is allowed is the same.
  auto packed = packed_translator(tiny_transformer(tiny_settings(size), 4), {vocabulary, vocabulary},
                                  {.beam = 1, .max_extra_length = 250}, {.threads = 2});
  const auto lines = made_up_sentences(12, 8, 1);
  const auto constraint_of = [&](size_t line) { return trees.over({lines[line]}); };
  const auto expected = packed.translate(lines, 1, constraint_of);
  packed.set_shortlist(shortlist);
  const auto found = packed.translate(lines, 1, constraint_of);
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(found[i].front().tokens == expected[i].front().tokens);
    // The same probabilities are shared among fewer tokens.
    CHECK(found[i].front().log_probability > expected[i].front().log_probability);
  }
}

TEST_CASE("a search under constraints is the search over what they allow, by brute force") {
  const TemporaryDirectory directory;
  const auto vocabulary = tree_vocabulary(directory, false);
  const TreeConstraints trees(vocabulary);
  auto model = tiny_transformer(tiny_settings(vocabulary->size()), 4);
  const DecodingSettings settings{.beam = 1, .max_extra_length = 250};
  const auto modules = module_translator(model, {vocabulary, vocabulary}, settings);
  const auto packed = packed_translator(model, {vocabulary, vocabulary}, settings, {.threads = 2});
  const auto lines = made_up_sentences(12, 8, 2);
  const auto words = [&](size_t line) {
    std::vector<std::string> result;
    std::stringstream stream(lines[line]);
    for (std::string word; stream >> word;) result.push_back(word);
    return result;
  };
  const auto constraint_of = [&](size_t line) { return trees.over(words(line)); };
  const auto found = modules.translate(lines, 1, constraint_of),
             found_packed = packed.translate(lines, 1, constraint_of);
  size_t finished = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto source = vocabulary->encode(lines[i]);
    auto with_end = source;
    with_end.push_back(Vocabulary::end);
    Ids expected;
    std::shared_ptr<const OutputConstraint> state = trees.over(words(i));
    double log_probability = 0;
    while (true) {
      Ids input = {Vocabulary::begin};
      input.insert(input.end(), expected.begin(), expected.end());
      torch::NoGradGuard no_grad;
      const auto all = model->forward(torch::tensor(with_end).unsqueeze(0), torch::tensor(input).unsqueeze(0))[0][-1]
                           .log_softmax(-1)
                           .to(torch::kDouble);
      int64_t best = -1;
      for (const auto token : state->allowed()) {
        if (best < 0 || all[token].item<double>() > all[best].item<double>()) best = token;
      }
      const bool full = expected.size() == source.size() + 250;
      if (full && best != Vocabulary::end) break;
      log_probability += all[best].item<double>();
      if (best == Vocabulary::end) {
        ++finished;
        CHECK(delinearize(found[i].front().text, words(i)).well_formed);
        break;
      }
      expected.push_back(best);
      state = state->after(best);
    }
    INFO(lines[i]);
    CHECK(found[i].front().tokens == expected);
    CHECK(found[i].front().log_probability == Approx(log_probability).epsilon(1e-4));
    CHECK(found_packed[i].front().tokens == expected);
    CHECK(found_packed[i].front().log_probability == Approx(log_probability).epsilon(1e-4));
  }
  CHECK(finished > 0);
}

TEST_CASE("whatever a constraint returns, no search reads beyond its scores") {
  struct Hostile : OutputConstraint {
    Ids tokens;
    bool lost = false;  // no state after the first token
    std::vector<int64_t> allowed() const override { return tokens; }
    std::shared_ptr<const OutputConstraint> after(int64_t) const override {
      return lost ? nullptr : std::make_shared<Hostile>(*this);
    }
  };
  const TemporaryDirectory directory;
  const auto vocabulary = tree_vocabulary(directory, false);
  auto model = tiny_transformer(tiny_settings(vocabulary->size()), 4);
  const DecodingSettings settings{.beam = 2, .max_extra_length = 3};
  const auto modules = module_translator(model, {vocabulary, vocabulary}, settings);
  const auto packed = packed_translator(model, {vocabulary, vocabulary}, settings, {.threads = 2});
  const auto lines = made_up_sentences(3, 8, 2);
  for (const auto* translator : {&modules, &packed}) {
    const auto message = [&](const Ids& tokens, bool lost = false) -> std::string {
      auto constraint = std::make_shared<Hostile>();
      constraint->tokens = tokens;
      constraint->lost = lost;
      try {
        translator->translate(lines, 1, [&](size_t line) { return line == 1 ? constraint : nullptr; });
      } catch (const std::out_of_range& error) {
        return error.what();
      }
      return "";
    };
    const auto size = vocabulary->size();
    CHECK(message({5, size - 1, Vocabulary::end}).empty());
    CHECK(message({Vocabulary::unknown}).empty());
    for (const int64_t token : {size, size + 1000000, int64_t{-1}, std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max(), Vocabulary::padding, Vocabulary::begin}) {
      CHECK_THAT(message({5, token, 6}), Contains(std::to_string(token)));
    }
    CHECK_THAT(message({}), Contains("no token"));
    CHECK_THAT(message({7, 5, 7}), Contains("token 7 twice"));
    CHECK_THAT(message({7, 5}, true), Contains("no state after token"));
  }
}

TEST_CASE("sentences without a constraint are translated as without any") {
  const TemporaryDirectory directory;
  const auto vocabulary = tree_vocabulary(directory, false);
  auto model = tiny_transformer(tiny_settings(vocabulary->size()), 4);
  const DecodingSettings settings{.beam = 3, .max_extra_length = 10, .n_best = 3};
  const auto lines = made_up_sentences(6, 9, 5);
  const TreeConstraints trees(vocabulary);
  const auto check = [&](const Translator& translator, double rounding) {
    const auto free = translator.translate(lines);
    // The third's constraint, in the same batch, is its own affair.
    const auto same = translator.translate(lines, 1, [&](size_t line) -> std::shared_ptr<const OutputConstraint> {
      if (line == 2) return trees.over({"ba"});
      return nullptr;
    });
    for (size_t i = 0; i < lines.size(); ++i) {
      INFO(i);
      if (i == 2) {
        CHECK(same[i].front().tokens != free[i].front().tokens);
        continue;
      }
      REQUIRE(same[i].size() == free[i].size());
      for (size_t k = 0; k < free[i].size(); ++k) {
        CHECK(same[i][k].tokens == free[i][k].tokens);
        CHECK(std::abs(same[i][k].log_probability - free[i][k].log_probability) <= rounding);
      }
    }
  };
  check(module_translator(model, {vocabulary, vocabulary}, settings),
        1e-4);  // LibTorch's products heed the batch's size
  check(packed_translator(model, {vocabulary, vocabulary}, settings, InferenceOptions{}), 0);
}

TEST_CASE("a vocabulary that was learned from trees is told from others") {
  const TemporaryDirectory directory;
  const bool split_scripts = GENERATE(false, true);
  const TreeConstraints trees(tree_vocabulary(directory, split_scripts));
  CHECK(trees.can_write_trees());
  CHECK(trees.has_labels() == !split_scripts);
  // Text with words in brackets is no tree.
  std::string text;
  for (const auto& sentence : made_up_sentences(600, 4)) text += sentence + " (" + sentence + ") NP VP S\n";
  write_file(directory / "text", text);
  VocabularySettings settings;
  settings.split_scripts = split_scripts;
  Vocabulary::train({directory / "text"}, 330, settings, directory / "other.model");
  const TreeConstraints none(std::make_shared<const Vocabulary>(directory / "other.model"));
  CHECK_FALSE(none.can_write_trees());
  CHECK_FALSE(none.has_labels());
}

}  // namespace transformer::test
