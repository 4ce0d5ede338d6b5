#include "transformer/inference/ensemble_batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "transformer/inference/inference_model.h"

namespace transformer {

namespace {

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
                                  const InferenceBatch::WholeRow& told) {
  if (batches_.size() == 1) return batches_.front().step(rows, width, told);
  const auto size = static_cast<size_t>(ensemble_.models.front()->projection().outputs());
  whole_.assign(rows.begin(), rows.end());
  for (auto& row : whole_) row.whole = true;
  const bool of_logs = ensemble_.average == Ensemble::Average::log_probabilities;
  const Kernels& kernels = ensemble_.models.front()->kernels();
  means_.resize(rows.size() * size);
  std::vector<std::vector<float>> attention;
  for (size_t member = 0; member < batches_.size(); ++member) {
    const double weight = ensemble_.weights[member];
    const auto found = batches_[member].step(whole_, 1, [&](size_t row, const RowScores& scores) {
      float* means = means_.data() + row * size;
      const auto shift = static_cast<float>(of_logs ? scores.normaliser : scores.normaliser - std::log(weight));
      if (!of_logs && member == 0) {
        kernels.exponentials(scores.logits.data(), std::ssize(scores.logits), shift, 1, means);
      } else if (!of_logs) {
        kernels.add_probabilities(scores.logits.data(), std::ssize(scores.logits), shift, means);
      } else {
        if (member == 0) std::fill_n(means, size, 0.0F);
        const auto factor = static_cast<float>(weight);
        for (size_t token = 0; token < size; ++token) means[token] += factor * (scores.logits[token] - shift);
      }
    });
    add_attention(found.attention, weight, attention);
  }
  const int64_t returned = std::min(width, static_cast<int64_t>(size));
  Continuations continuations{returned, {}, {}, std::move(attention)};
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::span means(means_.data() + row * size, size);
    // What is not a number shows in the sum, and in the normaliser.
    const auto normaliser_for = [](double sum) { return std::isnan(sum) ? sum : 0; };
    if (rows[row].whole) {
      const double sum = std::accumulate(means.begin(), means.end(), 0.0);
      if (!of_logs) {
        for (float& mean : means) mean = std::log(mean);
      }
      told(row, {means, normaliser_for(sum)});
      // As InferenceBatch: who is told of a row asks for nothing else of it.
      continuations.tokens.resize(continuations.tokens.size() + static_cast<size_t>(returned));
      continuations.log_probabilities.resize(continuations.tokens.size());
      continue;
    }
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    constexpr size_t block = 64;  // few of which hold anything to be taken up
    best_.resize(static_cast<size_t>(returned));
    best_tokens_.resize(static_cast<size_t>(returned));
    Selection selection{lowest, 0, static_cast<int32_t>(returned), 0, lowest, best_.data(), best_tokens_.data()};
    for (size_t first = 0; first < size; first += block) {
      kernels.best(means.data() + first, static_cast<int64_t>(std::min(block, size - first)),
                   static_cast<int32_t>(first), selection);
    }
    for (size_t i = 0; i < static_cast<size_t>(returned); ++i) {
      const bool found = static_cast<int32_t>(i) < selection.count && (of_logs || best_[i] > 0);
      double score = static_cast<double>(lowest);
      if (found) score = of_logs ? static_cast<double>(best_[i]) : std::log(static_cast<double>(best_[i]));
      continuations.tokens.push_back(found ? best_tokens_[i] : 0);
      continuations.log_probabilities.push_back(score - normaliser_for(selection.sum));
    }
  }
  return continuations;
}

}  // namespace transformer
