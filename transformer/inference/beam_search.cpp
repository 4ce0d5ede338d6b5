#include "transformer/inference/beam_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/inference/sampling.h"
#include "transformer/text/random.h"

namespace transformer {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

double length_penalty(DecodingSettings::LengthPenalty kind, int64_t length, double alpha) {
  const auto tokens = static_cast<double>(std::max<int64_t>(length, 1));
  return std::pow(kind == DecodingSettings::LengthPenalty::gnmt ? (5 + tokens) / 6 : tokens, alpha);
}

double coverage_penalty(std::span<const float> attention, double beta) {
  double sum = 0;
  for (const float received : attention) {
    // In this order, what is not a number is the least, too.
    sum += std::log(static_cast<double>(std::min(std::max(least_attention, received), 1.0F)));
  }
  return beta * sum;
}

void Continuations::add_row(std::vector<Candidate> candidates) {
  if (width > std::numeric_limits<int32_t>::max()) {
    throw std::invalid_argument("Continuations::add_row: a width of more tokens than a vocabulary has");
  }
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

namespace {

uint64_t key_of(std::span<const int64_t> source) {
  uint64_t key = 0;
  for (const int64_t token : source) key = Random(key, static_cast<uint64_t>(token)).next();
  return key;
}

const OutputControl* wishes_of(const OutputControl& control) {
  return control.required.empty() && !control.forbidden && control.bias.empty() ? nullptr : &control;
}

/// How a request's output is searched for: phrases that are required widen the beam.
DecodingSettings search_of(const DecodingRequest& request) {
  auto settings = request.settings;
  settings.beam += request.more_for_phrases();
  return settings;
}

constexpr float impossible = -std::numeric_limits<float>::infinity();

/// Of any token: what a row does not reach to is impossible.
float logit_of(std::span<const float> logits, int64_t token) {
  return token >= 0 && token < std::ssize(logits) ? logits[static_cast<size_t>(token)] : impossible;
}

bool ranks_before(const Hypothesis& a, const Hypothesis& b) {
  const size_t of_a = a.missing.size(), of_b = b.missing.size();
  return std::tie(b.finished, of_a, b.score) < std::tie(a.finished, of_b, a.score);
}

/// Tokens that have followed what are now the last n - 1 of `history`.
std::vector<int64_t> completing_ngrams(std::span<const int64_t> history, int64_t n) {
  std::vector<int64_t> tokens;
  const auto context = static_cast<size_t>(n - 1);
  if (history.size() < context) return tokens;
  const auto last = history.last(context);
  for (size_t place = 0; place + context < history.size(); ++place) {
    const auto before = history.subspan(place, context);
    if (std::equal(last.begin(), last.end(), before.begin())) tokens.push_back(history[place + context]);
  }
  return tokens;
}

/// Tells a search of a row whose continuations are all that there are; tokens that are none of them are impossible.
void take_continuations(SentenceSearch& search, int64_t row, const Continuations& continuations, int64_t at,
                        std::vector<float>& logits) {
  const int64_t first = at * continuations.width;
  double normaliser = 0;
  int64_t size = 0;
  for (int64_t i = first; i < first + continuations.width; ++i) size = std::max(size, continuations.tokens[i] + 1);
  logits.assign(static_cast<size_t>(size), impossible);
  for (int64_t i = first; i < first + continuations.width; ++i) {
    const double log_probability = continuations.log_probabilities[i];
    // It shows in the normaliser.
    if (std::isnan(log_probability) || log_probability == infinity) normaliser = log_probability;
    if (log_probability == -infinity) continue;
    logits.at(static_cast<size_t>(continuations.tokens[i])) = static_cast<float>(log_probability);
  }
  search.take_row(static_cast<size_t>(row), {logits, normaliser});
}

}  // namespace

SentenceSearch::SentenceSearch(int64_t max_length, const DecodingSettings& options, int64_t end)
    : SentenceSearch(max_length, options, 0, end, nullptr, 0, 0, 0) {}

SentenceSearch::SentenceSearch(const DecodingRequest& request)
    : SentenceSearch(request.max_length, search_of(request), request.more_for_phrases(), request.end,
                     wishes_of(request.control), key_of(request.source),
                     std::max<int64_t>(std::ssize(request.source) - 1 - request.told, 0), request.told) {}

SentenceSearch::SentenceSearch(int64_t max_length, const DecodingSettings& options, int64_t more_for_phrases,
                               int64_t end, const OutputControl* control, uint64_t key, int64_t pieces, int64_t told)
    : options_(options),
      more_for_phrases_(more_for_phrases),
      end_(end),
      told_(told),
      max_length_(std::min(max_length, std::numeric_limits<int64_t>::max() - 1 - told)),
      width_(options.hypotheses() - more_for_phrases + 1),
      control_(control),
      key_(key) {
  if (options.max_length > 0) max_length_ = std::min(max_length_, options.max_length);
  // 1.1 of 50 pieces are 55, and as doubles a bit more.
  const auto relative = static_cast<int64_t>(std::ceil(options.min_length_ratio * static_cast<double>(pieces) - 1e-6));
  min_length_ = std::min(std::max(options.min_length, relative), max_length_);
  if (min_length_ > 0) min_length_ += told;
  max_length_ += told;
  if (control) {
    carried_.push_back({RequiredPhrases(control->required, control->other_spellings, control->pieces.get()),
                        ForbiddenText::beginning});
  }
  if (options.search == DecodingSettings::Search::sampling) {
    best_.resize(static_cast<size_t>(options.n_best));
    return;
  }
  if (options.beam_groups == 1) return;
  auto share = options;
  share.beam_groups = 1;
  share.beam = options.beam / options.beam_groups;
  share.n_best = std::min(options.n_best, share.beam);
  for (int64_t i = 0; i < options.beam_groups; ++i) {
    groups_.push_back({max_length, share, more_for_phrases, end, control, key, pieces, told});
    // What the other groups avoid comes later, and more has to be at hand.
    groups_.back().width_ = width_;
  }
}

bool SentenceSearch::wants_whole_rows(std::span<const int64_t> ahead) const {
  return control_ || options_.search == DecodingSettings::Search::sampling || !options_.write_unknown ||
         options_.repetition_penalty != 1 || length_ + std::ssize(ahead) < min_length_ || repeats_ngram(ahead);
}

/// Whether any token would repeat an n-gram of a live hypothesis that has gone on with `ahead`.
bool SentenceSearch::repeats_ngram(std::span<const int64_t> ahead) const {
  const int64_t length = length_ - told_ + std::ssize(ahead);
  if (options_.no_repeat_ngram == 0 || length < options_.no_repeat_ngram) return false;
  if (!groups_.empty()) {
    return std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) { return group.repeats_ngram(ahead); });
  }
  return std::any_of(live_.begin(), live_.end(), [&](const Live& live) {
    auto history = written(live.node);
    history.insert(history.end(), ahead.begin(), ahead.end());
    return !completing_ngrams(history, options_.no_repeat_ngram).empty();
  });
}

