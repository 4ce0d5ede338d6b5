#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace transformer {

/// Phrases that an output shall hold, and how far a hypothesis is with them.
class RequiredPhrases {
 public:
  /// Each as its tokens.
  using Phrases = std::vector<std::vector<int64_t>>;

  /// `phrases`, none of which is empty, must outlive it. A hypothesis without a token.
  explicit RequiredPhrases(const Phrases& phrases) : phrases_(&phrases), met_(phrases.size(), false) {}

  /// Takes up the next token. Where it does not go on with a phrase that has begun, what counted of it is lost, but for
  /// what begins a phrase again.
  void append(int64_t token);

  /// Whether no phrase is missing.
  bool all_met() const { return left() == 0; }
  /// Indices of the phrases that are not there yet, ascending.
  std::vector<size_t> missing() const;
  /// Tokens that count: those of the phrases that are there, and of the one that has begun.
  int64_t tokens() const { return of_met_ + begun_; }
  /// The tokens that go on with the phrase that has begun, or begin one; each once.
  std::vector<int64_t> next() const;

 private:
  size_t left() const;
  /// A missing phrase that begins with the last `count` of `tokens`; preferably it ends with them. None: the number of
  /// phrases.
  size_t matching(std::span<const int64_t> tokens, int64_t count) const;

  const Phrases* phrases_;
  std::vector<bool> met_;
  int64_t of_met_ = 0;  // tokens of phrases that are there
  int64_t begun_ = 0;   // tokens of phrase `phrase_`, and of others that begin alike
  size_t phrase_ = 0;
};

/// How many of `slots` each bank of candidates gets (Post and Vilar 2018, dynamic beam allocation): an equal share
/// each, the last one what cannot be divided, and what one has no candidates for goes to the others, the last first.
std::vector<int64_t> bank_sizes(int64_t slots, std::span<const int64_t> candidates);

}  // namespace transformer
