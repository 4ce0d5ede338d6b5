#include "transformer/inference/beam_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <variant>

#include "transformer/base/check_ranges.h"
#include "transformer/base/error.h"

namespace transformer {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

void DecodingSettings::describe(Fields<DecodingSettings>& field) {
  field("beam", &DecodingSettings::beam, "hypotheses kept for each sentence; 1: greedy search (§6.1)",
        between(1, 10000))
      .free();
  field("alpha", &DecodingSettings::alpha,
        "exponent of the length penalty; more than 0 favours longer output, 0 compares log-probabilities alone (§6.1)",
        between(-10, 10))
      .free();
  field("length_penalty", &DecodingSettings::length_penalty,
        "what a log-probability is divided by: gnmt: ((5 + length) / 6)^alpha; power: length^alpha",
        {{"gnmt", LengthPenalty::gnmt}, {"power", LengthPenalty::power}})
      .free();
  field("stop", &DecodingSettings::stop,
        "when a sentence is done: exact: when nothing better can follow; beam_finished: when as many hypotheses have "
        "finished as the beam is wide",
        {{"exact", Stop::exact}, {"beam_finished", Stop::beam_finished}})
      .free();
  field("max_extra_length", &DecodingSettings::max_extra_length,
        "word pieces by which output may be longer than its input (§6.1)", between(0, 1000000))
      .free();
  field("n_best", &DecodingSettings::n_best, "translations given for each line, at most the beam", between(1, 10000))
      .free();
  field("batch_sentences", &DecodingSettings::batch_sentences, "lines decoded at once", between(1, 100000)).free();
}

DecodingSettings DecodingSettings::validated() const {
  DecodingSettings settings = *this;
  check_ranges("decoding", settings);
  if (n_best > beam) {
    throw Error("decoding.n_best", fmt::format("{} best cannot come from a beam of {}", n_best, beam),
                fmt::format("raise beam to {} or more", n_best));
  }
  return settings;
}

double length_penalty(DecodingSettings::LengthPenalty kind, int64_t length, double alpha) {
  const auto tokens = static_cast<double>(std::max<int64_t>(length, 1));
  return std::pow(kind == DecodingSettings::LengthPenalty::gnmt ? (5 + tokens) / 6 : tokens, alpha);
}

void Continuations::add_row(std::vector<Candidate> candidates) {
  const auto kept = std::min<int64_t>(width, static_cast<int64_t>(candidates.size()));
  std::partial_sort(
      candidates.begin(), candidates.begin() + kept, candidates.end(), [](const Candidate& a, const Candidate& b) {
        return a.log_probability != b.log_probability ? a.log_probability > b.log_probability : a.token < b.token;
      });
  for (int64_t i = 0; i < width; ++i) {
    tokens.push_back(i < kept ? candidates[i].token : 0);
    log_probabilities.push_back(i < kept ? candidates[i].log_probability : -std::numeric_limits<double>::infinity());
  }
}

SentenceSearch::SentenceSearch(int64_t max_length, const DecodingSettings& options, int64_t end)
    : options_(options), end_(end), max_length_(std::min(max_length, std::numeric_limits<int64_t>::max() - 1)) {}

bool SentenceSearch::advance(const Continuations& continuations, int64_t first_row) {
  rank_candidates(continuations, first_row);
  std::vector<Live> next;
  std::vector<bool> ended(live_.size(), false);
  const auto beam = static_cast<size_t>(options_.beam);
  for (size_t rank = 0; rank < candidates_.size(); ++rank) {
    const auto& candidate = candidates_[rank];
    if (candidate.token == end_) {
      if (rank >= beam) continue;
      ended[candidate.row] = true;
      ++finished_;
      close(live_[candidate.row].node, candidate.log_probability, length_ + 1, true);
    } else if (next.size() < beam && length_ < max_length_) {
      nodes_.push_back({candidate.token, live_[candidate.row].node, candidate.log_probability});
      next.push_back(
          {candidate.log_probability, static_cast<int64_t>(nodes_.size()) - 1, candidate.row, candidate.token});
    }
  }
  if (next.empty()) {
    for (size_t row = 0; row < live_.size(); ++row) {
      if (!ended[row]) close(live_[row].node, live_[row].log_probability, length_, false);
    }
  }
  live_ = std::move(next);
  ++length_;
  if (end_ == no_end && length_ == max_length_) {
    // A step more could only look for ends.
    for (const auto& live : live_) close(live.node, live.log_probability, length_, false);
    return true;
  }
  return live_.empty() || enough_finished();
}

// The best 2 beam candidates in order: every row has at most one end token, so at least `beam` others are among them if
// there are as many.
void SentenceSearch::rank_candidates(const Continuations& continuations, int64_t first_row) {
  candidates_.clear();
  for (size_t row = 0; row < live_.size(); ++row) {
    const int64_t first = (first_row + static_cast<int64_t>(row)) * continuations.width;
    for (int64_t i = first; i < first + continuations.width; ++i) {
      const double log_probability = continuations.log_probabilities[i];
      if (std::isnan(log_probability) || log_probability == infinity) {
        throw Failure("decoding", "the model gave a NaN or an infinite probability",
                      "its weights are damaged, or its training diverged");
      }
      if (log_probability == -infinity) continue;
      candidates_.push_back(
          {live_[row].log_probability + log_probability, static_cast<int64_t>(row), continuations.tokens[i]});
    }
  }
  const size_t kept = std::min(candidates_.size(), 2 * static_cast<size_t>(options_.beam));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept), candidates_.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return std::tie(b.log_probability, a.row, a.token) < std::tie(a.log_probability, b.row, b.token);
                    });
  candidates_.resize(kept);
}