void SentenceSearch::take_row(size_t row, const RowScores& scores) {
  if (!groups_.empty()) {
    // In the beginning, the one row is every group's.
    size_t first = 0;
    for (auto& group : groups_) {
      if (length_ == 0) {
        group.take_row(0, scores);
      } else if (row >= first && row < first + group.live_.size()) {
        group.take_row(row - first, scores);
      }
      if (length_ > 0) first += group.live_.size();
    }
    return;
  }
  rows_taken_ = true;
  if (!std::isfinite(scores.normaliser)) {
    not_numbers_ = true;
    return;
  }
  if (row == 0) candidates_.clear();
  edits_.clear();
  double normaliser = scores.normaliser;  // of what hypotheses are compared by
  edit_row(row, scores.logits, normaliser);
  if (options_.search == DecodingSettings::Search::sampling) {
    const int64_t first = length_ == 0 ? 0 : samples_[row];
    const int64_t last = length_ == 0 ? options_.n_best : first + 1;
    for (int64_t sample = first; sample < last; ++sample) {
      add_candidate(row, draw(scores.logits, options_, uniform(sample)), scores, normaliser);
    }
  } else {
    const auto first = std::ssize(candidates_);
    find_likely(scores);
    for (const auto& [logit, token] : likely_) add_candidate(row, token, scores, normaliser);
    if (control_ && !control_->required.empty()) add_for_phrases(row, first, scores, normaliser);
  }
  for (size_t i = edits_.size(); i-- > 0;) scores.logits[static_cast<size_t>(edits_[i].first)] = edits_[i].second;
}

