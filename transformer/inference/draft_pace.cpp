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

void DraftPace::Luck::observe(int64_t right, bool wrong) {
  right_ = kept_luck * right_ + static_cast<double>(right);
  all_ = kept_luck * all_ + static_cast<double>(right) + (wrong ? 1 : 0);
}

double DraftPace::Luck::chance(double prior) const {
  constexpr double weight = 8;
  return (prior * weight + right_) / (weight + all_);
}

int64_t DraftPace::proposals(int64_t sentences, int64_t others, int64_t most, double weight) {
  // In the beginning passes of several sizes, so that their costs are known; then one now and again.
  constexpr std::array<int64_t, 6> first = {0, 2, 0, 4, 0, 3};
  constexpr int64_t between_trials = 256, trial = 4, between_others = 16;
  const int64_t step = steps_++;
  if (step < std::ssize(first)) return std::min(most, first[static_cast<size_t>(step)]);
  const double right = chance();
  double tokens = 1, chain = 1, drafting = 0, best_rate = 0;  // tokens of a sentence
  int64_t best = 0;
  for (int64_t count = 0; count <= most; ++count) {
    if (count > 0) {
      chain *= right;
      tokens += chain;
      drafting += draft_.known() ? draft_.of(sentences) : weight * model_.of(sentences);
    }
    const double all = static_cast<double>(others) + static_cast<double>(sentences) * tokens;
    const double rate = all / (model_.of(others + sentences * (1 + count)) + drafting);
    if (rate > best_rate * (best == 0 && count > 0 ? worth_it : 1)) {
      best_rate = rate;
      best = count;
    }
  }
  if (best == 0 && step % between_trials < trial) return std::min<int64_t>(most, 2);
  if (best > 1 && step % between_others == 0) return best - 1;
  return best;
}

}  // namespace transformer
