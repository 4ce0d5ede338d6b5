#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/base/error.h"
#include "transformer/base/log.h"
#include "transformer/model/tensors.h"
#include "transformer/model/transformer.h"
#include "transformer/training/moving_average.h"
#include "transformer/training/optimizer.h"

namespace transformer {

/// A validation worth remembering.
struct BestValidation {
  int64_t step = 0;  // that it followed
  double value = 0;  // of the criterion, training.best_by
};

/// Where a run stands, besides weights and optimizer. Random numbers need no state: they follow from the seed, the step
/// and the micro-batch.
struct Progress {
  int64_t step = 0;                    // steps done
  int64_t epoch = 0;                   // pass over the data
  int64_t batch = 0;                   // micro-batches of it that are done
  int64_t batch_tokens = 0;            // what those hold at most (BatchPosition::tokens)
  std::string batch_state;             // what else the source of batches needs (BatchPosition)
  int64_t of_the_end = 0;              // the step of a checkpoint that was not due, but that the run ended there
  int64_t micro_batch_tokens = 0;      // found out by training.micro_batch: auto; 0: not
  std::string micro_batch_costs;       // settings that their memory depends on, as they were; empty: not told
  int64_t source_tokens = 0;           // trained on so far
  int64_t target_tokens = 0;           // the same of the target
  double flops = 0;                    // counted so far
  double seconds = 0;                  // spent so far
  double process_seconds = 0;          // the same of all processes together
  int64_t metrics_bytes = 0;           // length of metrics.jsonl
  std::vector<BestValidation> best;    // of validations so far, the best first
  int64_t validations_since_best = 0;  // for training.patience
  int64_t for_validation = 0;  // 1: a checkpoint that is there for its validation alone: see counted_checkpoints
  int64_t validation_due = 0;  // 1: stopped while the model of this step was validated, which is done again
  std::string judged_by;       // what they depended on (TrainerHooks); empty: not told
  std::string products;        // how factors were rounded: "float32" or "bf16"
  // Sums since the last line of progress.
  double window_loss = 0;           // of items
  double window_nll = 0;            // negative log-likelihood, in nats
  int64_t window_tokens = 0;        // items
  double window_gradient_norm = 0;  // before clipping
  double window_largest_norm = 0;   // no sum
  int64_t window_steps = 0;         // steps
};

/// What a model directory has besides the weights.
struct ModelFiles {
  std::vector<std::pair<std::string, std::string>> contents;  ///< config.yaml and vocabularies, as (name, content)
  std::map<std::string, std::string> provenance = {};         ///< what the weights say of where they came from
};

/// Those of them that `directory` has: config.yaml first. Throws Error where config.yaml or every vocabulary is
/// missing.
std::vector<std::string> model_file_names(const std::filesystem::path& directory);

/// Writes a model directory's files into `directory`, which is created: weights (converted to `type` where one is
/// given), `files`, and the checksums of all.
void write_model_directory(const std::filesystem::path& directory, const TensorMap& weights, const ModelFiles& files,
                           std::optional<torch::ScalarType> type = {});

/// What a checkpoint saves and restores.
struct TrainingState {
  torch::nn::Module& model;             // its parameters and buffers
  Optimizer& optimizer;                 // its moments
  MovingAverage* average = nullptr;     // where the run keeps one: its values are then the checkpoint's model
  Progress& progress;                   // where the run stands
  const ModelFiles* files = nullptr;    // whose names a checkpoint to be loaded has; null: a model directory's
  const TensorMap* gathered = nullptr;  // what Optimizer::gather_state gave, to be written; null: the optimizer's own
};

/// Why a checkpoint was written. One of an interruption is there to go on from; being off the schedule it is neither
/// averaged nor counted, and goes once a later one exists. Otherwise an interrupted run would end with another model.
enum class CheckpointKind {
  scheduled,    // due by steps or by the clock, or a validation among the best
  interruption  // the run was told to stop
};

/// Writes the checkpoint `run`/checkpoints/step-NNNNNNNN (or interrupted-step-NNNNNNNN): a model directory (with what
/// `files` holds of one) plus optimizer.safetensors and progress.json, every file's checksum beside them. It appears
/// whole, by renaming, or not at all; `before_named` is called when it is whole. Throws Failure when it cannot be
/// written (a full disk, no folder `run`); older checkpoints are untouched.
std::filesystem::path write_checkpoint(const std::filesystem::path& run, const TrainingState& state,
                                       const ModelFiles& files, CheckpointKind kind = CheckpointKind::scheduled,
                                       const std::function<void()>& before_named = {});

/// Makes a scheduled checkpoint one of an interruption, where it is none already, in the place of an older one of its
/// step; where that has entries of somebody's, it stays. Throws Failure when it cannot be renamed.
void make_interruption(const std::filesystem::path& checkpoint);

/// Whether all is there that a checkpoint consists of, whatever it holds.
bool looks_whole(const std::filesystem::path& checkpoint);

/// Whether any file of a checkpoint's is in `folder`: one of somebody's may be named like a checkpoint.
bool holds_checkpoint(const std::filesystem::path& folder);
/// What somebody keeps in a checkpoint's folder: all but the files that checkpoints consist of, and those that this
/// one's checksums list.
std::vector<std::filesystem::path> strange_entries_of(const std::filesystem::path& checkpoint);
/// Deletes a checkpoint, but for such entries: with them its folder stays, and is no checkpoint any more.
void remove_checkpoint(const std::filesystem::path& checkpoint);

/// Scheduled checkpoints of a run, oldest first. A folder named so that holds no file of a checkpoint's is none.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run);

/// Those of them that count as a run's last ones, the last `most` of them, oldest first: the newest, and all that were
/// not written for their validation alone. How many of the best are kept, then, is nothing to an average of the last.
/// Older ones are not looked at. Throws Failure where one does not let it be read which it is (damage_found).
std::vector<std::filesystem::path> counted_checkpoints(const std::filesystem::path& run,
                                                       int64_t most = std::numeric_limits<int64_t>::max());

/// All checkpoints that a run can go on from, newest first.
std::vector<std::filesystem::path> resumable_checkpoints(const std::filesystem::path& run);

/// Restores everything that write_checkpoint saved. Throws Error naming the file that is missing or damaged, before
/// anything in `state` has changed unless the damage is such that no checksum shows it.
void load_checkpoint(const std::filesystem::path& checkpoint, const TrainingState& state);

/// What is wrong with the files of a checkpoint, as the Error of read_kept(read) says it; else empty. Throws that
/// Failure, lest an older one be gone on from.
std::string damage_found(const std::function<void()>& read);

/// What to throw where a run has checkpoints and none can be gone on from; `newest` is what is wrong with the newest
/// one, as its error says it.
Error no_whole_checkpoint(const std::filesystem::path& run, const std::string& newest);

/// load_checkpoint from the newest checkpoint that is whole, and returns it. Damaged ones are reported in the log and
/// set aside under another name. Throws Error when none is whole, Failure where one cannot be read (damage_found).
std::filesystem::path load_newest_checkpoint(const std::filesystem::path& run, const TrainingState& state,
                                             const Log& log = {});

/// Deletes all scheduled checkpoints but the last `keep`, or the last one where that is less (counted_checkpoints), and
/// those of the steps `best`, interruptions' that were gone on from, and what a killed process left half written.
/// Throws as counted_checkpoints, before anything is deleted, and Failure where a file cannot be; those before it are
/// gone then.
void prune_checkpoints(const std::filesystem::path& run, int64_t keep, const std::set<int64_t>& best = {});

/// Deletes all but the newest `keep` of interruptions' checkpoints, and nothing else. Throws Failure as
/// prune_checkpoints.
void prune_interruptions(const std::filesystem::path& run, int64_t keep);

/// What a name in a run's folder checkpoints/ says.
struct CheckpointName {
  /// What is there under the name.
  enum class State {
    whole,    // as it was written
    partial,  // being written, or left half deleted by a killed process
    damaged   // set aside, because files were missing or had other bytes
  };

  State state = State::whole;                       // what it says of the folder
  CheckpointKind kind = CheckpointKind::scheduled;  // why it was written
  int64_t step = 0;                                 // that it was written after
};

/// Nothing for a name that no run gives: people keep copies of their own beside checkpoints.
std::optional<CheckpointName> parse_checkpoint_name(std::string_view name);

/// The step in the name of a checkpoint's folder, which may be a path; -1 where no checkpoint is named so.
int64_t checkpoint_step(const std::filesystem::path& checkpoint);

}  // namespace transformer
