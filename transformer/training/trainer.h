#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "transformer/model/transformer.h"
#include "transformer/text/batches.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/device_transfer.h"
#include "transformer/training/distributed/communicator.h"
#include "transformer/training/distributed/data_parallel.h"
#include "transformer/training/label_smoothing_loss.h"
#include "transformer/training/metrics.h"
#include "transformer/training/moving_average.h"
#include "transformer/training/settings.h"

namespace transformer {

/// What a validation found.
struct Validation {
  double loss = 0;        // negative log-likelihood a target token, in nats
  double perplexity = 0;  // a word piece, the end token included
  std::optional<double> bleu;
  std::string signature;  // how `bleu` was computed
};

inline constexpr const char* trace_name = "trace.json";  // in a run's folder
inline constexpr const char* summary_name = "summary.json";

/// What training needs from outside: it knows neither decoding nor evaluation.
struct TrainerHooks {
  /// Judges the model (in evaluation mode) after `step`.
  std::function<Validation(Transformer& model, int64_t step)> validate;
  /// Set by a signal handler: finish the step, write a checkpoint and return.
  const std::atomic<bool>* stop = nullptr;
  /// A checkpoint is written. Rank 0 alone.
  std::function<void()> checkpointed = {};
};

struct TrainingSummary {
  enum class End { steps, time, patience, interruption };
  End end = End::steps;
  int64_t steps = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  double flops = 0;    // of matrix products, as training/cost.h counts them
  double seconds = 0;  // of training, validations included, earlier parts of a resumed run too
};

/// What is trained on. `corpus` must outlive what holds this.
struct TrainingText {
  const Corpus& corpus;
  std::vector<double> weights = {};  // of the corpus's parts (Batches::Options); empty: all alike
  Vocabularies vocabularies = {};    // for `subword_sampling`
};

/// The training loop of §5: batches, gradients accumulated to the token budget, Adam at the scheduled rate,
/// validations, checkpoints.
///
/// Batches, dropout and everything else random follow from the seed, and dropout from the micro-batch alone; a run that
/// goes on from a checkpoint continues as if it had never stopped.
///
/// A step's micro-batches are shared out over the communicator's processes, and its gradient is that of them all: with
/// micro-batches of one size, any number of processes computes the same steps, up to the order of summation. All ranks
/// make the same calls. Rank 0 validates, and writes metrics and checkpoints, in a folder that all ranks can read.
class Trainer {
 public:
  /// `communicator` must outlive this. `run` is the run's folder; `files` go into every checkpoint beside the weights.
  Trainer(Communicator& communicator, Transformer model, TrainingText text, const TrainingSettings& settings,
          std::filesystem::path run, ModelFiles files, TrainerHooks hooks);

  /// Goes on from the newest checkpoint that is whole; returns it. Throws Error when none is.
  std::filesystem::path resume();

  /// Trains until steps, minutes or patience are used up, or the stop flag is set, and leaves a checkpoint of the last
  /// step. Throws Failure when memory runs out, a file cannot be written, or training diverges: loss, gradient or a
  /// validation's perplexity is not finite, or a checkpoint's weights would not be, or would give no finite loss.
  /// Checkpoints stay as they are, and none is written of such a state. On a CPU a gradient that is not finite is found
  /// before it changes a weight; a GPU skips its update, and it is found with the next figures that are fetched. The
  /// next `profile_steps` steps after the first are written as a Chrome trace to `run`/`trace_name`.
  TrainingSummary run(int64_t profile_steps = 0);

  /// Adds the validation of the final model to the log and to the metrics. Throws Failure where it is not finite.
  void record_final(const Validation& validation);

  /// Checkpoints that the final model is to be averaged from, newest or best first.
  std::vector<std::filesystem::path> final_checkpoints() const;

 private:
  /// Of a step.
  struct StepSums {
    // [3] float64, on the device: loss and negative log-likelihood, of this rank or of all, and the joint norm of the
    // step's gradients, as rank 0 computed it, before clipping.
    at::Tensor figures;
    int64_t tokens = 0;  // of all ranks
    at::Tensor norm() const { return figures[2].to(at::kFloat); }
  };
  TrainingState state();
  /// Tokens of a micro-batch.
  int64_t tokens_at_once() const;
  int64_t micro_batches() const;
  /// Settles `training.micro_batch: auto`. All ranks.
  void find_micro_batch();
  LossSums forward(DeviceBatch& batch);
  Batch next_micro_batch(int64_t number);
  StepSums step();
  StepSums accumulate_gradients();
  /// Brings the figures of the current window from the device. Throws Failure when they are not finite.
  void fetch_window();
  /// Throws the Failure of a run that went wrong: `what` was found, and what to do.
  [[noreturn]] void diverged(const std::string& what) const;
  void check_finite(const Validation& validation, const std::string& whose) const;
  /// What of the present state a checkpoint must not have; empty where it is fit to go on from.
  std::string damage();
  bool out_of_patience() const;
  std::string last_checkpoint_text() const;
  void log_progress(double rate, double interval_seconds, int64_t interval_tokens);
  /// Whether the model is now among the best that are kept.
  bool validate();
  bool judge();
  void record(const char* kind, const Validation& validation);
  Metrics& metrics();
  void checkpoint(CheckpointKind kind);
  double elapsed() const;

  Communicator& communicator_;
  Transformer model_;
  TrainingText text_;
  TrainingSettings settings_;
  std::filesystem::path run_;
  ModelFiles files_;
  TrainerHooks hooks_;
  torch::Device device_;
  DeviceTransfer transfer_;
  Adam adam_;
  std::optional<MovingAverage> average_;
  Progress progress_;
  std::optional<DistributedDataParallel> parallel_;
  std::optional<Batches> batches_;
  std::optional<Metrics> metrics_;
  // Since the last line of progress: [4], the sums of StepSums::figures and the largest norm.
  at::Tensor window_;
  int64_t fetched_step_ = 0;               // up to which the window is known to be finite
  std::optional<DeviceBatch> last_batch_;  // of this rank's micro-batches
  double started_ = 0, seconds_before_ = 0, last_checkpoint_ = 0;
  int64_t last_checkpoint_step_ = -1;
  CheckpointKind last_checkpoint_kind_ = CheckpointKind::scheduled;
};

}  // namespace transformer
