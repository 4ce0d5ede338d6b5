#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "transformer/model/transformer.h"
#include "transformer/text/batches.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/settings.h"

namespace transformer {

/// What a validation found.
struct Validation {
  double loss = 0;        // negative log-likelihood a target token, in nats
  double perplexity = 0;  // a word piece, the end token included
  std::optional<double> bleu;
  std::string signature;  // how `bleu` was computed
};

/// What training needs from outside: it knows neither decoding nor evaluation.
struct TrainerHooks {
  /// Judges the model (in evaluation mode) after `step`.
  std::function<Validation(Transformer& model, int64_t step)> validate;
  /// Set by a signal handler: finish the step, write a checkpoint and return.
  const std::atomic<bool>* stop = nullptr;
};

struct TrainingSummary {
  int64_t steps = 0;
  int64_t target_tokens = 0;
  double seconds = 0;  // of training, validations included, earlier parts of a resumed run too
  bool interrupted = false;
};

/// The training loop of §5: batches, gradients accumulated to the token budget, Adam at Noam's rate, checkpoints.
///
/// Batches, dropout and everything else random follow from the seed; a run that goes on from a checkpoint continues
/// as if it had never stopped.
class Trainer {
 public:
  /// `run` is the run's folder; `files` go into every checkpoint beside the weights. `corpus` must outlive this.
  Trainer(Transformer model, const Corpus& corpus, const TrainingSettings& settings, std::filesystem::path run,
          ModelFiles files, TrainerHooks hooks);

  /// Goes on from `checkpoint`.
  void resume(const std::filesystem::path& checkpoint);

  /// Trains until steps or minutes are used up, or the stop flag is set, and leaves a checkpoint of the last step.
  /// Throws Failure when the loss is not finite or a file cannot be written; checkpoints stay as they are.
  TrainingSummary run();

  /// Adds the validation of the final model to the log and to metrics.jsonl.
  void record_final(const Validation& validation);

 private:
  struct StepSums {
    double loss, nll;
    int64_t tokens;
  };
  bool next_micro_batch(Batch& batch);
  StepSums step();
  void log_progress(double rate, double interval_seconds, int64_t interval_tokens);
  void validate();
  void write_validation(const char* kind, const Validation& validation);
  void checkpoint();
  void write_metrics(const std::string& line);
  double elapsed() const;

  Transformer model_;
  const Corpus& corpus_;
  TrainingSettings settings_;
  std::filesystem::path run_;
  ModelFiles files_;
  TrainerHooks hooks_;
  Adam adam_;
  torch::Device device_;
  Progress progress_;
  std::optional<Batches> batches_;
  double started_ = 0, seconds_before_ = 0, last_checkpoint_ = 0;
  int64_t last_checkpoint_step_ = -1;
};

}  // namespace transformer