/// The best `width` of a row that has been edited.
void SentenceSearch::find_likely(const RowScores& scores) {
  const bool only_banned = std::all_of(edits_.begin(), edits_.end(), [&](const auto& edit) {
    return scores.logits[static_cast<size_t>(edit.first)] == impossible;
  });
  likely_.clear();
  if (only_banned) {
    for (const int64_t token : scores.best) {
      const float logit = scores.logits[static_cast<size_t>(token)];
      if (logit != impossible) likely_.emplace_back(logit, token);
      if (std::ssize(likely_) == width()) return;
    }
  }
  best_of(scores.logits, width(), likely_);
}

/// Adds what may follow a live hypothesis for the sake of its phrases to its candidates, the best from `first` on.
void SentenceSearch::add_for_phrases(size_t row, int64_t first, const RowScores& scores, double normaliser) {
  const auto& required = carried_[row].required;
  std::unordered_set<int64_t> there;
  for (auto candidate = candidates_.begin() + first; candidate != candidates_.end(); ++candidate) {
    there.insert(candidate->token);
  }
  const auto add = [&](int64_t token) {
    if (logit_of(scores.logits, token) == impossible || !there.insert(token).second) return;
    add_candidate(row, token, scores, normaliser);
  };
  for (const int64_t token : required.next()) add(token);
  const auto keeps = [&](const auto& likely) { return required.keeps(likely.second); };
  if (std::any_of(likely_.begin(), likely_.end(), keeps)) return;
  // All go on with the word that has just ended a phrase, which they would take away again.
  for (int64_t token = 0; token < std::ssize(scores.logits); ++token) {
    if (!required.keeps(token)) ban(scores.logits, token);
  }
  best_of(scores.logits, width(), likely_);
  for (const auto& [logit, token] : likely_) add(token);
}

void SentenceSearch::change(std::span<float> logits, int64_t token, float to) {
  auto& logit = logits[static_cast<size_t>(token)];
  edits_.emplace_back(token, logit);
  logit = to;
}

void SentenceSearch::ban(std::span<float> logits, int64_t token) {
  if (token >= 0 && token < std::ssize(logits)) change(logits, token, impossible);
}

/// Penalties and bans of what may follow a live hypothesis.
void SentenceSearch::edit_row(size_t row, std::span<float> logits, double& normaliser) {
  if (control_ && !control_->bias.empty()) {
    const double before = log_sum_exp(logits);
    for (const auto& [token, addition] : control_->bias) {
      const float logit = logit_of(logits, token);
      if (logit == impossible) continue;
      change(logits, token, static_cast<float>(static_cast<double>(logit) + addition));
    }
    // What the row had of the whole distribution it keeps. Never by what a likely token leaves of 1, which rounding has
    // eaten.
    if (before != -infinity) normaliser += log_sum_exp(logits) - before;
  }
  const int64_t ngram = options_.no_repeat_ngram;
  if (ngram > 0 || options_.repetition_penalty != 1) history_ = written(live_[row].node);
  const auto first_ban = [&] {
    if (options_.repetition_penalty == 1) return edits_.size();
    auto held = history_;
    std::sort(held.begin(), held.end());
    held.erase(std::unique(held.begin(), held.end()), held.end());
    for (const int64_t token : held) {
      const float logit = logit_of(logits, token);
      if (logit == impossible) continue;
      const double log_probability = static_cast<double>(logit) - normaliser;
      change(logits, token, static_cast<float>(normaliser + log_probability * options_.repetition_penalty));
    }
    return edits_.size();
  }();

  if (length_ < min_length_) ban(logits, end_);
  if (!options_.write_unknown) ban(logits, Vocabulary::unknown);
  if (ngram > 0) {
    // A required phrase may: it could not be met otherwise, and the output never end.
    const auto wanted =
        control_ && !control_->required.empty() ? carried_[row].required.next() : std::vector<int64_t>();
    for (const int64_t token : completing_ngrams(history_, ngram)) {
      if (std::find(wanted.begin(), wanted.end(), token) == wanted.end()) ban(logits, token);
    }
  }
  if (control_) {
    const auto& carried = carried_[row];
    if (control_->forbidden) {
      const auto state = control_->forbidden->at(carried.forbidden);
      for (const int64_t token : state->forbidden) ban(logits, token);
      if (!state->may_end) ban(logits, end_);
      if (length_ + 1 == max_length_) {  // what is cut there ends there
        for (const int64_t token : state->never_last) ban(logits, token);
      }
    }
    if (!carried.required.all_met()) ban(logits, end_);
  }
  if (edits_.size() == first_ban ||
      std::any_of(logits.begin(), logits.end(), [](float logit) { return logit != impossible; })) {
    return;
  }
  // A constraint left nothing but what is banned: it comes first.
  for (; edits_.size() > first_ban; edits_.pop_back()) {
    logits[static_cast<size_t>(edits_.back().first)] = edits_.back().second;
  }
}

