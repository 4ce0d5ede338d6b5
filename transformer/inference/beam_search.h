#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "transformer/inference/decoding_request.h"
#include "transformer/inference/decoding_settings.h"
#include "transformer/inference/required_phrases.h"
#include "transformer/inference/sampling.h"

namespace transformer {

/// The best continuations of every live row, best first: `tokens[row * width + i]`.
struct Continuations {
  int64_t width = 0;                      // of every row
  std::vector<int64_t> tokens;            // [rows, width]
  std::vector<double> log_probabilities;  // log p(token | row's prefix)
  /// Of each row that is asked for it (SentenceSearch::wants_attention), how it attends to its source's positions [S];
  /// empty where none is.
  std::vector<std::vector<float>> attention = {};

  /// A token that may come next.
  struct Candidate {
    double log_probability;  // given the row's prefix
    int64_t token;           // each token at most once
  };
  /// Adds a row that can be continued by `candidates` alone, in any order: the best `width` of them, equal ones by
  /// token; where there are fewer, the rest is impossible. Throws std::invalid_argument for a `width` that no
  /// vocabulary has: what a search that needs all continuations asks a step function for is to be cut to the
  /// vocabulary's size.
  void add_row(std::vector<Candidate> candidates);
};

/// Advances the model by one token. `tokens[row]` is the newest token of live hypothesis `row`; `parents[row]` is the
/// row of the previous call that it continues (in the first call, the sentence's index). A sentence's rows are
/// neighbours, and sentences stay in order; those that are done have no rows any more. Returns for each row its best
/// `width` continuations (all of them if the vocabulary is smaller, in Continuations of its width), and its attention
/// where a sentence's settings have a coverage penalty. A log-probability of -infinity rules a token out.
using StepFunction =
    std::function<Continuations(std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width)>;

/// An output of a sentence, whole or cut.
struct Hypothesis {
  std::vector<int64_t> tokens;  // without begin and end
  double log_probability = 0;   // sum over tokens, the end included, as the model has it
  /// log_probability / length_penalty(tokens, those that were told and the end included), all penalties and bias
  /// counted.
  double score = 0;
  bool finished = true;                              // false: cut at the maximum length before its end token
  std::vector<size_t> missing = {};                  // of OutputControl::required, those that it does not hold
  std::vector<double> token_log_probabilities = {};  // of each token and, where it finished, of the end
};

/// lp(Y): ((5 + |Y|) / 6)^alpha (Wu et al. 2016, eq. 14; §6.1) or |Y|^alpha. `length` is |Y| and counts the end token;
/// below 1 it is taken for 1.
double length_penalty(DecodingSettings::LengthPenalty kind, int64_t length, double alpha);

/// cp(X, Y): β Σ_i log(min(Σ_j p_ij, 1)) (Wu et al. 2016, eq. 14), where `attention` [S] holds what each position of
/// the source has received of all those of the output, Σ_j p_ij. One that has received less than `least_attention`,
/// nothing say, is taken to have received that, so that the result is a number. Never more than 0.
double coverage_penalty(std::span<const float> attention, double beta);
/// Of a position of the source, for coverage_penalty.
inline constexpr float least_attention = 1e-10F;

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
/// Beam 1 is greedy search under either rule: it ends with its first end token. Where phrases are required, the beam is
/// wider than the settings' (DecodingRequest::hypotheses).
///
/// Scores are log-probabilities over the length penalty; a coverage penalty is added to those of hypotheses that ended
/// or were cut, and so decides which are the best and not what lives on. Of what it may still become for a live one
/// nothing is known but that it is 0 at most, so that `Stop::exact` stops later with it.
///
/// Finished hypotheses rank before those cut at the maximum length, which only fill up where too few have finished; of
/// these, those that lack fewer required phrases come first. With `SentenceSearch::no_end` for an end nothing finishes,
/// and the last step is the one that chooses the last token. Equal scores rank by the order of finishing, equal
/// candidates by row, then token. A sentence's result does not depend on the others. Throws Error for options out of
/// range and Failure when the model gives a NaN.
///
/// What else settings and wishes ask for:
///
/// - what may not come (an end before the minimum length, the unknown piece, a word piece that would repeat an n-gram
///   or complete a forbidden phrase) is left out of a step's candidates, unless nothing would be left;
/// - a bias is added to logits, which are normalised again: to the same sum, which is 1 but where a constraint rules
///   some out or several models' mean is not normalised (Ensemble::Average); a repetition penalty multiplies
///   log-probabilities. Both change what hypotheses are compared by and their score, not their log_probability;
/// - required phrases: beside the best continuations, a hypothesis's candidates are those that go on with a phrase or
///   begin one, and no hypothesis ends before it holds all. Candidates stand in banks by how many tokens of phrases
///   they hold (Post and Vilar 2018). Of each bank a part of the settings' beam lives on: all of it of those that hold
///   all, who go on as ever, three quarters of those that hold none, half of those that hold some, and a quarter of
///   those that end within one; and only who is among the best of so many with all that hold more. They share the wider
///   beam (`bank_sizes`). An end among the best `beam` of its bank finishes its hypothesis. Where a phrase's last word
///   goes on, it is not held;
/// - groups: each searches with its share of the beam, and a word piece that groups before it have chosen in the same
///   step comes later among its candidates (Vijayakumar et al. 2016); its log-probability is not changed;
/// - sampling: no search; every sample draws its tokens (`draw`) by random numbers that follow from the seed, the
///   source, the sample's number and the position alone.
std::vector<std::vector<Hypothesis>> beam_search(const StepFunction& step, std::span<const int64_t> max_lengths,
                                                 int64_t begin, int64_t end, const DecodingSettings& options);

/// The same for sentences that are each searched in its own way, with wishes that DecodingRequest::check takes for the
/// model's vocabulary. Constraints are the step function's affair. Where a search needs all log-probabilities, `width`
/// is as many as an int64_t holds; tokens that are not among a row's continuations are impossible.
std::vector<std::vector<Hypothesis>> beam_search(const StepFunction& step, std::span<const DecodingRequest> requests,
                                                 int64_t begin);

/// Everything that may follow a hypothesis: log p(token) = logits[token] - normaliser; -infinity rules a token out.
struct RowScores {
  std::span<float> logits;  // [V]; scratch, which is given back as it was
  double normaliser = 0;    // log of the sum of exp(logits)
  /// The largest logit of each `block` tokens, the last of which may be fewer; empty where it is not known.
  std::span<const float> maxima = {};
  size_t block = 0;  // tokens of each of `maxima`
  /// The tokens of the largest logits, best first, equal ones by token; empty where they are not known.
  std::span<const int32_t> best = {};
};

/// The search for one sentence's output, for those who decide themselves which sentences advance together; the rules
/// are those of `beam_search`. Settings must be validated.
class SentenceSearch {
 public:
  /// As `end`: no token ends a hypothesis, all reach the maximum length.
  static constexpr int64_t no_end = -1;

