#include "transformer/sweep/slurm.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <sstream>

#include "transformer/base/ascii.h"
#include "transformer/base/error.h"
#include "transformer/base/process.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace fs = std::filesystem;

namespace {

// A file's name in a directive: sbatch takes quotes and backslashes away, and then replaces what follows a '%'.
std::string output_directive(const fs::path& folder) {
  std::string quoted;
  for (const char character : folder.string()) {
    if (character == '"') quoted += '\\';
    if (character == '%') quoted += '%';
    quoted += character;
  }
  return fmt::format("--output=\"{}/slurm-%A_%a.log\"", quoted);
}

// For people, in squeue's columns.
std::string job_name(const std::string& grid) {
  std::string name = "sweep-";
  for (const char character : grid.substr(0, 60)) {
    const bool plain = is_ascii_alphanumeric(character) || character == '-' || character == '.';
    name += plain ? character : '_';
  }
  return name;
}

// Of a line that has one as `sbatch --parsable` prints it, NUMBER or NUMBER;CLUSTER; of others empty.
std::string job_number(const std::string& line) {
  const auto number = line.substr(0, line.find(';'));
  return number.find_first_not_of("0123456789") == std::string::npos ? number : "";
}

}  // namespace

std::string slurm_script(const Plan& plan, const std::vector<size_t>& runs, const SlurmOptions& options) {
  const auto output = fs::absolute(plan.grid.output).lexically_normal();
  // A backslash in a file's name tells Slurm to replace nothing in it, and all tasks would write one file.
  if (has_control_characters(output.string()) || output.string().find('\\') != std::string::npos) {
    throw Error("--output",
                fmt::format("{} has line ends, control characters or backslashes in its path, and Slurm's directives "
                            "cannot",
                            in_quotes(output.string())),
                "choose a folder without them");
  }
  for (const auto& option : options.options) {
    if (has_control_characters(option)) {
      throw Error("--sbatch-option", in_quotes(option) + " is not one line", "give every option a --sbatch-option");
    }
  }
  constexpr size_t longest_comment = 300;
  std::string script = fmt::format(
      "#!/bin/bash\n# {}: a task for each run.\n#SBATCH --job-name={}\n#SBATCH --array=0-{}{}\n"
      "#SBATCH {}\n#SBATCH --signal=B:TERM@120\n",
      printable(plan.grid.file.string(), longest_comment), job_name(plan.grid.file.stem().string()), runs.size() - 1,
      options.at_once > 0 ? fmt::format("%{}", options.at_once) : "", output_directive(output));
  if (std::any_of(runs.begin(), runs.end(), [&](size_t run) { return plan.runs[run].uses_gpu(); })) {
    script += "#SBATCH --gres=gpu:1\n";
  }
  for (const auto& option : options.options) script += fmt::format("#SBATCH {}\n", option);
  script += "\nruns=(\n";
  for (const size_t run : runs) script += fmt::format("  {}\n", shell_quoted(plan.runs[run].name));
  script += fmt::format(")\ncd {} || exit 1\nexec", shell_quoted(options.folder.string()));
  for (const auto& word : options.command) script += fmt::format(" {}", shell_quoted(word));
  script += " --run \"${runs[SLURM_ARRAY_TASK_ID]}\"\n";
  return script;
}

std::string submit(const fs::path& script, const Log& log) {
  auto answer_file = script;
  answer_file += ".answer";
  fs::remove(answer_file);
  const BlockedSignals children{SIGCHLD};  // whoever left it ignored would leave nobody to wait for
  const ProcessOptions process{.command = {"sbatch", "--parsable", script.string()},
                               .environment = {},
                               .log = answer_file,
                               .signals = children.before()};
  int status = 0;
  if (waitpid(start_process(process), &status, 0) < 0) throw Failure("sbatch", "cannot be waited for");
  auto answer = read_file(answer_file);
  fs::remove(answer_file);
  while (!answer.empty() && answer.back() == '\n') answer.pop_back();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    throw Error("--launcher slurm", "there is no program 'sbatch' here",
                fmt::format("hand in {} where there is one: sbatch {}", script.string(), script.string()));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Failure("sbatch", fmt::format("{}: {}", process_end(status), printable(answer, 1000)),
                  fmt::format("--sbatch-option passes options; the script is {}", script.string()));
  }
  std::string job, line;
  for (std::istringstream lines(answer); std::getline(lines, line);) {
    if (const auto number = job_number(line); !number.empty()) {
      job = number;
    } else if (!line.empty()) {
      log.info(fmt::format("sbatch says: {}", line));
    }
  }
  if (job.empty()) {
    throw Failure("sbatch", fmt::format("ended well, but without a job's number: {}", in_quotes(answer, 1000)),
                  fmt::format("squeue tells whether there is one; the script is {}", script.string()));
  }
  return job;
}

}  // namespace transformer
