#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "transformer/inference/ensemble.h"
#include "transformer/inference/inference_batch.h"

namespace transformer {

/// An InferenceBatch of each of an ensemble's models; with a single model, nothing but that.
class EnsembleBatch {
 public:
  /// The ensemble is validated, and must outlive the batch.
  explicit EnsembleBatch(const Ensemble& ensemble);

  /// Places are the same in every model's batch. This and what follows is as InferenceBatch has it.
  std::vector<int64_t> add(std::span<const InferenceBatch::Source> sources);
  /// The sentence is done, in every model's batch.
  void remove(int64_t place);
  /// All are.
  void clear();
  /// Advances every model, and returns the best continuations by the mean of them all.
  Continuations step(std::span<const InferenceBatch::Row> rows, int64_t width, const InferenceBatch::WholeRow& told,
                     InferenceBatch::Failures* failures = nullptr);
  /// Forgets positions in every model's batch.
  void take_back(int64_t place, int64_t positions);
  /// Whether no constraint has any say from here on.
  bool free(int64_t place) const;
  /// Of all models' batches.
  int64_t cache_bytes() const;
  /// Gives back what any model's batch keeps.
  void release();
  /// In all models' batches.
  static int64_t expected_bytes(const Ensemble& ensemble, int64_t pieces, int64_t beam);

 private:
  /// means [count] = the members' mean for the tokens from `first` on: of probabilities, or of their logarithms.
  void mean_of(std::span<const RowScores> members, size_t first, size_t count, float* means) const;
  /// What is subtracted from a member's logits.
  float shift_of(const RowScores& scores, size_t member) const;
  /// The logarithm of the mean of a token's probabilities, all of which are too small for float32.
  float log_mean_of(std::span<const RowScores> members, size_t token) const;
  /// The mean for the whole vocabulary, as logarithms. Valid until the next call.
  RowScores all_of(std::span<const RowScores> members);
  /// The best tokens of a row by the members' mean.
  void add_best(std::span<const RowScores> members, Continuations& continuations);

  const Ensemble& ensemble_;
  std::vector<InferenceBatch> batches_;
  std::vector<InferenceBatch::Row> whole_;
  bool listed_ = false;             // a sentence had a shortlist: its rows go with the next of them
  std::vector<RowScores> members_;  // [rows, members]
  std::vector<float> copies_;       // [members, rows, V], of shortlists
  std::vector<float> means_;        // [V]
  std::vector<float> bounds_;       // of a row's blocks of tokens: no mean is larger, but for what addends make of it
  std::vector<float> maxima_;       // of a member's logits, by block, where it does not know them
  std::vector<float> best_;
  std::vector<int32_t> best_tokens_;
  std::vector<std::pair<float, int64_t>> likely_;
};

}  // namespace transformer