  /// For an output of at most `max_length` tokens before `end`, of which nothing is wished.
  SentenceSearch(int64_t max_length, const DecodingSettings& options, int64_t end);
  /// What `request.control` holds must outlive the search.
  explicit SentenceSearch(const DecodingRequest& request);

  /// Continuations that each row needs: its best `beam` besides the end token are all that can live on. More change
  /// nothing.
  int64_t width() const { return width_; }
  /// How many RowScores::best of a row that is wanted whole save a look at all of it, whatever usually is ruled out.
  int64_t best_wanted() const {
    const int64_t wanted = width_ + usually_ruled_out;
    return options_.search == DecodingSettings::Search::sampling || wanted > widest_selection ? 0 : wanted;
  }

  /// Whether each row of the next step, or of the one after the live hypotheses have gone on with the tokens `ahead`,
  /// has to be told by `take_row`, because continuations alone do not say enough.
  bool wants_whole_rows(std::span<const int64_t> ahead = {}) const;
  /// What may follow live hypothesis `row`, for the next `advance`, which then looks at no continuations.
  void take_row(size_t row, const RowScores& scores);
  /// Whether `advance` needs Continuations::attention, of each position of the output as it is written, its end's too.
  bool wants_attention() const { return options_.coverage_penalty != 0; }

  /// A hypothesis that may go on.
  struct Live {
    double log_probability = 0;  // of its tokens, as the model has it
    double ranked = 0;           // what hypotheses are compared by: with penalties and bias
    int64_t node = -1;           // of the newest token in the tree of all hypotheses
    int64_t parent = 0;          // among the live of the step before
    int64_t token = 0;           // the newest
  };
  /// In the beginning one without any token.
  const std::vector<Live>& live() const { return live_; }