void SentenceSearch::add_candidate(size_t row, int64_t token, const RowScores& scores, double normaliser) {
  const auto& live = live_[row];
  if (token < 0) {  // nothing can be drawn
    candidates_.push_back({live.ranked, static_cast<int64_t>(row), token, live.log_probability});
    return;
  }
  const float logit = scores.logits[static_cast<size_t>(token)];
  const auto edited = std::find_if(edits_.begin(), edits_.end(), [&](const auto& edit) { return edit.first == token; });
  const float plain = edited == edits_.end() ? logit : edited->second;
  // Of logits that were edited, rounding may make a little more than a probability.
  const double ranked = std::min(static_cast<double>(logit) - normaliser, 0.0);
  candidates_.push_back({live.ranked + ranked, static_cast<int64_t>(row), token,
                         live.log_probability + (static_cast<double>(plain) - scores.normaliser)});
}

double SentenceSearch::uniform(int64_t sample) const {
  Random random(static_cast<uint64_t>(options_.seed), key_, static_cast<uint64_t>(sample),
                static_cast<uint64_t>(length_));
  return static_cast<double>(random.next() >> 11) * 0x1p-53;
}

std::vector<int64_t> SentenceSearch::tokens_of(int64_t node) const {
  std::vector<int64_t> tokens;
  for (; node >= 0; node = nodes_[static_cast<size_t>(node)].parent) {
    tokens.push_back(nodes_[static_cast<size_t>(node)].token);
  }
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

/// Without those that were told.
std::vector<int64_t> SentenceSearch::written(int64_t node) const {
  auto tokens = tokens_of(node);
  tokens.erase(tokens.begin(), tokens.begin() + std::min(told_, std::ssize(tokens)));
  return tokens;
}

bool SentenceSearch::advance(const Continuations& continuations, int64_t first_row) {
  return groups_.empty() ? advance_group(continuations, first_row, {}) : advance_groups(continuations, first_row);
}

bool SentenceSearch::advance_group(const Continuations& continuations, int64_t first_row,
                                   std::span<const int64_t> avoided) {
  gather_candidates(continuations, first_row);
  if (options_.search == DecodingSettings::Search::sampling) return advance_samples();
  if (wants_attention()) cover(continuations, first_row);
  avoided_.assign(avoided.begin(), avoided.end());
  if (control_ && !control_->required.empty()) {
    rank_in_banks();
  } else {
    rank_candidates();
  }
  std::vector<Live> next;
  next_carried_.clear();
  std::vector<bool> ended(live_.size(), false);
  const auto beam = static_cast<size_t>(options_.beam);
  for (size_t rank = 0; rank < candidates_.size(); ++rank) {
    const auto& candidate = candidates_[rank];
    const auto row = static_cast<size_t>(candidate.row);
    if (candidate.token == end_) {
      if (rank >= beam) continue;
      ended[row] = true;
      ++finished_;
      const Live last{candidate.log_probability, candidate.ranked, live_[row].node};
      close(hypothesis(last, length_ + 1, true, row));
    } else if (next.size() < beam && length_ < max_length_) {
      live_on(next, candidate);
    }
  }
  if (next.empty()) {
    for (size_t row = 0; row < live_.size(); ++row) {
      if (!ended[row]) close(hypothesis(live_[row], length_, false, row));
    }
  }
  live_ = std::move(next);
  std::swap(carried_, next_carried_);
  std::swap(coverage_, next_coverage_);
  ++length_;
  if (end_ == no_end && length_ == max_length_) {
    // A step more could only look for ends.
    for (size_t row = 0; row < live_.size(); ++row) close(hypothesis(live_[row], length_, false, row));
    return true;
  }
  return live_.empty() || enough_finished();
}

bool SentenceSearch::advance_groups(const Continuations& continuations, int64_t first_row) {
  std::vector<int64_t> chosen;  // ascending
  live_.clear();
  int64_t offset = 0;
  bool done = true;
  for (auto& group : groups_) {
    const auto rows = std::ssize(group.live_);
    if (rows == 0) continue;
    // In the beginning, the one row is every group's.
    const int64_t own = length_ == 0 ? 0 : offset;
    if (group.advance_group(continuations, first_row + own, chosen)) {
      group.live_.clear();
    } else {
      done = false;
    }
    for (auto live : group.live_) {
      chosen.insert(std::upper_bound(chosen.begin(), chosen.end(), live.token), live.token);
      live.parent += own;
      live_.push_back(live);
    }
    offset += rows;
  }
  ++length_;
  return done;
}

bool SentenceSearch::advance_samples() {
  std::vector<Live> next;
  std::vector<int64_t> samples;
  next_carried_.clear();
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const auto& candidate = candidates_[i];
    const auto row = static_cast<size_t>(candidate.row);
    const auto sample = length_ == 0 ? static_cast<int64_t>(i) : samples_[row];
    auto& result = best_[static_cast<size_t>(sample)];
    if (candidate.token == end_ && end_ != no_end) {
      result = hypothesis({candidate.log_probability, candidate.ranked, live_[row].node}, length_ + 1, true, row);
    } else if (candidate.token < 0 || length_ == max_length_) {
      result = hypothesis(live_[row], length_, false, row);
    } else {
      live_on(next, candidate);
      samples.push_back(sample);
    }
  }
  live_ = std::move(next);
  samples_ = std::move(samples);
  std::swap(carried_, next_carried_);
  ++length_;
  if (end_ == no_end && length_ == max_length_) {
    for (size_t row = 0; row < live_.size(); ++row) {
      best_[static_cast<size_t>(samples_[row])] = hypothesis(live_[row], length_, false, row);
    }
    return true;
  }
  return live_.empty();
}

