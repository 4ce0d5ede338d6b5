#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "transformer/base/run_files.h"
#include "transformer/training/event_file.h"

namespace transformer {

/// A run's figures: a line of JSON each report in metrics.jsonl, after a header with the format's version, and the same
/// numbers for TensorBoard beside it.
class Metrics {
 public:
  /// What a figure is: a count, a measure, or words.
  using Value = std::variant<int64_t, double, std::string>;
  /// Figures by name, in the order in which they are written.
  using Values = std::vector<std::pair<std::string, Value>>;

  /// Cuts metrics.jsonl in folder `run` to `bytes`, its length at the checkpoint that the run goes on from, and appends
  /// there; a file that is shorter, or that somebody removed, is gone on with as it is. `first_step` is the first that
  /// will be trained: TensorBoard forgets what it was told of it, of later ones, and by the lines that are cut. Throws
  /// Failure when the files cannot be read or written.
  Metrics(const std::filesystem::path& run, int64_t bytes, int64_t first_step);

  /// Throws Failure naming the file when it cannot be written.
  void record(const std::string& kind, int64_t step, const Values& values);

  /// Makes what is written durable, as a checkpoint that counts it is. Throws Failure.
  void sync() const;

  /// Length of metrics.jsonl.
  int64_t bytes() const { return bytes_; }

 private:
  Metrics(const std::filesystem::path& run, int64_t bytes, int64_t first_step, int64_t first_revoked);
  void append(const std::string& line);

  std::filesystem::path file_;
  int64_t bytes_;
  EventFile events_;
};

}  // namespace transformer
