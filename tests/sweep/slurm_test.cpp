#include "transformer/sweep/slurm.h"

#include <cstdlib>

#include "support.h"
#include "sweep_support.h"

using namespace transformer;
using namespace transformer::test;
using Catch::Matchers::Contains;

namespace {

Plan toy_plan(const TemporaryDirectory& directory, const std::string& more = "") {
  write_file(directory / "base.yaml", "model: {heads: 4}\n" + more);
  write_file(directory / "grid.yaml",
             fmt::format("base: base.yaml\noutput: {}\nrows: [{{name: a, seeds: [1, 2]}}, {{name: b}}]\n",
                         (directory / "out").string()));
  auto plan = make_plan(read_grid(directory / "grid.yaml", {"model", "training", "data"}), {}, toy_reader());
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
  const auto plan = toy_plan(directory);
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
  CHECK(read_file(directory / "done.txt") == line("a/seed-1") + line("b/seed-1") + line("a/seed-2"));
  CHECK_THAT(slurm_script(plan, {1}, {.command = {"sweep"}, .folder = "/", .at_once = 0, .options = {}}),
             Contains("#SBATCH --array=0-0\n") && Contains("  b/seed-1\n") && !Contains("a/seed-1"));
}

TEST_CASE("a configuration for GPUs asks for one a task") {
  const TemporaryDirectory directory;
  const auto plan = toy_plan(directory, "training: {device: cuda}\n");
  CHECK_THAT(slurm_script(plan, {0}, {.command = {"sweep"}, .folder = "/", .at_once = 0, .options = {}}),
             Contains("#SBATCH --gres=gpu:1\n"));
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
  write_program(directory / "sbatch", "#!/bin/bash\necho 'sbatch: error: invalid partition' >&2; exit 1\n");
  CHECK_THROWS_WITH(submit(directory / "job"), Contains("ended with status 1") && Contains("invalid partition"));
  CHECK_FALSE(std::filesystem::exists(directory / "job.answer"));
}
