#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transformer/report/sweep_report.h"
#include "transformer/sweep/plan.h"

namespace transformer {

/// What a run's folder and log say of it: finished where it holds a summary of these settings; failed where its log
/// ends so; otherwise waiting, with how far it came as the reason. Damaged files count as missing; where its figures
/// cannot be read there is no curve, and the reason says why. Throws Failure where its settings, its summary or its log
/// is there and cannot be read: it would pass for a run that has not ended.
SweepRun read_result(const PlannedRun& run, const ReadConfiguration& read);

/// Which settings the run in the folder was begun with are others than those of `run`, and would give other figures:
/// "training.steps: 6 there, 8 now"; empty: none. Throws Error where they cannot be read.
std::string other_settings(const PlannedRun& run, const ReadConfiguration& read);

/// Whether a process trains `run` now, this one or another: it holds the run's log.
bool is_being_trained(const PlannedRun& run);

/// Why read_result does not say `finished` of a run whose process ended well: what is missing, damaged or of other
/// settings, by its file, and the way out. Throws Failure where its settings cannot be read.
std::string unfinished_reason(const PlannedRun& run, const ReadConfiguration& read);

/// Where a run that trains is.
struct RunProgress {
  int64_t step = 0;              // the last that was reported
  double tokens_per_second = 0;  // since the report before
};
/// The newest that metrics.jsonl says; nothing before its first line, and where it cannot be read.
std::optional<RunProgress> read_progress(const std::filesystem::path& folder);

/// A line in a run's log that the sweep writes: "sweep: 2017-06-12 17:57:34: TEXT". Throws Failure.
void note_in_log(const std::filesystem::path& log, const std::string& text);

/// Why the last attempt of a run failed, as its log tells; nothing where it did not end, or did not fail. Throws
/// Failure where the log cannot be read.
std::optional<std::string> read_failure(const std::filesystem::path& log);
/// Why a process failed whose output ends the log: its last word, or else `end`.
std::string failure_reason(const std::filesystem::path& log, const std::string& end);
/// The line that tells read_failure of it, noted in the log. Throws Failure.
void note_failure(const std::filesystem::path& log, const std::string& reason);

/// What the report shows. `results` are the plan's runs in order.
SweepReport make_report(const Plan& plan, const std::vector<SweepRun>& results);

/// The sweep's own files, recorded in sweep.json in its folder before they are made; what has such a name and is not
/// recorded is the user's. Names are relative to `folder`. Several processes may record theirs at the same time.
///
/// Users put vocabularies into runs' folders, too: the sweep's are those whose checksums are recorded. Older sweeps
/// recorded their names alone, and those of vocabularies that they never made; that says nothing.
class SweepFiles {
 public:
  /// Throws Error where sweep.json is not a sweep's record. A folder whose results.json is a sweep's, from before there
  /// was a record, counts as one in which all names are the sweep's.
  explicit SweepFiles(std::filesystem::path folder);

  /// Whether a file of this name, which is no vocabulary, is the sweep's.
  bool owns(const std::string& name) const;
  /// Throws Error where a file of the user's has one of the names; records them otherwise.
  void claim(const std::vector<std::string>& names);

  /// Throws Error where one of the files, with these checksums, was another one when a run of the sweep first read it:
  /// its results would stand beside those of other texts. Nothing binds while no run has begun.
  void check_inputs(const std::map<std::string, std::string>& checksums) const;
  /// The same, and records those that no run has read before.
  void claim_inputs(const std::map<std::string, std::string>& checksums);

  /// Makes a run's vocabulary, where nothing is. Throws Failure.
  void give_vocabulary(const std::string& name, const std::string& bytes);
  /// Deletes the file of this name if it is the vocabulary that was given, as it was given. Throws Failure.
  void take_back_vocabulary(const std::string& name) const;

 private:
  void load();
  void save() const;

  std::filesystem::path folder_;
  std::set<std::string> files_;
  std::map<std::string, std::string> vocabularies_, inputs_;  // checksums
  bool all_ = false;
};

/// Claims what a sweep of `plan` writes besides its runs' folders: the report, and the logs of the `chosen` runs.
void claim_files(const Plan& plan, const std::vector<size_t>& chosen);
/// Checksums of what the `chosen` runs read (RunConfiguration::inputs), by name; of what is no file, none. Throws
/// Failure.
std::map<std::string, std::string> input_checksums(const Plan& plan, const std::vector<size_t>& chosen);
/// Claims what handing in a job array writes.
void claim_job_array(const Plan& plan);

/// Writes report.md, report.html and results.json into the sweep's folder, each whole or not at all. Throws Failure.
void write_report(const Plan& plan, const std::vector<SweepRun>& results);

/// Reads all results and writes the report, one process at a time: for runs that several processes train. Throws
/// Failure where the report cannot be written, a run's result not be read (read_result), or this process is told to
/// stop while another writes it.
void renew_report(const Plan& plan, const ReadConfiguration& read);
/// The same for a process whose run has ended, unless another one waits already to write the report: that one finds
/// this run's result, too. Of however many that end at about the same time one writes, and one waits. What one that is
/// killed leaves out comes with the next report. Returns whether it was written.
bool renew_report_after_run(const Plan& plan, const ReadConfiguration& read);

/// results.json: {"format": 1, "title", "base", "base_row", "rows": [{"name", "group", "changes", "paper": {..},
/// "runs": [{"seed", "state", "reason", "folder", "perplexity", "bleu", "bleu_signature", "parameters", "seconds",
/// "flops", "steps", "ended_by", "averaged_checkpoints", "curve": [{"step", "target_tokens", "perplexity",
/// "bleu"}]}]}]}; what is not known is left out.
std::string results_json(const Plan& plan, const std::vector<SweepRun>& results);

}  // namespace transformer
