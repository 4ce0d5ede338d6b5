#include "transformer/inference/required_phrases.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "transformer/base/unicode.h"

namespace transformer {

namespace {

/// The tokens of `phrase` right behind other characters, a word's only where it does not begin in one; none where it
/// merges with all that are tried.
std::optional<std::vector<int64_t>> encode_within(std::string_view phrase, const Vocabulary& vocabulary,
                                                  const PieceTexts& pieces) {
  const auto text = pieces.of(vocabulary.encode(phrase));
  const TextEnd word(WordKind::word);
  const bool in_word = word.continued_by(phrase);
  for (const std::string before : {"a", "1", ".", "(", "\"", "'", "-"}) {
    if (in_word && word.continued_by(before)) continue;
    const auto first = vocabulary.encode(before);
    auto tokens = vocabulary.encode(before + std::string(phrase));
    if (tokens.size() <= first.size() || !std::equal(first.begin(), first.end(), tokens.begin())) continue;
    tokens.erase(tokens.begin(), tokens.begin() + std::ssize(first));
    if (pieces.of(tokens) == trim(text)) return tokens;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::vector<int64_t>> spellings_of(std::string_view phrase, const Vocabulary& vocabulary,
                                               const PieceTexts& pieces) {
  const auto text = trim(phrase);
  auto tokens = vocabulary.encode(text);
  if (tokens.empty()) return {};
  auto within = encode_within(text, vocabulary, pieces);
  if (!within || *within == tokens) return {std::move(tokens)};
  // Behind a space that is a piece of its own, the rest is the same.
  if (!pieces.begin_in_word(*within) &&
      std::search(tokens.begin(), tokens.end(), within->begin(), within->end()) != tokens.end()) {
    return {*within};
  }
  std::vector<std::vector<int64_t>> both = {std::move(tokens), std::move(*within)};
  if (both[0].size() < both[1].size()) std::swap(both[0], both[1]);
  return both;
}

RequiredPhrases::RequiredPhrases(const Phrases& phrases, std::span<const OtherSpelling> others,
                                 const PieceTexts* pieces)
    : phrases_(&phrases), others_(others), pieces_(pieces), met_(phrases.size()) {
  Fixed fixed;
  for (size_t i = 0; i < spellings(); ++i) {
    fixed.begins_in_word.push_back(pieces_ && pieces_->begin_in_word(tokens_of(i)));
    fixed.firsts.emplace_back(tokens_of(i).front(), i);
  }
  std::sort(fixed.firsts.begin(), fixed.firsts.end());
  fixed_ = std::make_shared<const Fixed>(std::move(fixed));
}

size_t RequiredPhrases::phrase_of(size_t spelling) const {
  return spelling < phrases_->size() ? spelling : others_[spelling - phrases_->size()].phrase;
}

const std::vector<int64_t>& RequiredPhrases::tokens_of(size_t spelling) const {
  return spelling < phrases_->size() ? (*phrases_)[spelling] : others_[spelling - phrases_->size()].tokens;
}

std::span<const std::pair<int64_t, size_t>> RequiredPhrases::beginning_with(int64_t token) const {
  // Not ranges::equal_range: Clang 14 does not take its subrange from GCC 12's headers.
  const auto& firsts = fixed_->firsts;
  return {std::lower_bound(firsts.begin(), firsts.end(), std::pair(token, size_t{0})),
          std::upper_bound(firsts.begin(), firsts.end(), std::pair(token, SIZE_MAX))};
}

void RequiredPhrases::set_met(size_t phrase, bool met) {
  if (met_[phrase] == met) return;
  met_[phrase] = met;
  const size_t tokens = (*phrases_)[phrase].size();
  tokens_of_met_ = met ? tokens_of_met_ + tokens : tokens_of_met_ - tokens;
}

std::vector<size_t> RequiredPhrases::missing() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < met_.size(); ++i) {
    if (!met_[i]) indices.push_back(i);
  }
  return indices;
}

void RequiredPhrases::append(int64_t token) {
  const bool behind_word = end_.in_word();
  settle(token);
  std::vector<size_t> now;  // those that the token ends
  const auto take_up = [&](size_t i, size_t held_before) {
    const size_t phrase = phrase_of(i);
    // One that the token ends may become a part of a longer word, and has to be followed in all its spellings.
    if (met_[phrase] && std::find(now.begin(), now.end(), phrase) == now.end()) return held_before;
    const auto& tokens = tokens_of(i);
    const auto held = std::span(tokens).first(held_before);
    // Of phrases that are the same, each needs an end of its own.
    const bool another = std::any_of(now.begin(), now.end(), [&](size_t before) {
      return before != phrase && (*phrases_)[before] == (*phrases_)[phrase];
    });
    size_t count = std::min(held.size() + 1, tokens.size() - (another ? 1 : 0));
    const auto begins = [&] {  // whether the phrase begins with the last `count` of what is held and the token
      const auto last = held.last(count - 1);
      if (tokens[count - 1] != token || !std::equal(last.begin(), last.end(), tokens.begin())) return false;
      if (count > held.size()) return !held.empty() || may_begin(i, behind_word);
      return may_begin(i, pieces_ && pieces_->end_in_word(held.first(held.size() + 1 - count)));
    };
    while (count > 0 && !begins()) --count;
    if (count == tokens.size() && !met_[phrase]) {
      set_met(phrase, true);
      now.push_back(phrase);
    }
    return count;
  };
  // Of the spellings, those that have begun and those that may now, in their order.
  std::vector<Held> after;
  auto old = held_.begin();
  auto beginning = beginning_with(token);
  while (old != held_.end() || !beginning.empty()) {
    const bool has_begun = old != held_.end() && (beginning.empty() || old->spelling <= beginning.front().second);
    const Held before = has_begun ? *old++ : Held{beginning.front().second, 0};
    if (!beginning.empty() && beginning.front().second == before.spelling) beginning = beginning.subspan(1);
    const size_t count = take_up(before.spelling, before.tokens);
    if (count > 0) after.push_back({before.spelling, count});
  }
  held_ = std::move(after);
  if (pieces_ && end_.may_go_on()) open_.insert(open_.end(), now.begin(), now.end());
}

/// Takes up the next token's text: phrases whose last word goes on with it are not there.
void RequiredPhrases::settle(int64_t token) {
  if (!pieces_) return;
  for (const char byte : pieces_->of(token)) {
    const bool broken = end_.broken_by(byte);
    const auto next = end_.append(byte);
    if (next == TextEnd::Next::unknown && !broken) continue;
    if (next == TextEnd::Next::goes_on) {
      for (const size_t phrase : open_) set_met(phrase, false);
    }
    open_.clear();
  }
}

bool RequiredPhrases::stays(int64_t token) const {
  if (!open_.empty() || within()) return false;
  const auto beginning = beginning_with(token);
  return std::all_of(beginning.begin(), beginning.end(),
                     [&](const auto& each) { return met_[phrase_of(each.second)]; });
}

bool RequiredPhrases::all_met() const {
  return std::find(met_.begin(), met_.end(), false) == met_.end();
}

size_t RequiredPhrases::begun() const {
  size_t most = 0;
  for (const auto& [spelling, tokens] : held_) {
    if (!met_[phrase_of(spelling)]) most = std::max(most, tokens);
  }
  return most;
}

int64_t RequiredPhrases::tokens() const {
  return static_cast<int64_t>(begun() + tokens_of_met_);
}

std::vector<int64_t> RequiredPhrases::next() const {
  std::vector<int64_t> tokens;
  const size_t most = begun();
  if (most == 0 && end_.in_character()) return tokens;
  for (const auto& [spelling, held] : held_) {
    if (!met_[phrase_of(spelling)] && held == most) tokens.push_back(tokens_of(spelling)[most]);
  }
  for (size_t i = 0; most == 0 && i < spellings(); ++i) {
    if (!met_[phrase_of(i)] && may_begin(i, end_.in_word())) tokens.push_back(tokens_of(i).front());
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

std::vector<int64_t> bank_sizes(int64_t slots, std::span<const int64_t> candidates) {
  const auto empty = std::count(candidates.begin(), candidates.end(), 0);
  const int64_t banks = std::max<int64_t>(1, std::ssize(candidates) - empty);
  std::vector<int64_t> sizes(candidates.size());
  int64_t left = slots;
  for (size_t bank = 0; bank < candidates.size(); ++bank) {
    sizes[bank] = std::min(candidates[bank], slots / banks);
    left -= sizes[bank];
  }
  for (size_t bank = candidates.size(); bank-- > 0;) {
    const int64_t more = std::min(left, candidates[bank] - sizes[bank]);
    sizes[bank] += more;
    left -= more;
  }
  return sizes;
}

}  // namespace transformer
