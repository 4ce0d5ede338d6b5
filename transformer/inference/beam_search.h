#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "transformer/base/settings.h"

namespace transformer {

/// How output is searched for (settings section `decoding`; §6.1). Defaults are the paper's.
struct DecodingSettings {
  enum class LengthPenalty { gnmt, power };
  enum class Stop { exact, beam_finished };

  int64_t beam = 4;
  double alpha = 0.6;
  LengthPenalty length_penalty = LengthPenalty::gnmt;
  Stop stop = Stop::exact;
  int64_t max_extra_length = 50;  // output is at most input + this many tokens
  int64_t n_best = 1;             // hypotheses returned for each sentence, at most `beam`
  int64_t batch_sentences = 32;   // sentences decoded at once

  static void describe(Fields<DecodingSettings>& field);

  /// These settings, checked. Throws Error naming the first that is out of range or contradicts another, as
  /// `decoding.beam`.
  DecodingSettings validated() const;
};

/// The best continuations of every live row, best first: `tokens[row * width + i]`.
struct Continuations {
  int64_t width = 0;
  std::vector<int64_t> tokens;
  std::vector<double> log_probabilities;  // log p(token | row's prefix)

  struct Candidate {
    double log_probability;
    int64_t token;
  };
  /// Adds a row that can be continued by `candidates` alone, in any order: the best `width` of them, equal ones by
  /// token; where there are fewer, the rest is impossible.
  void add_row(std::vector<Candidate> candidates);
};

/// Advances the model by one token. `tokens[row]` is the newest token of live hypothesis `row`; `parents[row]` is the
/// row of the previous call that it continues (in the first call, the sentence's index). A sentence's rows are
/// neighbours, and sentences stay in order; those that are done have no rows any more. Returns for each row its best
/// `width` continuations (all of them if the vocabulary is smaller). A log-probability of -infinity rules a token out.
using StepFunction =
    std::function<Continuations(std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width)>;

struct Hypothesis {
  std::vector<int64_t> tokens;                       // without begin and end
  double log_probability = 0;                        // sum over tokens, the end included
  double score = 0;                                  // log_probability / length_penalty(tokens, the end included)
  bool finished = true;                              // false: cut at the maximum length before its end token
  std::vector<double> token_log_probabilities = {};  // of each token and, where it finished, of the end
};

/// lp(Y): ((5 + |Y|) / 6)^alpha (Wu et al. 2016, eq. 14; §6.1) or |Y|^alpha. `length` is |Y| and counts the end token;
/// below 1 it is taken for 1.
double length_penalty(DecodingSettings::LengthPenalty kind, int64_t length, double alpha);

/// Beam search over a step function; it knows no model. Returns for each sentence its `n_best` hypotheses, best first
/// (fewer where no more exist, never none).
///
/// `max_lengths[sentence]` bounds the output's tokens (without the end). At each step the candidates of a sentence, all
/// continuations of its live hypotheses, are ranked by log-probability: an end token among the best `beam` of them
/// finishes its hypothesis, and the best `beam` others live on. A sentence is done, and has no rows in the next step,
///
/// - `Stop::exact`: when no live hypothesis can still beat the `n_best`-th finished one, whatever length it ends with;
///   the result is that of searching on to the maximum length;
/// - `Stop::beam_finished`: when as many hypotheses have finished as the beam is wide.
///
/// Beam 1 is greedy search under either rule: it ends with its first end token.
///
/// Finished hypotheses rank before those cut at the maximum length, which only fill up where too few have finished.
/// With `SentenceSearch::no_end` for an end nothing finishes, and the last step is the one that chooses the last token.
/// Equal scores rank by the order of finishing, equal candidates by row, then token. A sentence's result does not
/// depend on the others. Throws Error for options out of range and Failure when the model gives a NaN.
std::vector<std::vector<Hypothesis>> beam_search(const StepFunction& step, std::span<const int64_t> max_lengths,
                                                 int64_t begin, int64_t end, const DecodingSettings& options);

/// The search for one sentence's output, for those who decide themselves which sentences advance together; the rules
/// are those of `beam_search`. Options must be validated.
class SentenceSearch {
 public:
  /// As `end`: no token ends a hypothesis, all reach the maximum length.
  static constexpr int64_t no_end = -1;

  SentenceSearch(int64_t max_length, const DecodingSettings& options, int64_t end);

  /// Continuations that each row needs: its best `beam` besides the end token are all that can live on. More change
  /// nothing.
  int64_t width() const { return options_.beam + 1; }

  struct Live {
    double log_probability = 0;
    int64_t node = -1;   // of the newest token in the tree of all hypotheses
    int64_t parent = 0;  // among the live of the step before
    int64_t token = 0;   // the newest
  };
  /// In the beginning one without any token.
  const std::vector<Live>& live() const { return live_; }

  /// Extends the live hypotheses, whose continuations start at `first_row`, by one token. True: the sentence is done.
  /// Throws Failure when the model gives a NaN.
  bool advance(const Continuations& continuations, int64_t first_row);

  /// The n best, best first, when the sentence is done.
  std::vector<Hypothesis> take_result() { return std::move(best_); }

 private:
  struct Node {
    int64_t token, parent;   // parent -1: the beginning
    double log_probability;  // of all tokens up to this one
  };
  struct Candidate {
    double log_probability;
    int64_t row, token;
  };
  void rank_candidates(const Continuations& continuations, int64_t first_row);
  double score(double log_probability, int64_t length) const;
  void close(int64_t node, double log_probability, int64_t length, bool finished);
  bool enough_finished() const;

  DecodingSettings options_;
  int64_t end_, max_length_;
  int64_t length_ = 0;    // tokens of every live hypothesis
  int64_t finished_ = 0;  // hypotheses so far, kept or not
  std::vector<Live> live_ = {{}};
  std::vector<Node> nodes_;  // all hypotheses as a tree of back pointers
  std::vector<Hypothesis> best_;
  std::vector<Candidate> candidates_;
};

}  // namespace transformer
