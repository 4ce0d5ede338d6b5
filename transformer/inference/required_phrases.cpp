#include "transformer/inference/required_phrases.h"

#include <algorithm>

namespace transformer {

std::vector<size_t> RequiredPhrases::missing() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < held_.size(); ++i) {
    if (!met(i)) indices.push_back(i);
  }
  return indices;
}

void RequiredPhrases::append(int64_t token) {
  std::vector<size_t> now;  // those that the token ends
  for (size_t i = 0; i < held_.size(); ++i) {
    if (met(i)) continue;
    const auto& phrase = (*phrases_)[i];
    const auto held = std::span(phrase).first(held_[i]);
    // Of phrases that are the same, each needs an end of its own.
    const bool another =
        std::any_of(now.begin(), now.end(), [&](size_t before) { return (*phrases_)[before] == phrase; });
    size_t count = std::min(held.size() + 1, phrase.size() - (another ? 1 : 0));
    const auto begins = [&] {  // whether the phrase begins with the last `count` of what is held and the token
      const auto last = held.last(count - 1);
      return phrase[count - 1] == token && std::equal(last.begin(), last.end(), phrase.begin());
    };
    while (count > 0 && !begins()) --count;
    held_[i] = count;
    if (met(i)) now.push_back(i);
  }
}

bool RequiredPhrases::all_met() const {
  for (size_t i = 0; i < held_.size(); ++i) {
    if (!met(i)) return false;
  }
  return true;
}

size_t RequiredPhrases::begun() const {
  size_t most = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    if (!met(i)) most = std::max(most, held_[i]);
  }
  return most;
}

int64_t RequiredPhrases::tokens() const {
  size_t count = begun();
  for (size_t i = 0; i < held_.size(); ++i) {
    if (met(i)) count += held_[i];
  }
  return static_cast<int64_t>(count);
}

std::vector<int64_t> RequiredPhrases::next() const {
  std::vector<int64_t> tokens;
  const size_t most = begun();
  for (size_t i = 0; i < held_.size(); ++i) {
    if (!met(i) && held_[i] == most) tokens.push_back((*phrases_)[i][most]);
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
