#include "transformer/inference/draft_pace.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>

namespace transformer {

namespace {

// Before passes of several sizes have been seen, a row more is taken to cost this share of what a row costs on average.
constexpr double expected_share = 0.25;
// Of what was seen, at each pass and at each sentence's proposals.
constexpr double kept = 0.98, kept_luck = 0.998;
// Proposals have to be worth so much more than none: estimates err.
constexpr double worth_it = 1.03;

}  // namespace

double CpuClock::now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void DraftPace::Cost::observe(int64_t rows, double seconds) {
  const auto count = static_cast<double>(rows);
  for (double* sum : {&weight_, &rows_, &seconds_, &squares_, &products_}) *sum *= kept;
  weight_ += 1;
  rows_ += count;
  seconds_ += seconds;
  squares_ += count * count;
  products_ += count * seconds;
  const double mean_rows = rows_ / weight_, mean_seconds = seconds_ / weight_;
  const double variance = squares_ / weight_ - mean_rows * mean_rows;
  const double most = mean_seconds / mean_rows;  // a pass over no rows takes no less than nothing
  if (variance > 0.02 * mean_rows * mean_rows) {
    slope_ = std::clamp((products_ / weight_ - mean_rows * mean_seconds) / variance, 0.0, most);
    fitted_ = true;
  } else if (!fitted_) {
    slope_ = expected_share * most;
  }
}

double DraftPace::Cost::of(int64_t rows) const {
  const double mean_rows = rows_ / weight_, mean_seconds = seconds_ / weight_;
  return std::max(mean_seconds + slope_ * (static_cast<double>(rows) - mean_rows), mean_seconds * 1e-3);
}

void DraftPace::Luck::observe(bool right) {
  right_ = kept_luck * right_ + (right ? 1 : 0);
  all_ = kept_luck * all_ + 1;
}

double DraftPace::Luck::chance(double prior) const {
  constexpr double weight = 8;
  return (prior * weight + right_) / (weight + all_);
}

namespace {

size_t bucket_of(double probability) {
  constexpr std::array<double, 5> edges = {0.2, 0.4, 0.6, 0.8, 0.95};
  return static_cast<size_t>(std::upper_bound(edges.begin(), edges.end(), probability) - edges.begin());
}

}  // namespace

void DraftPace::observe(std::span<const double> probabilities, int64_t right) {
  const int64_t judged = std::min(right + 1, std::ssize(probabilities));  // what follows a wrong one nobody knows
  for (int64_t i = 0; i < judged; ++i) {
    overall_.observe(i < right);
    by_probability_[bucket_of(probabilities[static_cast<size_t>(i)])].observe(i < right);
  }
}

double DraftPace::chance(double probability) const {
  return by_probability_[bucket_of(probability)].chance(overall_.chance(expected_chance));
}

DraftPace::Plan DraftPace::plan(int64_t sentences, int64_t others, int64_t most, double weight, double right) const {
  double tokens = 1, chain = 1, drafting = 0;  // tokens of a sentence
  Plan best{0, 0};
  for (int64_t count = 0; count <= most; ++count) {
    if (count > 0) {
      chain *= right;
      tokens += chain;
      drafting += draft_.known() ? draft_.of(sentences) : weight * model_.of(sentences);
    }
    const double all = static_cast<double>(others) + static_cast<double>(sentences) * tokens;
    const double rate = all / (model_.of(others + sentences * (1 + count)) + drafting);
    if (rate > best.rate * (best.proposals == 0 && count > 0 ? worth_it : 1)) best = {count, rate};
  }
  return best;
}

int64_t DraftPace::proposals(int64_t sentences, int64_t others, int64_t most, double weight) {
  // In the beginning passes of several sizes, so that their costs are known; then one now and again.
  constexpr std::array<int64_t, 6> first = {0, 2, 0, 4, 0, 3};
  constexpr int64_t trial = 4, most_between_trials = 1 << 14, between_others = 16;
  const int64_t step = steps_++;
  least_for_row_ = least_for_another_ = 0;
  if (step < std::ssize(first)) return std::min(most, first[static_cast<size_t>(step)]);
  const auto best = plan(sentences, others, most, weight, overall_.chance(expected_chance));
  if (best.proposals == 0) {
    if (step < next_trial_) return 0;
    // What does not pay if all is right does not pay at all.
    if (plan(sentences, others, most, weight, 1).proposals == 0) {
      next_trial_ = step + until_trial_;
      return 0;
    }
    if (step + 1 >= next_trial_ + trial) {
      until_trial_ = std::min(2 * until_trial_, most_between_trials);
      next_trial_ = step + until_trial_;
    }
    return std::min<int64_t>(most, 2);
  }
  if (best.proposals > 1 && step % between_others == 0) return best.proposals - 1;
  const double drafting = draft_.known() ? draft_.of(sentences) / static_cast<double>(sentences) : 0;
  least_for_row_ = best.rate * model_.of_row();
  least_for_another_ = best.rate * (model_.of_row() + drafting);
  return most;
}

}  // namespace transformer
