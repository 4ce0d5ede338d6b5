#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transformer/base/file_lock.h"
#include "transformer/base/log.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/claimed_folder.h"
#include "transformer/training/device_transfer.h"
#include "transformer/training/distributed/communicator.h"
#include "transformer/training/distributed/data_parallel.h"
#include "transformer/training/metrics.h"
#include "transformer/training/moving_average.h"
#include "transformer/training/settings.h"
#include "transformer/training/task.h"

namespace transformer {

/// What a validation found.
struct Validation {
  double loss = 0;             // negative log-likelihood a target token, in nats
  double perplexity = 0;       // a word piece, the end token included
  std::optional<double> bleu;  // where it was asked for
  std::string signature;       // how `bleu` was computed
  bool abandoned = false;      // told to stop, on every rank: nothing was found, and a run that goes on does it again
};

/// How training goes, every `training.log_every` steps: means over the steps since the last one.
struct ProgressReport {
  int64_t step = 0, epoch = 0;       // the first step is 1, the first epoch 0
  double loss = 0;                   // of an item
  std::optional<double> perplexity;  // of an item, where the loss has a likelihood
  double gradient_norm = 0;          // before clipping
  double rate = 0;                   // of the last step
  double tokens_per_second = 0;      // of items, validations and checkpoints left out
};

/// What training needs from outside: it knows neither decoding nor evaluation. `validate` and `log` are called on all
/// ranks, the others on rank 0 alone.
struct TrainerHooks {
  /// Judges the model (in evaluation mode) after `step`. Ranks may share the work through their communicator; what
  /// rank 0 returns counts.
  std::function<Validation(torch::nn::Module& model, int64_t step)> validate = {};
  /// What validations depend on besides the model, its text say. A run that goes on with something else begins anew to
  /// look for its best. Empty: not told.
  std::string judged_by = {};
  /// Set by a signal handler: finish the step, write a checkpoint and return.
  const std::atomic<bool>* stop = nullptr;
  /// A checkpoint is written.
  std::function<void()> checkpointed = {};
  /// Every `training.log_every` steps.
  std::function<void(const ProgressReport& report)> progressed = {};
  /// Lines for a person: progress, validations, checkpoints.
  Log log = {};
};

/// What a run was, and how it ended.
struct TrainingSummary {
  /// What ended it.
  enum class End {
    steps,        // training.steps were done
    time,         // training.max_minutes were over
    patience,     // no new best for training.patience validations
    interruption  // a signal
  };
  End end = End::steps;        // why there are no more steps
  int64_t steps = 0;           // that were taken, earlier parts of a resumed run included, as in what follows
  int64_t source_tokens = 0;   // trained on
  int64_t target_tokens = 0;   // trained on, ends counted
  double flops = 0;            // of matrix products, as architecture/cost.h counts them
  double seconds = 0;          // of training, validations included, earlier parts of a resumed run too
  double process_seconds = 0;  // the same of all processes together, however many each part had
};

/// The training loop of §5: batches, gradients accumulated to the token budget, Adam at the scheduled rate,
/// validations, checkpoints. Batches, loss, optimizer and schedule are the task's.
///
/// Batches, dropout and everything else random follow from the seed, and dropout from the micro-batch alone; a run that
/// goes on from a checkpoint continues as if it had never stopped.
///
/// A step's micro-batches are shared out over the communicator's processes, and its gradient is that of them all: with
/// micro-batches of one size, any number of processes computes the same steps, up to the order of summation. All ranks
/// make the same calls. Rank 0 writes metrics and checkpoints, in a folder that all ranks can read.
class Trainer {
 public:
  /// `communicator` must outlive this. `run` is the run's folder; `files` go into every checkpoint beside the weights.
  /// Of `settings`, those that the task stands for (schedule, smoothing, sampling, recompute) are not looked at. Where
  /// `run` is there already, this is the folder that resume() and run() work in (ClaimedFolder). Throws
  /// std::invalid_argument for a task that lacks something, Error for settings out of their ranges or that contradict
  /// each other or the task, and where two ranks would use one GPU; Failure where the device, or the memory for the
  /// model, cannot be had.
  Trainer(Communicator& communicator, TrainingTask task, const TrainingSettings& settings, std::filesystem::path run,
          ModelFiles files = {}, TrainerHooks hooks = {});

  /// Goes on from the newest checkpoint that is whole; returns it. Throws Error when none is, and on every rank where
  /// one does not see the checkpoint that rank 0 goes on from, Failure where one cannot be read (read_kept) or
  /// the folder is not at its path any more.
  std::filesystem::path resume();

  /// Trains until steps, minutes or patience are used up, or the stop flag is set, and leaves a checkpoint of the last
  /// step. Makes the run's folder where it is missing and is alone in it. Throws Error before anything is done where
  /// the folder holds checkpoints and resume() was not called, where another run works in it, or where ranks differ in
  /// settings, hooks or step. Throws Failure when memory runs out, a file cannot be written, the folder is not at its
  /// path any more (ClaimedFolder), batches have no items, a rate is not finite, or training diverges: loss, gradient
  /// or a validation's perplexity or BLEU is not finite, or a checkpoint's weights would not be, or would give no
  /// finite loss. Checkpoints stay as they are, and none is written of such a state. On a CPU a gradient that is not
  /// finite is found before it changes a weight; a GPU skips its update, and it is found with the next figures that are
  /// fetched. The next `profile_steps` steps after the first are written as a Chrome trace to `run`/`trace_name`. With
  /// training.deterministic an operation that has no version of one outcome throws LibTorch's c10::Error. Where
  /// training.threads is 0, LibTorch's threads stay as many as the program has, but group_cores() at most where
  /// OMP_NUM_THREADS gives none (given_threads).
  TrainingSummary run(int64_t profile_steps = 0);

