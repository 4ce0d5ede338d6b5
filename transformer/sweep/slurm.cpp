#include "transformer/sweep/slurm.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include "transformer/base/error.h"
#include "transformer/base/process.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace fs = std::filesystem;

std::string slurm_script(const Plan& plan, const std::vector<size_t>& runs, const SlurmOptions& options) {
  const auto output = fs::absolute(plan.grid.output).lexically_normal();
  std::string script = fmt::format(
      "#!/bin/bash\n# {}: a task for each run.\n#SBATCH --job-name=sweep-{}\n#SBATCH --array=0-{}{}\n"
      "#SBATCH --output=\"{}/slurm-%A_%a.log\"\n#SBATCH --signal=B:TERM@120\n",
      plan.grid.file.string(), plan.grid.file.stem().string(), runs.size() - 1,
      options.at_once > 0 ? fmt::format("%{}", options.at_once) : "", output.string());
  const auto& values = plan.runs[runs.front()].configuration.values;
  const auto device = values.find("training.device");
  if (device != values.end() && device->second.starts_with("cuda")) script += "#SBATCH --gres=gpu:1\n";
  for (const auto& option : options.options) script += fmt::format("#SBATCH {}\n", option);
  script += "\nruns=(\n";
  for (const size_t run : runs) script += fmt::format("  {}\n", plan.runs[run].name);
  script += fmt::format(")\ncd {} || exit 1\nexec", shell_quoted(options.folder.string()));
  for (const auto& word : options.command) script += fmt::format(" {}", shell_quoted(word));
  script += " --run \"${runs[SLURM_ARRAY_TASK_ID]}\"\n";
  return script;
}

std::string submit(const fs::path& script) {
  auto answer_file = script;
  answer_file += ".answer";
  fs::remove(answer_file);
  ProcessOptions process{
      .command = {"sbatch", "--parsable", script.string()}, .environment = {}, .log = answer_file, .signals = {}};
  sigemptyset(&process.signals);
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
    throw Failure("sbatch", fmt::format("{}: {}", process_end(status), answer),
                  fmt::format("--sbatch-option passes options; the script is {}", script.string()));
  }
  return answer.substr(0, answer.find(';'));
}

}  // namespace transformer
