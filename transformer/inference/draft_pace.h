#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace transformer {

/// Seconds of this thread's on a processor: what other programs do beside it does not count.
class CpuClock {
 public:
  /// Starts now.
  CpuClock() : start_(now()) {}
  /// Since it was made.
  double seconds() const { return now() - start_; }

 private:
  static double now();
  double start_;
};

/// How many tokens it pays to propose of a sentence's output, by what has been seen of a worker's time and luck. Only
/// time depends on it: what is decoded is the same whatever it says.
///
/// A pass over rows takes a fixed time and something more for each row, which are estimated by the passes so far, the
/// latest most. A proposal is right as often as others were that the draft was as sure of, and counts if those before
/// it are right. It is worth its row, and the draft's pass, while that takes less than the tokens expected of it take
/// otherwise.
class DraftPace {
 public:
  /// Of one kind of pass.
  class Cost {
   public:
    /// A pass over so many rows took so long.
    void observe(int64_t rows, double seconds);
    /// Whether any pass was observed.
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
    /// The model agreed, or it did not.
    void observe(bool right);
    /// The probability that a proposal is right, where `prior` is expected before anything is seen.
    double chance(double prior) const;

   private:
    double right_ = 0, all_ = 0;
  };

  /// Of the model that is sped up.
  Cost& model() { return model_; }
  /// Of the draft.
  Cost& draft() { return draft_; }

  /// What became of a sentence's proposals, of which the draft was as sure as `probabilities` say: the first `right` of
  /// them were.
  void observe(std::span<const double> probabilities, int64_t right);

  /// Proposals, `most` at most, for each of `sentences` whose hypotheses are one each, beside `others` rows of other
  /// sentences; of a sentence, as many of these as `worth` finds. `weight`: what a pass of the draft is taken to cost,
  /// as a share of the model's, before it is known.
  int64_t proposals(int64_t sentences, int64_t others, int64_t most, double weight);

  /// The probability that a proposal is right which the draft finds so probable.
  double chance(double probability) const;
  /// Whether a proposal is worth its row which is right and reached with this probability.
  bool worth_row(double chance) const { return chance >= least_for_row_; }
  /// Whether it is worth to ask the draft for one more behind such a proposal.
  bool worth_another(double chance) const { return chance * overall_.chance(expected_chance) >= least_for_another_; }

 private:
  static constexpr double expected_chance = 0.6;
  struct Plan {
    int64_t proposals;
    double rate;  // tokens a second
  };
  /// The best, where each is right with probability `right`.
  Plan plan(int64_t sentences, int64_t others, int64_t most, double weight, double right) const;

  Cost model_, draft_;
  Luck overall_;
  std::array<Luck, 6> by_probability_;
  double least_for_row_ = 0, least_for_another_ = 0;
  int64_t steps_ = 0;  // that were asked for
  int64_t next_trial_ = 256,
          until_trial_ = 256;  // of what does not seem to pay: the step, and steps from trial to trial
};

}  // namespace transformer