  /// Extends the live hypotheses, whose continuations start at `first_row`, by one token. True: the sentence is done.
  /// Throws Failure when the model gives a NaN.
  bool advance(const Continuations& continuations, int64_t first_row);

  /// Tokens that the first hypothesis of the result begins with, whatever follows: of greedy search and of a sample all
  /// so far, of a beam those that all who can still win have in common.
  std::vector<int64_t> certain() const;

  /// The n best, best first, when the sentence is done.
  std::vector<Hypothesis> take_result();

 private:
  struct Node {
    int64_t token, parent;   // parent -1: the beginning
    double log_probability;  // of all tokens up to this one
  };
  struct Candidate {
    double ranked;
    int64_t row, token;
    double log_probability;
  };
  /// What a live hypothesis carries along where there are wishes.
  struct Carried {
    RequiredPhrases required;
    int64_t forbidden;  // state of ForbiddenText
  };

  static constexpr int64_t usually_ruled_out = 2;  // the end, say, and a piece of a word that is forbidden

  SentenceSearch(int64_t max_length, const DecodingSettings& options, int64_t more_for_phrases, int64_t end,
                 const OutputControl* control, uint64_t key, int64_t pieces, int64_t told);

  bool repeats_ngram(std::span<const int64_t> ahead) const;
  void edit_row(size_t row, std::span<float> logits, double& normaliser);
  void find_likely(const RowScores& scores);
  void ban(std::span<float> logits, int64_t token);
  void change(std::span<float> logits, int64_t token, float to);
  void add_candidate(size_t row, int64_t token, const RowScores& scores, double normaliser);
  void add_for_phrases(size_t row, int64_t first, const RowScores& scores, double normaliser);
  double uniform(int64_t sample) const;
  std::vector<int64_t> tokens_of(int64_t node) const;
  std::vector<int64_t> written(int64_t node) const;
  std::vector<double> token_log_probabilities(int64_t node, double sum, bool finished) const;

  void gather_candidates(const Continuations& continuations, int64_t first_row);
  void rank_candidates();
  void rank_in_banks();
  bool advance_group(const Continuations& continuations, int64_t first_row, std::span<const int64_t> avoided);
  bool advance_groups(const Continuations& continuations, int64_t first_row);
  bool advance_samples();
  void live_on(std::vector<Live>& next, const Candidate& candidate);
  void cover(const Continuations& continuations, int64_t first_row);
  double score(double ranked, int64_t length) const;
  Hypothesis hypothesis(const Live& last, int64_t length, bool finished, size_t row) const;
  void close(Hypothesis&& hypothesis);
  bool enough_finished() const;

  DecodingSettings options_;  // with a beam that is wider by `more_for_phrases_`
  int64_t more_for_phrases_ = 0;
  int64_t end_, told_, max_length_, min_length_ = 0, width_;  // lengths count what is told, too
  const OutputControl* control_ = nullptr;                    // null: nothing is wished
  uint64_t key_ = 0;                                          // of the source
  int64_t length_ = 0;                                        // tokens of every live hypothesis, told ones too
  int64_t finished_ = 0;                                      // hypotheses so far, kept or not
  bool rows_taken_ = false;                                   // by `take_row`, for the next `advance`
  bool not_numbers_ = false;                                  // the model gave a NaN
  std::vector<Live> live_ = {{}};
  std::vector<Carried> carried_, next_carried_;  // of the live, where there are wishes
  // Of the live, where there is a coverage penalty, what each position of the source has received so far [S]; covered_:
  // with the step that is being taken.
  std::vector<std::vector<float>> coverage_, next_coverage_, covered_;
  std::vector<int64_t> samples_;  // of the live, which sample's each is
  std::vector<Node> nodes_;       // all hypotheses as a tree of back pointers
  std::vector<Hypothesis> best_;
  std::vector<Candidate> candidates_;
  std::vector<int64_t> avoided_;                   // tokens that groups before have chosen, ascending
  std::vector<SentenceSearch> groups_;             // where there are several
  std::vector<std::pair<int64_t, float>> edits_;   // of the row that is being taken: tokens and logits before
  std::vector<std::pair<float, int64_t>> likely_;  // scratch
  std::vector<int64_t> history_;                   // scratch
};

}  // namespace transformer