void SentenceSearch::live_on(std::vector<Live>& next, const Candidate& candidate) {
  const auto row = static_cast<size_t>(candidate.row);
  nodes_.push_back({candidate.token, live_[row].node, candidate.log_probability});
  next.push_back({candidate.log_probability, candidate.ranked, static_cast<int64_t>(nodes_.size()) - 1, candidate.row,
                  candidate.token});
  if (wants_attention()) next_coverage_.push_back(covered_[row]);
  if (!control_) return;
  auto& carried = next_carried_.emplace_back(carried_[row]);
  if (length_ < told_) return;
  carried.required.append(candidate.token);
  if (control_->forbidden) carried.forbidden = control_->forbidden->after(carried.forbidden, candidate.token);
}

/// Adds what the live hypotheses attend to in this step up.
void SentenceSearch::cover(const Continuations& continuations, int64_t first_row) {
  next_coverage_.clear();
  const auto first = static_cast<size_t>(first_row);
  if (continuations.attention.size() < first + live_.size()) {
    throw std::logic_error("SentenceSearch: a coverage penalty needs the attention of every row");
  }
  covered_.assign(continuations.attention.begin() + first_row,
                  continuations.attention.begin() + first_row + std::ssize(live_));
  if (length_ == 0) coverage_.assign(1, std::vector<float>(covered_.front().size()));
  for (size_t row = 0; row < live_.size(); ++row) {
    if (covered_[row].empty() || covered_[row].size() != coverage_[row].size()) {
      throw std::logic_error("SentenceSearch: a row's attention is over the positions of its source");
    }
    if (length_ < told_) std::fill(covered_[row].begin(), covered_[row].end(), 0.0F);
    std::transform(covered_[row].begin(), covered_[row].end(), coverage_[row].begin(), covered_[row].begin(),
                   std::plus<>());
  }
}

