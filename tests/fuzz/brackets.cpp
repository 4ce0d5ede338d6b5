// Parses, scored against a treebank: files gold and parsed, or the same file for both.

#include "transformer/evaluation/brackets.h"

#include <algorithm>

#include "fuzz/fuzz.h"

using namespace transformer;

namespace {

const fuzz::Target target("brackets", [](std::string_view input) {
  const auto files = fuzz::files_of(input);
  auto gold = read_treebank(fuzz::write_scratch("gold.mrg", files.begin()->second));
  auto parsed = read_treebank(fuzz::write_scratch("parsed.mrg", files.rbegin()->second));
  gold.resize(std::min(gold.size(), parsed.size()));
  parsed.resize(gold.size());
  const auto score = score_brackets(gold, parsed);
  for (const auto& counts : {score.all, score.short_sentences}) {
    fuzz::require(counts.matched >= 0 && counts.matched <= std::min(counts.gold, counts.parsed),
                  "no more brackets match than there are");
    fuzz::require(counts.crossing >= 0 && counts.crossing <= counts.parsed, "no more brackets cross than there are");
    for (const double share : {counts.precision(), counts.recall(), counts.f1(), counts.exact_match()}) {
      fuzz::require(share >= 0 && share <= 100, "shares are in per cent");
    }
  }
  const auto same = score_brackets(gold, gold).all;
  fuzz::require(same.unparsed > 0 || same.matched == same.gold, "a treebank matches itself");
});

}  // namespace
