#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace transformer {

/// What a run said of itself at a step. What it did not say is absent; what it said is not finite, as of a run that
/// diverged, is NaN, but for seconds and target_tokens, which are absent then, too.
struct RunPoint {
  int64_t step = 0;                     // the first is 1
  std::optional<double> seconds;        // of training so far
  std::optional<double> loss;           // nats a target token; in training against smoothed targets
  std::optional<double> perplexity;     // per word piece
  std::optional<double> bleu;           // of a validation
  size_t bleu_kind = 0;                 // which of RunLog::bleu_signatures that is
  std::optional<double> rate;           // of learning
  std::optional<double> gradient_norm;  // mean since the last report, before gradients are clipped
  std::optional<double> largest_norm;   // the largest since then
  std::optional<double> target_tokens;  // trained on so far
  std::optional<double> speed;          // target tokens a second since the last report
  std::optional<double> memory;         // bytes of the process
};

/// A run as its folder tells it.
struct RunLog {
  std::string name;                          // how the reader calls it
  std::vector<RunPoint> training;            // in the file's order; of a very long run every second, fourth, ...
  std::vector<RunPoint> validation;          // of the models that were validated, in the file's order
  std::optional<RunPoint> final_model;       // of the model that the run ended with
  std::vector<std::string> bleu_signatures;  // which BLEU it was: each once, several where that changed
  bool finished = false;                     // it has left its model
  std::optional<int64_t> steps;              // that it is to take
  std::optional<int64_t> parameters;         // of a finished run
  std::string vocabulary;         // checksum of the word pieces that it writes; empty where they are not there
  std::string validated_on;       // checksum of the validation text's lines; empty where they cannot be read
  std::filesystem::path metrics;  // the file of its figures
  int64_t damaged_lines = 0;      // of that file, which were left out
  int64_t first_damaged = 0;      // of them, counted from 1; 0: none
};

/// Most training reports that are kept of a run; of more, every second goes, and leaves its largest_norm and memory to
/// the one before it where they are greater. As many validations: of more, every second goes but for the last, the
/// least and the greatest perplexity, and the least and the greatest BLEU of the last kind.
inline constexpr size_t most_run_points = 1 << 16;

/// What metrics.jsonl in a run's folder says: `metrics` and what it holds, nothing else of a RunLog. Throws as
/// read_run_log.
RunLog read_metrics(const std::filesystem::path& folder);

/// Reads metrics.jsonl, and summary.json and config.yaml as far as they are there, while a run writes them or
/// afterwards. A whole line that is no record (JSON's objects), or longer than most_line_bytes, is left out and
/// counted; one that is not whole yet is left out. Throws Error where `folder` is none of a run, of a later version, or
/// has whole lines in metrics.jsonl and no record, and where that is no file; Failure where one of the three is there
/// and cannot be read.
RunLog read_run_log(const std::filesystem::path& folder, const std::string& name);

/// The text of summary.json in a run's folder, what it says at its end; empty where there is no such file. Throws
/// Failure where it cannot be read: a run that has ended would pass for one that has not.
std::string summary_text(const std::filesystem::path& folder);

/// The newest translations of its validation text that the run wrote, the final model's before those of a step, of
/// which the greatest's; empty where it wrote none.
std::filesystem::path newest_validation(const std::filesystem::path& folder);

/// The files of a validation text that the run's config.yaml names: data.validation_source and validation_target.
struct ValidationText {
  std::vector<std::string> source, target;  // one of each belongs to one of the other
};
/// Of a run's folder; no files where its config.yaml names none, or is damaged. Throws Failure where it cannot be read.
ValidationText validation_text(const std::filesystem::path& folder);

}  // namespace transformer