double SentenceSearch::score(double log_probability, int64_t length) const {
  return log_probability / length_penalty(options_.length_penalty, length, options_.alpha);
}

// Takes a hypothesis up among the n best, if it is one of them.
void SentenceSearch::close(int64_t node, double log_probability, int64_t length, bool finished) {
  Hypothesis hypothesis{{}, log_probability, score(log_probability, length), finished};
  const auto place = std::upper_bound(best_.begin(), best_.end(), hypothesis, [](const auto& a, const auto& b) {
    return std::tie(b.finished, b.score) < std::tie(a.finished, a.score);
  });
  if (place - best_.begin() >= options_.n_best) return;
  double sum = log_probability;  // up to the token behind `node`
  const auto add = [&](double before) {
    hypothesis.token_log_probabilities.push_back(sum - before);
    sum = before;
  };
  if (finished) add(node >= 0 ? nodes_[node].log_probability : 0);
  for (; node >= 0; node = nodes_[node].parent) {
    hypothesis.tokens.push_back(nodes_[node].token);
    const auto parent = nodes_[node].parent;
    add(parent >= 0 ? nodes_[parent].log_probability : 0);
  }
  std::reverse(hypothesis.tokens.begin(), hypothesis.tokens.end());
  std::reverse(hypothesis.token_log_probabilities.begin(), hypothesis.token_log_probabilities.end());
  best_.insert(place, std::move(hypothesis));
  if (static_cast<int64_t>(best_.size()) > options_.n_best) best_.pop_back();
}

bool SentenceSearch::enough_finished() const {
  // Greedy search would not be greedy if it went on past an end to look for a better one.
  if (options_.stop == DecodingSettings::Stop::beam_finished || options_.beam == 1) return finished_ >= options_.beam;
  if (static_cast<int64_t>(best_.size()) < options_.n_best) return false;
  // Going on never raises a log-probability, and the length penalty is monotonic in the length, so a live hypothesis
  // reaches at most its score of now at the shortest or the longest length it may still end with.
  const double log_probability = live_.front().log_probability;
  const double bound = std::max(score(log_probability, length_ + 1), score(log_probability, max_length_ + 1));
  return best_.back().score >= bound;
}

std::vector<std::vector<Hypothesis>> beam_search(const StepFunction& step, std::span<const int64_t> max_lengths,
                                                 int64_t begin, int64_t end, const DecodingSettings& given) {
  const auto options = given.validated();
  const int64_t width = options.beam + 1;

  std::vector<SentenceSearch> searches;
  std::vector<int64_t> active;
  std::vector<int64_t> tokens, parents;
  for (size_t sentence = 0; sentence < max_lengths.size(); ++sentence) {
    if (max_lengths[sentence] < 0) {
      throw Error(fmt::format("sentence {}", sentence),
                  fmt::format("a maximum length of {} is not possible", max_lengths[sentence]), "give 0 or more");
    }
    searches.emplace_back(max_lengths[sentence], options, end);
    active.push_back(static_cast<int64_t>(sentence));
    tokens.push_back(begin);
    parents.push_back(static_cast<int64_t>(sentence));
  }

  std::vector<std::vector<Hypothesis>> results(max_lengths.size());
  while (!active.empty()) {
    const auto continuations = step(tokens, parents, width);
    const size_t expected = tokens.size() * static_cast<size_t>(std::max<int64_t>(continuations.width, 0));
    if (continuations.tokens.size() != expected || continuations.log_probabilities.size() != expected) {
      throw std::logic_error("beam_search: the step function returned another number of continuations than its width");
    }
    tokens.clear();
    parents.clear();
    int64_t first_row = 0;
    std::erase_if(active, [&](int64_t sentence) {
      auto& search = searches[sentence];
      const auto rows = static_cast<int64_t>(search.live().size());
      const bool done = search.advance(continuations, first_row);
      if (done) {
        results[sentence] = search.take_result();
      } else {
        for (const auto& live : search.live()) {
          tokens.push_back(live.token);
          parents.push_back(first_row + live.parent);
        }
      }
      first_row += rows;
      return done;
    });
  }
  return results;
}

}  // namespace transformer
