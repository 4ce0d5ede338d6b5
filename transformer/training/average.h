#pragma once

#include <filesystem>
#include <vector>

#include "transformer/model/tensors.h"

namespace transformer {

/// The mean of the weights of several model directories (§6.1), summed in float64, as float32. Throws Error naming the
/// directory whose weights are missing, damaged (where it lists checksums), of other settings, or of other names or
/// shapes than the first's, and where there is no directory.
TensorMap average_weights(const std::vector<std::filesystem::path>& directories);

/// What `average` is told.
struct AverageOptions {
  std::vector<std::filesystem::path> inputs;  // model directories, or a single run
  int64_t last = 0;                           // of a run: its newest checkpoints; 0: `inputs` are averaged themselves
  std::filesystem::path output;               // the model directory that is made
  bool bf16 = false;                          // type of the written weights; float32 otherwise
};

/// Writes the mean of several models as a model directory with the first one's settings and vocabularies, and returns
/// the directories averaged. Throws Error where they do not fit together (weights, vocabularies), where a run has fewer
/// than `last` checkpoints, where there is nothing to average, or where `output` holds another file of a name that
/// would be written; Failure where one cannot be read or written.
std::vector<std::filesystem::path> write_average(const AverageOptions& options);

}  // namespace transformer
