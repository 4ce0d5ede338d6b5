#include "transformer/sweep/slurm.h"

#include <csignal>
#include <cstdlib>

#include "support.h"
#include "sweep_support.h"

using namespace transformer;
using namespace transformer::test;

namespace {

Plan toy_plan(const std::filesystem::path& directory, const std::string& more = "",
              const std::string& grid = "grid.yaml") {
  write_file(directory / "base.yaml", "model: {heads: 4}\n" + more);
  write_file(directory / grid, "base: base.yaml\nrows: [{name: a, seeds: [1, 2]}, {name: b=3}]\n");
  PlanOptions options;
  options.output = directory / "out";
  auto plan = make_plan(read_grid(directory / grid, {"model", "training", "data"}), options, toy_reader());
  std::filesystem::create_directories(plan.grid.output);
  return plan;
}

// PATH with a program `sbatch` in it.
struct Path {
  std::string before = std::getenv("PATH");
  explicit Path(const std::string& path) { setenv("PATH", path.c_str(), 1); }
  ~Path() { setenv("PATH", before.c_str(), 1); }
};

}  // namespace

TEST_CASE("every task of the job array trains one run") {
  const TemporaryDirectory directory;
  const auto plan = toy_plan(directory.path());
  // Instead of a sweep: a program that writes down its arguments.
  write_program(directory / "it's a sweep", "#!/bin/sh\necho \"$PWD: $@\" >>done.txt\n");
  const SlurmOptions options{.command = {(directory / "it's a sweep").string(), "grid.yaml", "--set", "a=[x, 'y']"},
                             .folder = directory.path(),
                             .at_once = 2,
                             .options = {"--partition=gpu"}};
  const auto script = slurm_script(plan, plan.runs_of({}), options);
  CHECK_THAT(script, Contains("#SBATCH --array=0-2%2\n") && Contains("#SBATCH --partition=gpu\n") &&
                         Contains("#SBATCH --signal=B:TERM@120\n") && !Contains("--gres"));
  write_program(directory / "script", script);
  for (int task = 0; task < 3; ++task) {
    const auto command = fmt::format("SLURM_ARRAY_TASK_ID={} bash '{}'", task, (directory / "script").string());
    REQUIRE(std::system(command.c_str()) == 0);
  }
  const auto line = [&](const std::string& run) {
    return fmt::format("{}: grid.yaml --set a=[x, 'y'] --run {}\n", directory.path().string(), run);
  };
  CHECK(read_file(directory / "done.txt") == line("a/seed-1") + line("b=3/seed-1") + line("a/seed-2"));
  CHECK_THAT(slurm_script(plan, {1}, {.command = {"sweep"}, .folder = "/", .at_once = 0, .options = {}}),
             Contains("#SBATCH --array=0-0\n") && Contains("  'b=3/seed-1'\n") && !Contains("a/seed-1"));
}

namespace {

// What sbatch makes of a directive: quotes and backslashes taken away, patterns of file names replaced.
std::string sbatch_reads(const std::string& script, const std::string& option) {
  const size_t begin = script.find("#SBATCH " + option + "=");
  REQUIRE(begin != std::string::npos);
  std::string value;
  bool quoted = false;
  for (size_t i = begin + 9 + option.size(); script[i] != '\n' && (quoted || script[i] != ' '); ++i) {
    if (script[i] == '"') {
      quoted = !quoted;
    } else if (script[i] == '\\') {
      value += script[++i];
    } else if (script[i] == '%') {
      const char pattern = script[++i];
      value += pattern == 'A' ? "4711" : pattern == 'a' ? "0" : std::string(1, pattern);
    } else {
      value += script[i];
    }
  }
  return value;
}

}  // namespace

TEST_CASE("the job array survives every path that Slurm can have") {
  const TemporaryDirectory directory;
  for (const std::string name :
       {"with spaces", "it's", "say \"hi\"", "$(touch broken) $HOME `date`", "%A 100 %", "#x;&|*"}) {
    INFO(name);
    const auto folder = directory / name;
    std::filesystem::create_directory(folder);
    write_program(folder / "the sweep", "#!/bin/sh\nfor word in \"$PWD\" \"$@\"; do echo \"$word\"; done >>done.txt\n");
    const auto plan = toy_plan(folder, "", name + ".yaml");
    const SlurmOptions options{
        .command = {(folder / "the sweep").string(), plan.grid.file.string(), "--set", name + "\n2"},
        .folder = folder,
        .at_once = 0,
        .options = {}};
    const auto script = slurm_script(plan, plan.runs_of({}), options);
    CHECK(sbatch_reads(script, "--output") == (folder / "out" / "slurm-4711_0.log").string());
    CHECK(sbatch_reads(script, "--job-name").find_first_of(" '\"$%#") == std::string::npos);
    write_program(directory / "script", script);
    const auto command = fmt::format("SLURM_ARRAY_TASK_ID=1 bash '{}'", (directory / "script").string());
    REQUIRE(std::system(command.c_str()) == 0);
    CHECK(read_file(folder / "done.txt") ==
          fmt::format("{}\n{}\n--set\n{}\n2\n--run\nb=3/seed-1\n", folder.string(), plan.grid.file.string(), name));
  }
  CHECK_FALSE(std::filesystem::exists("broken"));
}

