#include "transformer/report/word_differences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "catch.h"
#include "transformer/base/unicode.h"

using namespace transformer;
using In = WordStretch::In;

namespace {

std::string side(const std::vector<WordStretch>& stretches, In other) {
  std::vector<std::string> words;
  for (const auto& stretch : stretches) {
    if (stretch.in != other) words.push_back(stretch.words);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

// The longest common subsequence, by trying everything.
size_t longest(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b, size_t i, size_t j) {
  if (i == a.size() || j == b.size()) return 0;
  if (a[i] == b[j]) return 1 + longest(a, b, i + 1, j + 1);
  return std::max(longest(a, b, i + 1, j), longest(a, b, i, j + 1));
}

}  // namespace

TEST_CASE("word differences by hand") {
  using Stretches = std::vector<WordStretch>;
  CHECK(word_differences("", "").empty());
  CHECK(word_differences("a b", " a\tb ") == Stretches{{In::both, "a b"}});
  CHECK(word_differences("a b c", "") == Stretches{{In::first, "a b c"}});
  CHECK(word_differences("", "x") == Stretches{{In::second, "x"}});
  CHECK(word_differences("the big dog barks", "the cat barks") ==
        Stretches{{In::both, "the"}, {In::first, "big dog"}, {In::second, "cat"}, {In::both, "barks"}});
  CHECK(
      word_differences("a b c d", "b x d y") ==
      Stretches{
          {In::first, "a"}, {In::both, "b"}, {In::first, "c"}, {In::second, "x"}, {In::both, "d"}, {In::second, "y"}});
}

TEST_CASE("word differences share as much as can be, and spell both texts") {
  std::mt19937 random(1);
  const auto text = [&] {
    std::vector<std::string> words;
    for (size_t i = random() % 9; i > 0; --i) words.push_back(std::string(1, static_cast<char>('a' + random() % 3)));
    return fmt::format("{}", fmt::join(words, " "));
  };
  for (int i = 0; i < 500; ++i) {
    const auto first = text(), second = text();
    INFO(first << " | " << second);
    const auto found = word_differences(first, second);
    CHECK(side(found, In::second) == first);
    CHECK(side(found, In::first) == second);
    size_t shared = 0;
    for (const auto& stretch : found) shared += stretch.in == In::both ? split_words(stretch.words).size() : 0;
    CHECK(shared == longest(split_words(first), split_words(second), 0, 0));
    for (size_t k = 1; k < found.size(); ++k) {
      CHECK(found[k].in != found[k - 1].in);
      CHECK_FALSE((found[k - 1].in == In::second && found[k].in == In::first));
    }
    const auto short_of_cells = word_differences(first, second, 4);
    CHECK(side(short_of_cells, In::second) == first);
    CHECK(side(short_of_cells, In::first) == second);
  }
}
