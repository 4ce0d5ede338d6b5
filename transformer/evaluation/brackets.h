#pragma once

#include <cstdint>
#include <vector>

#include "transformer/text/treebank.h"

namespace transformer {

/// Counts over sentences, and what follows from them. Shares are in per cent; of nothing they are 0.
struct BracketCounts {
  int64_t sentences = 0;             // of the corpus
  int64_t unparsed = 0;              // without a parse, or with one over other words
  int64_t unscored = 0;              // nothing but punctuation
  int64_t gold = 0;                  // brackets of the treebank
  int64_t parsed = 0;                // brackets of the parses
  int64_t matched = 0;               // brackets that both have
  int64_t exact = 0;                 // sentences with all brackets matched on both sides
  int64_t crossing = 0;              // brackets of the parses that cross one of the treebank's
  int64_t no_crossing = 0;           // parsed sentences without such
  int64_t two_or_less_crossing = 0;  // with at most two

  /// Adds another part of the corpus.
  BracketCounts& operator+=(const BracketCounts& other);
  bool operator==(const BracketCounts&) const = default;

  /// Matched ones of the parses' brackets.
  double precision() const;
  /// Matched ones of the treebank's brackets.
  double recall() const;
  /// The harmonic mean of precision and recall.
  double f1() const;
  /// Of all sentences that are scored.
  double exact_match() const;
  /// Brackets that cross, a sentence that has a parse.
  double average_crossing() const;
  /// Of sentences that have a parse, those without.
  double without_crossing() const;
  /// Of sentences that have a parse, those with at most two.
  double with_two_or_less_crossing() const;
};

/// Brackets of a corpus, in all and in sentences of at most 40 words (punctuation counted).
struct BracketScore {
  /// Words of a short sentence, at most.
  static constexpr int64_t short_length = 40;
  BracketCounts all, short_sentences;  // over the whole corpus, and over the short ones
};

/// Compares one parse with the treebank's tree by the rules of EVALB with COLLINS.prm, those of the published figures
/// (Table 4: labelled F1). Both are cleaned first.
///
/// - A bracket is a constituent's label and the words that it spans; words themselves (tags) are none. Every one of a
///   unary chain counts, and equal brackets count as often as they occur on both sides.
/// - Topmost nodes are none (is_top).
/// - Punctuation is taken out before: words that the treebank tags , : `` '' or . (and no others: brackets -LRB- and
///   -RRB-, hyphens and currency signs stay). The treebank's tags decide, by position, for both trees, since parsers
///   need not tag. What spans nothing then is no bracket.
/// - PRT equals ADVP.
/// - Two brackets cross when each holds a word of the other and one that the other does not hold; labels do not matter.
///   A parse's bracket counts once, however many it crosses.
/// - A parse with other words than the treebank's tree (punctuation may be written differently), or with none, matches
///   nothing: it is counted, and all brackets of the treebank are missed. (EVALB leaves such sentences out, which
///   rewards a parser that refuses what is hard.)
/// - A sentence of nothing but punctuation counts for nothing.
BracketCounts count_brackets(const Tree& gold, const Tree& parsed);

/// Throws Error unless there are as many parses as trees. A parse without words is none.
BracketScore score_brackets(const std::vector<Tree>& gold, const std::vector<Tree>& parsed);

}  // namespace transformer
