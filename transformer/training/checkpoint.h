#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "transformer/base/tensor_file.h"
#include "transformer/model/transformer.h"
#include "transformer/training/adam.h"

namespace transformer {

/// Where a run stands, besides weights, optimizer and random generators.
struct Progress {
  int64_t step = 0;           // steps done
  int64_t epoch = 0;          // pass over the data
  int64_t batch = 0;          // micro-batches of it that are done
  int64_t source_tokens = 0;  // trained on so far
  int64_t target_tokens = 0;
  double seconds = 0;          // spent so far
  int64_t metrics_bytes = 0;   // length of metrics.jsonl
  double best_perplexity = 0;  // of validations so far; 0: none yet
  int64_t best_step = 0;
  // Sums since the last line of progress.
  double window_loss = 0;
  double window_nll = 0;
  int64_t window_tokens = 0;
};

/// The files of a model directory besides the weights: config.yaml and vocabularies, as (name, content).
using ModelFiles = std::vector<std::pair<std::string, std::string>>;

/// Writes a model directory's files into `directory`, which is created: weights (converted to `type` where one is
/// given), then `files`.
void write_model_directory(const std::filesystem::path& directory, const TensorMap& weights, const ModelFiles& files,
                           std::optional<torch::ScalarType> type = {});

/// Writes the checkpoint `run`/checkpoints/step-NNNNNNNN: a model directory plus optimizer.safetensors (moments and
/// random generators) and progress.json. It appears whole, by renaming, or not at all. Throws Failure when it cannot
/// be written (a full disk); older checkpoints are untouched.
std::filesystem::path write_checkpoint(const std::filesystem::path& run, const Transformer& model, const Adam& adam,
                                       const Progress& progress, const ModelFiles& files);

/// Checkpoints of a run, oldest first.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run);

/// Restores everything that write_checkpoint saved, the random generators included.
Progress load_checkpoint(const std::filesystem::path& checkpoint, Transformer& model, Adam& adam);

/// Deletes all but the newest `keep` checkpoints, and what a killed process left half written.
void prune_checkpoints(const std::filesystem::path& run, int64_t keep);

/// The mean of the weights of several model directories (§6.1), summed in float64.
TensorMap average_weights(const std::vector<std::filesystem::path>& directories);

}  // namespace transformer
