#include "transformer/inference/ensemble_batch.h"

#include <algorithm>
#include <cmath>

#include "transformer/inference/inference_model.h"
#include "transformer/inference/sampling.h"

namespace transformer {

namespace {

/// 0, or not a number where a member's scores are none: the normaliser shows it.
double not_a_number_in(std::span<const RowScores> members) {
  for (const auto& member : members) {
    if (std::isnan(member.normaliser)) return member.normaliser;
  }
  return 0;
}

/// Adds a member's attention to the mean of all.
void add_attention(const std::vector<std::vector<float>>& rows, double weight, std::vector<std::vector<float>>& mean) {
  mean.resize(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    mean[row].resize(rows[row].size());
    for (size_t i = 0; i < rows[row].size(); ++i) mean[row][i] += static_cast<float>(weight) * rows[row][i];
  }
}

}  // namespace

EnsembleBatch::EnsembleBatch(const Ensemble& ensemble) : ensemble_(ensemble) {
  for (const auto& model : ensemble.models) batches_.emplace_back(*model);
}

std::vector<int64_t> EnsembleBatch::add(std::span<const InferenceBatch::Source> sources) {
  std::vector<int64_t> places;
  listed_ = listed_ ||
            std::any_of(sources.begin(), sources.end(), [](const auto& source) { return !source.candidates.empty(); });
  // Sentences come and go alike everywhere, and so lie in the same places.
  for (auto& batch : batches_) places = batch.add(sources);
  return places;
}

void EnsembleBatch::remove(int64_t place) {
  for (auto& batch : batches_) batch.remove(place);
}

void EnsembleBatch::clear() {
  for (auto& batch : batches_) batch.clear();
}

void EnsembleBatch::take_back(int64_t place, int64_t positions) {
  for (auto& batch : batches_) batch.take_back(place, positions);
}

bool EnsembleBatch::free(int64_t place) const {
  return batches_.front().free(place);
}

int64_t EnsembleBatch::cache_bytes() const {
  int64_t bytes = 0;
  for (const auto& batch : batches_) bytes += batch.cache_bytes();
  return bytes;
}

void EnsembleBatch::release() {
  for (auto& batch : batches_) batch.release();
}

int64_t EnsembleBatch::expected_bytes(const Ensemble& ensemble, int64_t pieces, int64_t beam) {
  int64_t bytes = 0;
  for (const auto& model : ensemble.models) bytes += InferenceBatch::expected_bytes(*model, pieces, beam);
  return bytes;
}

Continuations EnsembleBatch::step(std::span<const InferenceBatch::Row> rows, int64_t width,
                                  const InferenceBatch::WholeRow& told, InferenceBatch::Failures* failures) {
  if (batches_.size() == 1) return batches_.front().step(rows, width, told, failures);
  const auto size = static_cast<size_t>(ensemble_.models.front()->projection().outputs());
  whole_.assign(rows.begin(), rows.end());
  for (auto& row : whole_) row.whole = true;
  members_.assign(batches_.size() * rows.size(), {});
  if (listed_) copies_.resize((batches_.size() - 1) * rows.size() * size);
  const int64_t returned = std::min(width, static_cast<int64_t>(size));
  Continuations continuations{returned, {}, {}};
  std::vector<std::vector<float>> attention;
  for (size_t member = 0; member < batches_.size(); ++member) {
    const bool last = member + 1 == batches_.size();
    const auto tell = [&](size_t row, const RowScores& scores) {
      const std::span of_row = std::span(members_).subspan(row * batches_.size(), batches_.size());
      of_row[member] = scores;
      if (listed_ && !last) {
        const std::span copy = std::span(copies_).subspan((member * rows.size() + row) * size, size);
        std::copy(scores.logits.begin(), scores.logits.end(), copy.begin());
        of_row[member].logits = copy;
      }
      if (!last) return;
      if (rows[row].whole) {
        told(row, all_of(of_row));
        // As InferenceBatch: who is told of a row asks for nothing else of it.
        continuations.tokens.resize(continuations.tokens.size() + static_cast<size_t>(returned));
        continuations.log_probabilities.resize(continuations.tokens.size());
      } else {
        add_best(of_row, continuations);
      }
    };
    const auto found = batches_[member].step(whole_, 1, tell, failures);
    add_attention(found.attention, ensemble_.weights[member], attention);
  }
  continuations.attention = std::move(attention);
  return continuations;
}

void EnsembleBatch::mean_of(std::span<const RowScores> members, size_t first, size_t count, float* means) const {
  const Kernels& kernels = ensemble_.models.front()->kernels();
  const bool of_logs = ensemble_.average == Ensemble::Average::log_probabilities;
  if (of_logs) std::fill_n(means, count, 0.0F);
  for (size_t member = 0; member < members.size(); ++member) {
    const float* logits = members[member].logits.data() + first;
    const auto shift = shift_of(members[member], member);
    if (of_logs) {
      const auto factor = static_cast<float>(ensemble_.weights[member]);
      for (size_t i = 0; i < count; ++i) means[i] += factor * (logits[i] - shift);
    } else if (member == 0) {
      kernels.exponentials(logits, static_cast<int64_t>(count), shift, 1, means);
    } else {
      kernels.add_probabilities(logits, static_cast<int64_t>(count), shift, means);
    }
  }
}

float EnsembleBatch::shift_of(const RowScores& scores, size_t member) const {
  const bool of_logs = ensemble_.average == Ensemble::Average::log_probabilities;
  return static_cast<float>(of_logs ? scores.normaliser : scores.normaliser - std::log(ensemble_.weights[member]));
}

RowScores EnsembleBatch::all_of(std::span<const RowScores> members) {
  means_.resize(members.front().logits.size());
  mean_of(members, 0, means_.size(), means_.data());
  if (ensemble_.average == Ensemble::Average::probabilities) {
    for (size_t token = 0; token < means_.size(); ++token) {
      means_[token] = means_[token] == 0 ? log_mean_of(members, token) : std::log(means_[token]);
    }
  }
  return {means_, not_a_number_in(members)};
}

float EnsembleBatch::log_mean_of(std::span<const RowScores> members, size_t token) const {
  const auto log_of = [&](size_t member) { return members[member].logits[token] - shift_of(members[member], member); };
  float largest = impossible_logit;
  for (size_t member = 0; member < members.size(); ++member) largest = std::max(largest, log_of(member));
  if (largest == impossible_logit) return impossible_logit;
  float sum = 0;
  for (size_t member = 0; member < members.size(); ++member) sum += std::exp(log_of(member) - largest);
  return largest + std::log(sum);
}

void EnsembleBatch::add_best(std::span<const RowScores> members, Continuations& continuations) {
  const Kernels& kernels = ensemble_.models.front()->kernels();
  const bool of_logs = ensemble_.average == Ensemble::Average::log_probabilities;
  const size_t size = members.front().logits.size();
  const auto wanted = static_cast<size_t>(continuations.width);
  const double nothing = not_a_number_in(members);
  const float impossible = of_logs ? impossible_logit : 0;
  size_t taken = 0;
  const auto add = [&](int64_t token, double score) {
    continuations.tokens.push_back(token);
    continuations.log_probabilities.push_back(score - nothing);
    ++taken;
  };
  const auto take = [&](int64_t token, float mean) {
    if (mean > impossible) add(token, of_logs ? double{mean} : std::log(double{mean}));
  };
  // Where float32 has fewer probabilities above 0 than are wanted, as of what is forced upon models: the rest by
  // logarithms.
  const auto take_rest = [&] {
    likely_.clear();
    if (!of_logs && taken < wanted) {
      means_.resize(size);
      mean_of(members, 0, size, means_.data());
      for (size_t token = 0; token < size; ++token) {
        means_[token] = means_[token] == 0 ? log_mean_of(members, token) : impossible_logit;
      }
      best_of(means_, static_cast<int64_t>(wanted - taken), likely_);
    }
    for (const auto& [log, token] : likely_) add(token, double{log});
    while (taken < wanted) add(0, double{impossible_logit});
  };
  if (continuations.width > widest_selection) {
    means_.resize(size);
    mean_of(members, 0, size, means_.data());
    best_of(means_, continuations.width, likely_);
    for (const auto& [mean, token] : likely_) take(token, mean);
    take_rest();
    return;
  }

  // A mean of probabilities lies between its largest addend and as often that as there are members, a mean of
  // logarithms at most at that of the largest: whole blocks hold nothing to be taken up, and their means are not
  // needed.
  constexpr size_t usual_block = 64;
  const bool known = std::all_of(members.begin(), members.end(), [&](const RowScores& scores) {
    return !scores.maxima.empty() && scores.block == members.front().block;
  });
  const size_t block = known ? members.front().block : usual_block;
  constexpr float margin = 1e-3F;  // more than rounding makes of the logarithm of a mean
  const size_t blocks = (size + block - 1) / block;
  bounds_.assign(blocks, of_logs ? 0 : impossible_logit);
  for (size_t member = 0; member < members.size(); ++member) {
    const auto& scores = members[member];
    const float* maxima = scores.maxima.data();
    if (!known) {
      maxima_.resize(blocks);
      for (size_t i = 0; i < blocks; ++i) {
        const size_t first = i * block;
        maxima_[i] = kernels.largest(scores.logits.data() + first, static_cast<int64_t>(std::min(block, size - first)));
      }
      maxima = maxima_.data();
    }
    const float shift = shift_of(scores, member), weight = static_cast<float>(ensemble_.weights[member]);
    float* const bounds = bounds_.data();
    if (of_logs) {
      for (size_t i = 0; i < blocks; ++i) bounds[i] += weight * (maxima[i] - shift);
    } else {
      for (size_t i = 0; i < blocks; ++i) bounds[i] = std::max(bounds[i], maxima[i] - shift);
    }
  }
  best_.resize(wanted);
  best_tokens_.resize(wanted);
  float needed = impossible_logit;  // the logarithm of the mean of what is among the best
  const float above = std::log(static_cast<float>(members.size())) + margin;
  if (!of_logs && wanted > 0 && wanted <= blocks) {
    // Each of so many blocks has a token whose mean is no less.
    Selection largest{impossible_logit,   0, static_cast<int32_t>(wanted), 0, impossible_logit, best_.data(),
                      best_tokens_.data()};
    kernels.best(bounds_.data(), static_cast<int64_t>(blocks), 0, largest);
    if (largest.count == largest.width) needed = best_[wanted - 1] - margin;
  }

  Selection selection{impossible_logit,   0, static_cast<int32_t>(wanted), 0, impossible_logit, best_.data(),
                      best_tokens_.data()};
  means_.resize(size);
  for (size_t first = 0; first < size; first += block) {
    if (bounds_[first / block] + (of_logs ? margin : above) < needed) continue;
    const size_t count = std::min(block, size - first);
    mean_of(members, first, count, means_.data());
    kernels.best(means_.data(), static_cast<int64_t>(count), static_cast<int32_t>(first), selection);
    const float reached = of_logs ? selection.threshold : std::log(selection.threshold);
    if (reached > needed) needed = reached;
  }

  for (size_t i = 0; i < static_cast<size_t>(selection.count); ++i) take(best_tokens_[i], best_[i]);
  take_rest();
}

}  // namespace transformer