void SentenceSearch::gather_candidates(const Continuations& continuations, int64_t first_row) {
  const bool whole = std::exchange(rows_taken_, false);
  if (!whole) candidates_.clear();
  const auto rows = whole ? size_t{0} : live_.size();
  for (size_t row = 0; row < rows; ++row) {
    const int64_t first = (first_row + static_cast<int64_t>(row)) * continuations.width;
    for (int64_t i = first; i < first + continuations.width; ++i) {
      const double log_probability = continuations.log_probabilities[i];
      not_numbers_ = not_numbers_ || std::isnan(log_probability) || log_probability == infinity;
      if (log_probability == -infinity) continue;
      candidates_.push_back({live_[row].ranked + log_probability, static_cast<int64_t>(row), continuations.tokens[i],
                             live_[row].log_probability + log_probability});
    }
  }
  if (not_numbers_) {
    throw Failure("decoding", "the model gave a NaN or an infinite probability",
                  "its weights are damaged, or its training diverged");
  }
}

// The best 2 beam candidates in order: every row has at most one end token, so at least `beam` others are among them if
// there are as many.
void SentenceSearch::rank_candidates() {
  const size_t kept = std::min(candidates_.size(), 2 * static_cast<size_t>(options_.beam));
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(kept);
  if (avoided_.empty()) {
    std::partial_sort(candidates_.begin(), end, candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(b.ranked, a.row, a.token) < std::tie(a.ranked, b.row, b.token);
    });
  } else {
    struct Valued {
      double value;
      Candidate candidate;
    };
    std::vector<Valued> valued;
    valued.reserve(candidates_.size());
    for (const auto& candidate : candidates_) {
      const auto [first, behind] = std::equal_range(avoided_.begin(), avoided_.end(), candidate.token);
      valued.push_back({candidate.ranked - options_.diversity * static_cast<double>(behind - first), candidate});
    }
    const auto last = valued.begin() + static_cast<std::ptrdiff_t>(kept);
    std::partial_sort(valued.begin(), last, valued.end(), [](const Valued& one, const Valued& other) {
      const auto &a = one.candidate, &b = other.candidate;
      return std::tie(other.value, a.row, a.token) < std::tie(one.value, b.row, b.token);
    });
    std::transform(valued.begin(), last, candidates_.begin(), [](const Valued& each) { return each.candidate; });
  }
  candidates_.resize(kept);
}

/// Where phrases are required: leaves the ends among the best of their banks, and the candidates that these have slots
/// for, at most `beam`.
void SentenceSearch::rank_in_banks() {
  int64_t all = 0;
  for (const auto& phrase : control_->required) all += std::ssize(phrase);
  // A bank without a slot would end every hypothesis that has to pass it: where there are more tokens than slots, some
  // of them share one. None that has not begun is in a bank with those that have.
  const int64_t others = std::min(all, options_.beam - 1);
  struct Placed {
    Candidate candidate;
    int64_t tokens;  // of phrases
    bool within;     // one
  };
  std::vector<std::vector<Placed>> banks(static_cast<size_t>(1 + others));
  const auto place = [&](const Candidate& candidate, const RequiredPhrases& required) {
    banks[static_cast<size_t>((required.tokens() * others + all - 1) / all)].push_back(
        {candidate, required.tokens(), required.within()});
  };
  for (const auto& candidate : candidates_) {
    const auto& before = carried_[static_cast<size_t>(candidate.row)].required;
    if (candidate.token == end_ || before.stays(candidate.token)) {
      place(candidate, before);
    } else {
      auto required = before;
      required.append(candidate.token);
      place(candidate, required);
    }
  }
  candidates_.clear();
  const int64_t beam = options_.beam - more_for_phrases_, quarter = std::max<int64_t>(1, beam / 4);
  std::vector<double> holding_more;  // what they are ranked by, descending
  std::vector<int64_t> counts(banks.size());
  for (size_t bank = banks.size(); bank-- > 0;) {
    auto& candidates = banks[bank];
    std::sort(candidates.begin(), candidates.end(), [](const Placed& one, const Placed& other) {
      const auto &a = one.candidate, &b = other.candidate;
      return std::tie(b.ranked, a.row, a.token) < std::tie(a.ranked, b.row, b.token);
    });
    // Of several numbers of tokens in a bank, the most comes further: or those that begin would stay for ever.
    if (others < all && !candidates.empty()) {
      const auto further = std::max_element(candidates.begin(), candidates.end(),
                                            [](const Placed& a, const Placed& b) { return a.tokens < b.tokens; });
      std::rotate(candidates.begin(), further, further + 1);
    }
    const bool all_held = bank + 1 == banks.size();
    int64_t rank = 0, left_within = quarter, left = all_held ? beam : bank == 0 ? beam - beam / 4 : (beam + 1) / 2;
    std::erase_if(candidates, [&](const Placed& placed) {
      const bool best = rank++ < beam;
      if (placed.candidate.token == end_) {
        if (best) candidates_.push_back(placed.candidate);
        return true;
      }
      auto& slots = placed.within ? left_within : left;
      const auto worse =
          std::upper_bound(holding_more.begin(), holding_more.end(), placed.candidate.ranked, std::greater<>());
      if (worse - holding_more.begin() >= slots) return true;
      --slots;
      return false;
    });
    for (const auto& placed : candidates) holding_more.push_back(placed.candidate.ranked);
    std::sort(holding_more.begin(), holding_more.end(), std::greater<>());
    counts[bank] = std::ssize(candidates);
  }
  const auto sizes = bank_sizes(options_.beam, counts);
  for (size_t bank = banks.size(); bank-- > 0;) {
    for (const auto& placed : std::span(banks[bank]).first(static_cast<size_t>(sizes[bank]))) {
      candidates_.push_back(placed.candidate);
    }
  }
}

