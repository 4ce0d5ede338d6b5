#include "transformer/inference/required_phrases.h"

#include <algorithm>

namespace transformer {

size_t RequiredPhrases::left() const {
  return static_cast<size_t>(std::count(met_.begin(), met_.end(), false));
}

std::vector<size_t> RequiredPhrases::missing() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < met_.size(); ++i) {
    if (!met_[i]) indices.push_back(i);
  }
  return indices;
}

size_t RequiredPhrases::matching(std::span<const int64_t> tokens, int64_t count) const {
  const auto last = tokens.last(static_cast<size_t>(count));
  size_t found = phrases_->size();
  for (size_t i = 0; i < phrases_->size(); ++i) {
    const auto& phrase = (*phrases_)[i];
    if (met_[i] || phrase.size() < last.size() || !std::equal(last.begin(), last.end(), phrase.begin())) continue;
    if (phrase.size() == last.size()) return i;
    if (found == phrases_->size()) found = i;
  }
  return found;
}

void RequiredPhrases::append(int64_t token) {
  if (all_met()) return;
  std::vector<int64_t> tokens;
  if (begun_ > 0) tokens.assign((*phrases_)[phrase_].begin(), (*phrases_)[phrase_].begin() + begun_);
  tokens.push_back(token);
  for (int64_t count = begun_ + 1; count > 0; --count) {
    const size_t phrase = matching(tokens, count);
    if (phrase == phrases_->size()) continue;
    if (static_cast<int64_t>((*phrases_)[phrase].size()) == count) {
      met_[phrase] = true;
      of_met_ += count;
      begun_ = 0;
    } else {
      begun_ = count;
      phrase_ = phrase;
    }
    return;
  }
  begun_ = 0;
}

std::vector<int64_t> RequiredPhrases::next() const {
  std::vector<int64_t> tokens;
  for (size_t i = 0; i < phrases_->size(); ++i) {
    const auto& phrase = (*phrases_)[i];
    if (met_[i] || static_cast<int64_t>(phrase.size()) <= begun_) continue;
    if (begun_ == 0 || std::equal(phrase.begin(), phrase.begin() + begun_, (*phrases_)[phrase_].begin())) {
      tokens.push_back(phrase[static_cast<size_t>(begun_)]);
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

std::vector<int64_t> bank_sizes(int64_t slots, std::span<const int64_t> candidates) {
  const auto banks = static_cast<int64_t>(candidates.size());
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
