#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "transformer/base/log.h"
#include "transformer/sweep/plan.h"

namespace transformer {

/// What a job array runs, and as what.
struct SlurmOptions {
  std::vector<std::string> command;  // the sweep, with what every task of the array needs; `--run NAME` is appended
  std::filesystem::path folder;      // that the command runs in: paths are relative to it
  size_t at_once = 0;                // tasks at a time; 0: as many as the cluster gives
  std::vector<std::string> options;  // for sbatch, as `#SBATCH` lines: "--partition=gpu"; stronger than those below
};

/// A job array with a task for each of `runs`: each trains one run with `command --run NAME`, which leaves its results
/// where a sweep on one machine would, and renews the report. Two minutes before its time is up a task gets SIGTERM,
/// and writes a checkpoint. Throws Error for a folder or an option that Slurm's directives cannot hold: line ends and
/// other control characters, and backslashes in the sweep's folder.
std::string slurm_script(const Plan& plan, const std::vector<size_t>& runs, const SlurmOptions& options);

/// Hands a script to sbatch and returns the job's number. What sbatch says beside it, as what an administrator has it
/// say, goes to `log`. Throws Error where there is no sbatch, Failure with what it said when it refuses or prints no
/// number.
std::string submit(const std::filesystem::path& script, const Log& log = {});

}  // namespace transformer
