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
  explicit RequiredPhrases(const Phrases& phrases) : phrases_(&phrases), held_(phrases.size()) {}

  /// Takes up the next token. A phrase is there once the output ends with it, whatever else has begun; of phrases that
  /// are the same, one at a time. Where it does not go on with a phrase that has begun, what counted of it is lost, but
  /// for what begins the phrase again.
  void append(int64_t token);

  /// Whether no phrase is missing.
  bool all_met() const;
  /// Indices of the phrases that are not there yet, ascending.
  std::vector<size_t> missing() const;
  /// Tokens that count: those of the phrases that are there, and of the missing one that most has begun of. The token
  /// that goes on with this one makes them more.
  int64_t tokens() const;
  /// The tokens that go on with the missing phrases that most has begun of, or begin one; each once.
  std::vector<int64_t> next() const;

 private:
  bool met(size_t phrase) const { return held_[phrase] == (*phrases_)[phrase].size(); }
  /// Tokens of the missing phrase that most has begun of.
  size_t begun() const;

  const Phrases* phrases_;
  std::vector<size_t> held_;  // of each phrase: all its tokens, or those of its beginning that the output ends with
};

/// How many of `slots` each bank of candidates gets (Post and Vilar 2018, dynamic beam allocation): an equal share
/// for each that has any, the last one what cannot be divided, and what one has no candidates for goes to the others,
/// the last first.
std::vector<int64_t> bank_sizes(int64_t slots, std::span<const int64_t> candidates);

}  // namespace transformer