double SentenceSearch::score(double ranked, int64_t length) const {
  return ranked / length_penalty(options_.length_penalty, length, options_.alpha);
}

/// log p of each token up to `node` and, where an end follows it, of the end; `sum`: of all of them.
std::vector<double> SentenceSearch::token_log_probabilities(int64_t node, double sum, bool finished) const {
  std::vector<double> result;
  const auto before = [&](int64_t at) { return at >= 0 ? nodes_[static_cast<size_t>(at)].log_probability : 0; };
  if (finished) result.push_back(sum - before(node));
  for (; node >= 0; node = nodes_[static_cast<size_t>(node)].parent) {
    result.push_back(before(node) - before(nodes_[static_cast<size_t>(node)].parent));
  }
  std::reverse(result.begin(), result.end());
  return result;
}

/// What ends with `last`, a continuation of the live hypothesis `row` or this itself.
Hypothesis SentenceSearch::hypothesis(const Live& last, int64_t length, bool finished, size_t row) const {
  Hypothesis result{{}, last.log_probability, score(last.ranked, length), finished};
  if (wants_attention()) {
    // What this step attends to writes the end, of which what was cut has none.
    result.score += coverage_penalty(finished ? covered_[row] : coverage_[row], options_.coverage_penalty);
  }
  // Most do not come among the best, and need no tokens: see `close`.
  const bool kept = options_.search == DecodingSettings::Search::sampling || std::ssize(best_) < options_.n_best ||
                    !ranks_before(best_.back(), result) || control_;
  if (kept) {
    result.tokens = tokens_of(last.node);
    result.token_log_probabilities = token_log_probabilities(last.node, last.log_probability, finished);
  }
  if (control_) result.missing = carried_[row].required.missing();
  return result;
}

// Takes a hypothesis up among the n best, if it is one of them.
void SentenceSearch::close(Hypothesis&& hypothesis) {
  const auto place = std::upper_bound(best_.begin(), best_.end(), hypothesis, ranks_before);
  if (place - best_.begin() >= options_.n_best) return;
  best_.insert(place, std::move(hypothesis));
  if (std::ssize(best_) > options_.n_best) best_.pop_back();
}

bool SentenceSearch::enough_finished() const {
  // Greedy search would not be greedy if it went on past an end to look for a better one.
  if (options_.stop == DecodingSettings::Stop::beam_finished || options_.beam == 1) return finished_ >= options_.beam;
  if (std::ssize(best_) < options_.n_best) return false;
  // What lacks fewer phrases comes before it, whatever the scores.
  if (!best_.back().missing.empty()) return false;
  // Going on never raises a log-probability, and the length penalty is monotonic in the length, so a live hypothesis
  // reaches at most its score of now at the shortest or the longest length it may still end with. A coverage penalty is
  // 0 at most.
  double ranked = live_.front().ranked;
  for (const auto& live : live_) ranked = std::max(ranked, live.ranked);
  const double bound = std::max(score(ranked, length_ + 1), score(ranked, max_length_ + 1));
  return best_.back().score >= bound;
}

