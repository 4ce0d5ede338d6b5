#pragma once

#include <optional>
#include <vector>

#include "transformer/architecture/settings.h"
#include "transformer/text/batches.h"
#include "transformer/training/batch_source.h"

namespace transformer {

/// What is trained on. `corpus` must outlive what holds this.
struct TrainingText {
  const Corpus& corpus;                         // training pairs
  std::vector<double> weights = {};             // of the corpus's parts (Batches::Options); empty: all alike
  Vocabularies vocabularies = {};               // for `sampling`
  double sampling = 0;                          // training.subword_sampling
  std::vector<std::vector<int64_t>> tags = {};  // of each of its parts, for `sampling`
};

/// `ids` as a tensor [rows, columns] of int64.
at::Tensor tensor_of(const IdMatrix& ids);

/// The micro-batch of a batch: source [B, S], target input and target output [B, T]; its items are target tokens, and
/// its cost is that of a model of `settings`.
/// In the mean a share `layer_drop` of the layers costs nothing.
MicroBatch micro_batch_of(const Batch& batch, const ModelSettings& settings, double layer_drop = 0);

/// The micro-batches of parallel text (Batches), for translation and whatever else turns one text into another.
class CorpusBatches : public BatchSource {
 public:
  /// `passes`: how often the loss sends a micro-batch through the model, which its cost counts. `layer_drop`: the share
  /// of the layers that are left out (training.layer_drop), which it does not, in the mean.
  CorpusBatches(TrainingText text, const ModelSettings& settings, int64_t passes = 1, double layer_drop = 0);

  void begin(const Plan& plan) override;
  /// Throws Error where the corpus is empty.
  MicroBatch next(int64_t number, BatchPosition& position) override;
  std::optional<Largest> largest() const override;

 private:
  // Tokens, padding counted, that sampling makes of a batch planned for so many by the corpus's own pieces.
  int64_t most_drawn(int64_t tokens) const;

  TrainingText text_;
  ModelSettings settings_;
  int64_t passes_;
  double layer_drop_;
  Plan plan_;
  std::optional<Batches> batches_;
  int64_t epoch_ = 0, batch_ = 0;  // where those stand
};

}  // namespace transformer