TEST_CASE("what Slurm's directives cannot hold is refused, and a comment stays one") {
  const TemporaryDirectory directory;
  const SlurmOptions options{.command = {"sweep"}, .folder = "/", .at_once = 0, .options = {}};
  for (const std::string name : {"two\nlines", "back\\slash", "\033[2J"}) {
    std::filesystem::create_directory(directory / name);
    auto plan = toy_plan(directory / name);
    CHECK_THROWS_WITH(slurm_script(plan, {0}, options),
                      Contains("--output") && Contains("choose a folder") && !Contains("\n") && !Contains("\033"));
    // The grid may lie there all the same.
    plan.grid.output = directory / "out";
    const auto script = slurm_script(plan, {0}, options);
    CHECK(script.find("\nlines") == std::string::npos);
    CHECK(script.find('\033') == std::string::npos);
  }
  CHECK_THROWS_WITH(slurm_script(toy_plan(directory.path()), {0},
                                 {.command = {"sweep"}, .folder = "/", .at_once = 0, .options = {"--mem=1\nrm -rf /"}}),
                    Contains("--sbatch-option") && Contains("is not one line"));
}

TEST_CASE("a configuration for GPUs asks for one a task") {
  const TemporaryDirectory directory;
  const auto plan = toy_plan(directory.path(), "training: {device: cuda}\n");
  CHECK_THAT(slurm_script(plan, {0}, {.command = {"sweep"}, .folder = "/", .at_once = 0, .options = {}}),
             Contains("#SBATCH --gres=gpu:1\n"));
}

TEST_CASE("a GPU is asked for where any of the runs computes on one") {
  const TemporaryDirectory directory;
  auto plan = toy_plan(directory.path());
  const SlurmOptions options{.command = {"sweep"}, .folder = "/", .at_once = 0, .options = {}};
  plan.runs[1].configuration.values["training.device"] = "cuda";
  CHECK_THAT(slurm_script(plan, {0, 1}, options), Contains("#SBATCH --gres=gpu:1\n"));
  CHECK_THAT(slurm_script(plan, {0, 2}, options), !Contains("--gres"));
}

TEST_CASE("sbatch is told of the script, and its answer is read") {
  const TemporaryDirectory directory;
  write_file(directory / "job", "#!/bin/bash\n");
  {
    const Path path(directory.path().string());
    CHECK_THROWS_WITH(submit(directory / "job"), Contains("no program 'sbatch'") && Contains("job"));
  }
  write_program(directory / "sbatch",
                "#!/bin/bash\n[[ \"$1 $2\" == \"--parsable $(dirname $0)/job\" ]] && echo '4711;cluster'\n");
  const Path path(directory.path().string() + ":" + std::getenv("PATH"));
  CHECK(submit(directory / "job") == "4711");
  const auto before = signal(SIGCHLD, SIG_IGN);  // as a parent may have left it
  CHECK(submit(directory / "job") == "4711");
  signal(SIGCHLD, before);
  // An administrator may have it say anything, before and behind.
  const auto answers = [&](const std::string& text) {
    write_file(directory / "text", text);
    write_program(directory / "sbatch", fmt::format("#!/bin/bash\ncat '{}' >&2\n", (directory / "text").string()));
    std::vector<std::string> said;
    const auto job = submit(directory / "job", Log([&](LogLevel, const std::string& line) { said.push_back(line); }));
    return fmt::format("{} ({})", job, fmt::join(said, ", "));
  };
  CHECK(answers("4712\n") == "4712 ()");
  CHECK(answers("sbatch: Verify job submission ...\n\n12:30 is lunch; eat\n4713;cluster\n1 GPU is down\n") ==
        "4713 (sbatch says: sbatch: Verify job submission ..., sbatch says: 12:30 is lunch; eat, "
        "sbatch says: 1 GPU is down)");
  for (const std::string text : {"", "sbatch: Verify job submission ...\n"}) {
    CHECK_THROWS_AS(answers(text), Failure);
    CHECK_THROWS_WITH(answers(text),
                      Contains("sbatch: ended well, but without a job's number: '" + text.substr(0, 6)) &&
                          Contains("; squeue tells") && Contains("job"));
  }
  write_program(directory / "sbatch", "#!/bin/bash\necho 'sbatch: error: invalid partition' >&2; exit 1\n");
  CHECK_THROWS_WITH(submit(directory / "job"), Contains("ended with status 1") && Contains("invalid partition"));
  CHECK_FALSE(std::filesystem::exists(directory / "job.answer"));
}
