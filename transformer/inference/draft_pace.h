#pragma once

#include <cstdint>

namespace transformer {

/// Seconds of this thread's on a processor: what other programs do beside it does not count.
class CpuClock {
 public:
  CpuClock() : start_(now()) {}
  double seconds() const { return now() - start_; }

 private:
  static double now();
  double start_;
};

/// How many tokens it pays to propose of a sentence's output, by what has been seen of a worker's time and luck. Only
/// time depends on it: what is decoded is the same whatever it says.
///
/// A pass over rows takes a fixed time and something more for each row, which are estimated by the passes so far, the
/// latest most. A proposal is right with the probability that those before it were; the proposals of a sentence count
/// up to the first that is wrong.
class DraftPace {
 public:
  /// Of one kind of pass.
  class Cost {
   public:
    void observe(int64_t rows, double seconds);
    bool known() const { return weight_ > 0; }
    /// What a pass takes. Meaningless where nothing is known.
    double of(int64_t rows) const;
    /// What a row more takes.
    double of_row() const { return slope_; }

   private:
    double weight_ = 0, rows_ = 0, seconds_ = 0;  // sums over the passes, the latest most
    double squares_ = 0, products_ = 0;           // of rows, and of rows and seconds
    double slope_ = 0;
    bool fitted_ = false;
  };
  /// How often the model agreed.
  class Luck {
   public:
    /// Proposals that were right, and whether one came after them that was wrong.
    void observe(int64_t right, bool wrong);
    /// The probability that a proposal is right, where `prior` is expected before anything is seen.
    double chance(double prior) const;

   private:
    double right_ = 0, all_ = 0;
  };

  Cost& model() { return model_; }
  Cost& draft() { return draft_; }
  Luck& luck() { return luck_; }
  double chance() const { return luck_.chance(expected_chance); }

  /// Proposals, `most` at most, for each of `sentences` whose hypotheses are one each, beside `others` rows of other
  /// sentences. `weight`: what a pass of the draft is taken to cost, as a share of the model's, before it is known.
  int64_t proposals(int64_t sentences, int64_t others, int64_t most, double weight);

 private:
  static constexpr double expected_chance = 0.6;

  Cost model_, draft_;
  Luck luck_;
  int64_t steps_ = 0;  // that were asked for
};

}  // namespace transformer
