#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transformer/base/log.h"
#include "transformer/base/process.h"
#include "transformer/sweep/plan.h"
#include "transformer/sweep/results.h"

namespace transformer {

/// With what runs are trained, and where.
struct RunnerOptions {
  std::string train;                           // the program
  std::vector<std::string> devices = {"cpu"};  // one for each run at a time: "cpu", "cuda:1"; a GPU may occur twice
  double progress_seconds = 30;                // between lines of progress, where none is shown in between
  double kill_seconds = 30;  // that runs may take to end after a signal's second wish, or once the sweep failed
  Log log = {};              // runs' starts and ends, and how far all are
};

/// What became of the chosen runs.
struct RunnerEnd {
  int64_t finished = 0, failed = 0;  // of the chosen runs; those that were finished before count, too
  int signal = 0;                    // what ended it early; 0: nothing did
};

/// Trains the `chosen` runs of `plan`, as many at a time as there are devices, each in a process of its own: `train
/// BASE --set ..`, whose output goes to the run's log. `results` holds what is known of all runs and is kept up to
/// date; `changed` is called after each change of a run's state, or, where it takes long, after several, so that the
/// last ones may be left for who called this. Runs that are finished are left alone, interrupted ones go on by
/// themselves, and one that fails, or cannot be started, stops nobody. Nor does one that another process trains: it is
/// `running`, and left to that. The base must be as it was when `plan` was made.
///
/// On a CPU the processes that there are at a time share the cores (OMP_NUM_THREADS, unless the environment has it); a
/// GPU is handed over in CUDA_VISIBLE_DEVICES. A run without a vocabulary is given that of a run that has learned one
/// from the same text with the same settings.
///
/// SIGINT, SIGTERM and SIGHUP, which `signals` holds, are passed on to the processes and end every wait, and nothing is
/// started any more; a second wish (SignalWishes) leaves them kill_seconds. SIGTSTP, which it may hold, stops them and
/// this process until it is continued (signal_processes).
/// They die with this process when it is killed. Throws what `changed` throws, once the processes have ended: they are
/// given SIGTERM first, and time to write checkpoints.
RunnerEnd run_all(const Plan& plan, const std::vector<size_t>& chosen, std::vector<SweepRun>& results,
                  const RunnerOptions& options, const BlockedSignals& signals, const ReadConfiguration& read,
                  const std::function<void()>& changed);

/// `file` as programs take it for a file, whatever it begins with: "./-x" for "-x".
std::string as_operand(const std::filesystem::path& file);

/// The command that trains a run.
std::vector<std::string> train_command(const Plan& plan, const PlannedRun& run, const std::string& train);

/// Gives `run` the vocabulary that another has learned from the same text with the same settings, if it has none. One
/// that the user put there stays.
void share_vocabulary(const Plan& plan, const PlannedRun& run, const ReadConfiguration& read);

/// What hands a device to a process: {"CUDA_VISIBLE_DEVICES": "3"} for "cuda:1" where `visible` (the variable's value
/// here, empty for none) is "2,3". Throws Error for a GPU beyond those.
std::map<std::string, std::string> device_environment(const std::string& device, const std::string& visible);

}  // namespace transformer
