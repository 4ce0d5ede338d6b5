#include "transformer/inference/output_prefix.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

// Where words are not set apart by spaces, no more than so many pieces are open again.
constexpr size_t most_open_pieces = 4;

/// What an output begins with, and where behind each of its bytes a piece may end.
struct Prefix {
  std::vector<int64_t> tokens;
  std::string rest;          // after them, in any pieces
  std::vector<bool> viable;  // by offset: whether pieces can spell the rest from there
  std::shared_ptr<const PieceTexts> pieces;

  /// Calls `visit(token, end)` with each token that may come where the rest is spelled up to `offset`.
  template <class Visit>
  void visit_continuations(size_t offset, Visit visit) const {
    const auto left = std::string_view(rest).substr(offset);
    for (const int64_t token : pieces->beginning_with(left)) visit(token, rest.size());
    for (size_t length = 1; length < left.size(); ++length) {
      if (!viable[offset + length]) continue;
      for (const int64_t token : pieces->equal_to(left.substr(0, length))) visit(token, offset + length);
    }
  }
};

class PrefixState : public OutputConstraint {
 public:
  PrefixState(std::shared_ptr<const Prefix> prefix, size_t token, size_t offset)
      : prefix_(std::move(prefix)), token_(token), offset_(offset) {}

  bool free() const override { return token_ == prefix_->tokens.size() && offset_ == prefix_->rest.size(); }

  std::vector<int64_t> allowed() const override {
    if (token_ < prefix_->tokens.size()) return {prefix_->tokens[token_]};
    std::vector<int64_t> tokens;
    prefix_->visit_continuations(offset_, [&](int64_t token, size_t) { tokens.push_back(token); });
    return tokens;
  }

  std::optional<std::vector<int64_t>> asked_for() const override {
    auto tokens = prefix_->tokens;
    for (size_t offset = 0; offset < prefix_->rest.size(); ++offset) {
      if (!prefix_->viable[offset]) continue;
      // What ends a word is needed, and not every word that may follow.
      if (prefix_->rest.compare(offset, std::string::npos, " ") == 0) {
        const auto blank = prefix_->pieces->equal_to(" ");
        tokens.insert(tokens.end(), blank.begin(), blank.end());
        if (!blank.empty()) continue;
      }
      prefix_->visit_continuations(offset, [&](int64_t token, size_t) { tokens.push_back(token); });
    }
    return tokens;
  }

  std::shared_ptr<const OutputConstraint> after(int64_t token) const override {
    if (token_ < prefix_->tokens.size()) return std::make_shared<PrefixState>(prefix_, token_ + 1, offset_);
    const size_t spelled = prefix_->pieces->of(token).size();
    return std::make_shared<PrefixState>(prefix_, token_, std::min(offset_ + spelled, prefix_->rest.size()));
  }

 private:
  std::shared_ptr<const Prefix> prefix_;
  size_t token_, offset_;  // of what came already
};

class ToldToken : public OutputConstraint {
 public:
  ToldToken(int64_t token, std::shared_ptr<const OutputConstraint> then) : token_(token), then_(std::move(then)) {}

  std::vector<int64_t> allowed() const override { return {token_}; }
  bool told() const override { return true; }
  std::optional<std::vector<int64_t>> asked_for() const override { return then_->asked_for(); }  // it is told
  std::shared_ptr<const OutputConstraint> after(int64_t) const override { return then_; }

 private:
  int64_t token_;
  std::shared_ptr<const OutputConstraint> then_;
};

}  // namespace

std::shared_ptr<const OutputConstraint> begins_with_told(int64_t token, std::shared_ptr<const OutputConstraint> then) {
  return std::make_shared<ToldToken>(token, then ? std::move(then) : begins_with({}));
}

std::shared_ptr<const OutputConstraint> begins_with(std::vector<int64_t> tokens) {
  auto prefix = std::make_shared<Prefix>();
  prefix->tokens = std::move(tokens);
  return std::make_shared<PrefixState>(std::move(prefix), 0, 0);
}

OutputPrefix begins_with(std::string_view text, const Vocabulary& vocabulary,
                         std::shared_ptr<const PieceTexts> pieces) {
  const auto words = trim(text);
  auto ids = vocabulary.encode(words);
  if (std::find(ids.begin(), ids.end(), Vocabulary::unknown) != ids.end()) {
    throw Error(in_quotes(words), "the output cannot begin so: the vocabulary lacks a character of it");
  }
  auto prefix = std::make_shared<Prefix>();
  if (trim_end(text).size() < text.size()) {
    prefix->rest.assign(1, ' ');
  } else {
    size_t word = ids.size();
    while (word > 0 && ids.size() - word < most_open_pieces &&
           (word == ids.size() || pieces->of(ids[word])[0] != ' ')) {
      --word;
    }
    prefix->rest = pieces->of(std::span(ids).subspan(word));
    ids.resize(word);
  }
  const auto tokens = static_cast<int64_t>(ids.size() + prefix->rest.size());
  auto spelled = pieces->of(ids) + prefix->rest;
  prefix->tokens = std::move(ids);
  prefix->pieces = std::move(pieces);
  prefix->viable.assign(prefix->rest.size() + 1, true);
  for (size_t offset = prefix->rest.size(); offset-- > 0;) {
    prefix->viable[offset] = false;
    prefix->visit_continuations(offset, [&](int64_t, size_t) { prefix->viable[offset] = true; });
  }
  if (!prefix->viable[0]) {
    throw Error(in_quotes(words), "the output cannot begin so: no piece of the vocabulary begins a word");
  }
  return {std::make_shared<PrefixState>(std::move(prefix), 0, 0), tokens, std::move(spelled)};
}

}  // namespace transformer