std::vector<int64_t> SentenceSearch::certain() const {
  std::vector<int64_t> common;
  bool any = false;
  const auto take = [&](const std::vector<int64_t>& tokens) {
    if (any) {
      common.erase(std::mismatch(common.begin(), common.end(), tokens.begin(), tokens.end()).first, common.end());
    } else {
      common = tokens;
    }
    any = true;
  };
  if (options_.search == DecodingSettings::Search::sampling) {
    const auto first = std::find(samples_.begin(), samples_.end(), 0);
    if (first == samples_.end()) return best_.front().tokens;
    return tokens_of(live_[static_cast<size_t>(first - samples_.begin())].node);
  }
  const auto take_all = [&](const SentenceSearch& search) {
    for (const auto& live : search.live_) take(search.tokens_of(live.node));
    if (!search.best_.empty()) take(search.best_.front().tokens);
  };
  if (groups_.empty()) take_all(*this);
  for (const auto& group : groups_) take_all(group);
  return common;
}

std::vector<Hypothesis> SentenceSearch::take_result() {
  if (groups_.empty()) return std::move(best_);
  std::vector<Hypothesis> all;
  for (auto& group : groups_) {
    for (auto& hypothesis : group.best_) {
      // Groups may have found the same.
      const bool there = std::any_of(all.begin(), all.end(), [&](const Hypothesis& other) {
        return other.tokens == hypothesis.tokens && other.finished == hypothesis.finished;
      });
      if (!there) all.push_back(std::move(hypothesis));
    }
  }
  std::stable_sort(all.begin(), all.end(), ranks_before);
  if (std::ssize(all) > options_.n_best) all.resize(static_cast<size_t>(options_.n_best));
  return all;
}

std::vector<std::vector<Hypothesis>> beam_search(const StepFunction& step, std::span<const int64_t> max_lengths,
                                                 int64_t begin, int64_t end, const DecodingSettings& given) {
  const auto options = given.validated();
  std::vector<DecodingRequest> requests;
  for (size_t sentence = 0; sentence < max_lengths.size(); ++sentence) {
    if (max_lengths[sentence] < 0) {
      throw Error(fmt::format("sentence {}", sentence),
                  fmt::format("a maximum length of {} is not possible", max_lengths[sentence]), "give 0 or more");
    }
    requests.push_back({.source = {}, .max_length = max_lengths[sentence], .settings = options, .end = end});
  }
  return beam_search(step, requests, begin);
}

std::vector<std::vector<Hypothesis>> beam_search(const StepFunction& step, std::span<const DecodingRequest> requests,
                                                 int64_t begin) {
  std::vector<SentenceSearch> searches;
  std::vector<size_t> active;
  std::vector<int64_t> tokens, parents;
  for (size_t sentence = 0; sentence < requests.size(); ++sentence) {
    searches.emplace_back(requests[sentence]);
    active.push_back(sentence);
    tokens.push_back(begin);
    parents.push_back(static_cast<int64_t>(sentence));
  }

  std::vector<std::vector<Hypothesis>> results(requests.size());
  std::vector<float> logits;
  while (!active.empty()) {
    int64_t width = 0;
    for (const size_t sentence : active) {
      const auto& search = searches[sentence];
      width = std::max(width, search.wants_whole_rows() ? std::numeric_limits<int64_t>::max() : search.width());
    }
    const auto continuations = step(tokens, parents, width);
    const size_t expected = tokens.size() * static_cast<size_t>(std::max<int64_t>(continuations.width, 0));
    if (continuations.tokens.size() != expected || continuations.log_probabilities.size() != expected) {
      throw std::logic_error("beam_search: the step function returned another number of continuations than its width");
    }
    tokens.clear();
    parents.clear();
    int64_t first_row = 0;
    std::erase_if(active, [&](size_t sentence) {
      auto& search = searches[sentence];
      const auto rows = std::ssize(search.live());
      if (search.wants_whole_rows()) {
        for (int64_t row = 0; row < rows; ++row) {
          take_continuations(search, row, continuations, first_row + row, logits);
        }
      }
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