  /// Adds the validation of the final model to the log and to the metrics, on rank 0. Throws Failure where it is not
  /// finite.
  void record_final(const Validation& validation);

  /// On rank 0: deletes what checkpoints need not be kept any more behind one of `kind`, as run() does behind each that
  /// it writes, for where it had none to write: whoever wrote the last one may have been killed before. What cannot be
  /// deleted stays, with a warning.
  void prune(CheckpointKind kind = CheckpointKind::scheduled) const;

  /// On rank 0: checkpoints that the final model is to be averaged from, newest or best first.
  std::vector<std::filesystem::path> final_checkpoints() const;

 private:
  /// Of a step.
  struct StepSums {
    // [3] float64, on the device: loss and negative log-likelihood, of this rank or of all, and the joint norm of the
    // step's gradients, as rank 0 computed it, before clipping.
    at::Tensor figures;
    int64_t items = 0;  // of all ranks
    at::Tensor norm() const { return figures[2].to(at::kFloat); }
  };
  /// A step's micro-batches that are this rank's, and what all ranks know of the step.
  struct Drawn {
    /// One of them.
    struct Mine {
      int64_t number;     // among the step's
      DeviceBatch batch;  // on its way to the device
    };
    std::vector<Mine> mine;
    BatchPosition position;  // after them
    int64_t items = 0;       // the following of this rank, then of all
    int64_t source_tokens = 0, target_tokens = 0;
    double flops = 0;
    double rate = 0;  // rank 0's
  };
  /// What a clock or a signal asks of a rank, or of any.
  struct Wishes {
    bool end = false;         // the time is used up
    bool stop = false;        // a signal came
    bool checkpoint = false;  // it is time for one
  };
  TrainingState state();
  BatchPosition position() const;
  /// Tokens of a micro-batch.
  int64_t tokens_at_once() const;
  int64_t micro_batches() const;
  /// All ranks, before anything is done: makes the folder and takes hold of it.
  void claim_folder();
  /// Settles `training.micro_batch: auto`. All ranks.
  void find_micro_batch();
  void check_room_for_pairs() const;
  LossSums forward(DeviceBatch& batch);
  /// How its micro-batches are shared out.
  BatchSource::Plan plan() const;
  /// The next step's micro-batches; the run's position stays before them until they are computed.
  Drawn draw();
  Wishes wishes() const;
  /// Whether it is time for a checkpoint that counts (counted_checkpoints).
  bool clock_asks() const;
  /// All ranks: sums `drawn` and the wishes over them, and takes rank 0's rate, in one exchange between hosts.
  void agree(Drawn& drawn, Wishes& wishes);
  /// Throws Failure where the task's own parts gave what no step can be made of.
  void check(const Drawn& drawn) const;
  StepSums step(Drawn& drawn);
  StepSums accumulate_gradients(Drawn& drawn);
  /// All ranks, in the beginning of `run`: the folder, the size of micro-batches, the source, where gradients are
  /// summed.
  void prepare();
  /// Steps since the last line of progress: none yet; one more.
  void begin_window();
  void add_to_window(const StepSums& sums);
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
  /// For who watches, between lines of the log; `detail` is what is being done besides.
  void show_progress(const std::string& detail) const;
  /// Whether the model is now among the best that are kept.
  bool validate();
  bool rank_validation(const Validation& validation, double seconds);
  void record(const char* kind, const Validation& validation);
  /// Throws Failure where the folder that they are of is not at its path any more (ClaimedFolder).
  Metrics& metrics();
  /// `for_validation`: nothing but a validation asks for it.
  void checkpoint(CheckpointKind kind, bool for_validation = false);
  double elapsed() const;
  void note_time();

  Communicator& communicator_;
  TrainingTask task_;
  TrainingSettings settings_;
  std::filesystem::path run_;
  ModelFiles files_;
  TrainerHooks hooks_;
  torch::Device device_;
  DeviceTransfer transfer_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<MovingAverage> average_;
  Progress progress_;
  std::optional<FileLock> lock_;          // of rank 0
  std::optional<ClaimedFolder> claimed_;  // there, too
  std::optional<DistributedDataParallel> parallel_;
  std::optional<Metrics> metrics_;
  // Since the last line of progress: [4], the sums of StepSums::figures and the largest norm.
  at::Tensor window_;
  int64_t fetched_step_ = 0;               // up to which the window is known to be finite
  std::optional<DeviceBatch> last_batch_;  // of this rank's micro-batches
  bool has_likelihood_ = true;             // as far as is known
  std::string figures_;                    // of the latest line of progress, in short
  double started_ = 0, seconds_before_ = 0, process_seconds_before_ = 0, last_checkpoint_ = 0;
  int64_t last_checkpoint_step_ = -1;
  CheckpointKind last_checkpoint_kind_ = CheckpointKind::scheduled;
  std::optional<int64_t> of_the_end_;  // step of the checkpoint that was gone on from, where it was not due
};

}  // namespace transformer
