#include <signal.h>
#include <spdlog/spdlog.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <string>

#include "apps/log.h"
#include "apps/number_option.h"
#include "recipe.h"
#include "torch_program.h"
#include "transformer/architecture/cost.h"
#include "transformer/architecture/parameter_count.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/file_lock.h"
#include "transformer/base/folder.h"
#include "transformer/base/process.h"
#include "transformer/base/run_files.h"
#include "transformer/base/unicode.h"
#include "transformer/model/device.h"
#include "transformer/sweep/runner.h"
#include "transformer/sweep/slurm.h"
#include "transformer/training/run_folder.h"

namespace {

using namespace transformer;
namespace fs = std::filesystem;

RunConfiguration configuration_of(const Recipe& recipe) {
  // Sentences of a length like real ones; what counts is how runs compare.
  constexpr int64_t length = 25;
  const auto& training = recipe.run.training;
  const BatchShape batch{.rows = std::max<int64_t>(1, training.batch_tokens / length),
                         .source_length = length,
                         .target_length = length,
                         .projected_tokens = 0};
  const auto flops = static_cast<double>(count_flops(recipe.run.model, batch).training());
  RunConfiguration configuration{recipe.settings.values(), flops * static_cast<double>(training.steps)};
  const auto& data = recipe.run.data;
  for (const auto* files :
       {&data.train_source, &data.train_target, &data.validation_source, &data.validation_target, &data.vocabulary}) {
    configuration.inputs.insert(configuration.inputs.end(), files->begin(), files->end());
  }
  if (!training.init_from.empty())
    configuration.inputs.push_back((fs::path(training.init_from) / weights_name).string());
  return configuration;
}

ReadConfiguration configuration_reader() {
  return {.plain =
              [](const fs::path& file) {
                Recipe recipe;
                recipe.settings.load(file);
                return recipe.settings.values();
              },
          .checked =
              [](const fs::path& file, const std::vector<std::vector<SettingOverride>>& layers) {
                Recipe recipe;
                recipe.settings.load(file);
                for (const auto& layer : layers) recipe.settings.override_with(layer);
                recipe.settle();
                check_settings(recipe.run);
                return configuration_of(recipe);
              }};
}

std::vector<std::string> section_names() {
  std::set<std::string> names;
  for (const auto& [name, value] : Recipe().settings.values()) names.insert(name.substr(0, name.find('.')));
  return {names.begin(), names.end()};
}

bool uses_gpu(const Plan& plan) {
  return std::any_of(plan.runs.begin(), plan.runs.end(), [](const PlannedRun& run) {
    return run.configuration.values.at("training.device").starts_with("cuda");
  });
}

// Where the runs of `plan` go, one after another or `jobs` at a time.
std::vector<std::string> devices_for(const Plan& plan, std::vector<std::string> devices, int jobs) {
  if (devices.empty() && uses_gpu(plan)) {
    open_device("cuda");
    for (int i = 0; i < torch::cuda::device_count(); ++i) devices.push_back("cuda:" + std::to_string(i));
  }
  if (devices.empty()) devices.push_back("cpu");
  const auto distinct = devices;
  if (jobs == 0) jobs = static_cast<int>(devices.size());
  devices.clear();
  for (int i = 0; i < jobs; ++i) devices.push_back(distinct[i % distinct.size()]);
  return devices;
}

// The one device that runs are told; which GPU of several that is comes from the environment they run in.
std::string device_setting(const std::vector<std::string>& devices) {
  std::set<std::string> kinds;
  for (const auto& device : devices) {
    const bool numbered = device.starts_with("cuda:") && device.size() > 5 &&
                          device.find_first_not_of("0123456789", 5) == std::string::npos;
    if (device != "cpu" && !numbered) {
      throw Error("--devices", "'" + device + "' is no device", "write cpu, or GPUs: cuda:0,cuda:1");
    }
    kinds.insert(device.substr(0, device.find(':')));
  }
  if (kinds.size() > 1) {
    throw Error("--devices", "names the CPU and GPUs", "a sweep that compares runs trains all on one kind");
  }
  return kinds.empty() ? "" : *kinds.begin();
}

void list_runs(const Plan& plan, const std::vector<size_t>& chosen, const std::string& train) {
  std::map<size_t, int64_t> parameters;  // of each row
  for (const size_t index : chosen) {
    const auto& run = plan.runs[index];
    const auto& row = plan.grid.rows[run.row];
    if (!parameters.contains(run.row)) {
      Recipe recipe;
      recipe.load(plan.grid.base, run.overrides);
      parameters[run.row] = parameter_count(recipe.run.model);
    }
    std::cout << run.name << ": " << parameters[run.row] << " parameters, " << run.steps() << " steps"
              << (row.changes.empty() ? "" : "; " + row.changes) << "\n ";
    for (const auto& word : train_command(plan, run, train)) std::cout << " " << shell_quoted(word);
    std::cout << "\n";
  }
}

// Whether finished runs are of these settings: with others they would fail, and the report forget what they came to.
void check_finished(const Plan& plan, const std::vector<size_t>& chosen) {
  for (const size_t index : chosen) {
    const auto& run = plan.runs[index];
    if (!something_at(run.folder / summary_name)) continue;
    Recipe recipe;
    recipe.load(plan.grid.base, run.overrides);
    try {
      RunFolder(run.folder, recipe.run.config, recipe.run.rules, {.look_only = true});
    } catch (const Error& mistake) {
      throw Error("run " + run.name, mistake.what());
    }
  }
}

// The files that runs read which have not begun, before the first of them does: of equal readings one. And whether the
// sweep's other runs have read the same.
void check_files(const Plan& plan, const std::vector<size_t>& chosen) {
  std::set<std::string> checked;
  for (const size_t index : chosen) {
    const auto& run = plan.runs[index];
    if (something_at(run.folder)) continue;
    Recipe recipe;
    recipe.load(plan.grid.base, run.overrides);
    const auto& data = recipe.run.data;
    const auto reading =
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}", fmt::join(data.train_source, "\t"), fmt::join(data.train_target, "\t"),
                    fmt::join(data.validation_source, "\t"), fmt::join(data.validation_target, "\t"),
                    fmt::join(data.vocabulary, "\t"), recipe.run.training.init_from);
    // A vocabulary and a model must be of the row's sizes, too.
    const bool fits = !data.vocabulary.empty() || !recipe.run.training.init_from.empty();
    if (!checked.insert(fits ? fmt::format("{}\n{}", reading, run.row) : reading).second) continue;
    try {
      check_inputs(recipe.run);
    } catch (const Error& mistake) {
      throw Error("row " + plan.grid.rows[run.row].name, mistake.what());
    }
  }
  auto unfinished = chosen;
  std::erase_if(unfinished, [&](size_t run) { return something_at(plan.runs[run].folder / summary_name); });
  SweepFiles(plan.grid.output).check_inputs(input_checksums(plan, unfinished));
}

}  // namespace

int main(int argc, char** argv) {
  return run_torch_program(argc, argv, [&](CLI::App& app, auto parse) {
    std::string grid_file, launcher = "local", run_name;
    std::string train = (fs::read_symlink("/proc/self/exe").parent_path() / "train").string();
    std::vector<std::string> overrides, only, devices, sbatch_options;
    PlanOptions plan_options;
    RunnerOptions options;
    int jobs = 0;
    bool dry_run = false, report_only = false;
    app.description(
        "Trains the rows of a grid (configs/sweeps/), each with its seeds, and reports them beside the paper's. "
        "Started "
        "again, it goes on where it was.");
    app.add_option("grid", grid_file, "The grid (YAML): a base configuration, and rows that differ from it")
        ->required()
        ->type_name("FILE");
    app.add_option("--output", plan_options.output, "The sweep's folder, in place of the grid's")->type_name("DIR");
    app.add_option("--only", only, "Rows to train: NAME,NAME")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("NAME");
    app.add_option("--seeds", plan_options.seeds, "Seeds of every row, in place of the grid's: 1,2,3")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("N")
        ->transform(number_between(uint64_t{0}, uint64_t{1} << 53));
    app.add_option("--set", overrides, "Override a setting in all rows: --set section.key=value (repeatable)")
        ->type_name("SECTION.KEY=VALUE")
        ->allow_extra_args(false);
    app.add_option("--jobs", jobs, "Runs at a time; otherwise 1, or one on each GPU")
        ->type_name("N")
        ->transform(number_between(1, 1024));
    app.add_option("--devices", devices, "cpu, or GPUs: cuda:0,cuda:1; where not given, what the configuration says")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("DEVICE");
    app.add_option("--progress", options.progress_seconds, "Seconds between lines of progress")
        ->type_name("SECONDS")
        ->capture_default_str()
        ->transform(number_between(0.01, 1e6));
    app.add_option("--train", train, "The program that trains; otherwise the one beside this")->type_name("PROGRAM");
    app.add_option("--launcher", launcher, "local: train on this machine; slurm: hand a job array to sbatch")
        ->type_name("KIND")
        ->check(CLI::IsMember({"local", "slurm"}))
        ->capture_default_str();
    app.add_option("--sbatch-option", sbatch_options, "For the job array: --sbatch-option=--partition=gpu (repeatable)")
        ->type_name("OPTION")
        ->allow_extra_args(false);
    app.add_option("--run", run_name, "Train one run alone, as the tasks of a job array do: ROW/seed-N")
        ->type_name("NAME");
    app.add_flag("--report", report_only, "Write the report anew from what there is, and end");
    app.add_flag("--dry-run", dry_run, "Check the grid, list its runs, their parameters and commands, and end");
    parse_beside_settings(app, parse, Recipe().settings);

    if (!sbatch_options.empty() && launcher != "slurm") {
      throw Error("--sbatch-option", "is for --launcher slurm alone");
    }
    if (!devices.empty() && launcher == "slurm") {
      throw Error("--devices", "is for this machine; Slurm hands out devices itself",
                  "--set training.device=cuda, and --sbatch-option for which GPUs");
    }
    const auto read = configuration_reader();
    for (const auto& text : overrides) plan_options.overrides.push_back(parse_override(text));
    plan_options.device = device_setting(devices);
    const auto grid = read_grid(grid_file, section_names());
    auto plan = make_plan(grid, plan_options, read);
    // Here every run gets a GPU of this machine's, whichever the configuration names.
    if (devices.empty() && run_name.empty() && launcher == "local" && uses_gpu(plan)) {
      plan_options.device = "cuda";
      plan = make_plan(grid, plan_options, read);
    }
    auto chosen = plan.runs_of(only);
    if (!run_name.empty()) chosen = {plan.find(run_name)};
    if (dry_run) {
      list_runs(plan, chosen, train);
      if (launcher == "local") check_files(plan, chosen);
      check_finished(plan, chosen);
      return 0;
    }
    // Before anything is made or started: without its GPU every run would fail by itself. Slurm's are elsewhere, and
    // need not be here for a report.
    if (launcher == "local" && !report_only) {
      for (const auto& device : devices) open_device(device);
      if (devices.empty() && run_name.empty() && uses_gpu(plan)) open_device("cuda");
    }
    if (launcher == "local" && !report_only && run_name.empty()) check_files(plan, chosen);
    if (!report_only && run_name.empty()) check_finished(plan, chosen);
    const auto& output = plan.grid.output;
    if (report_only && !something_at(output)) {
      throw Error(output.string(), "there is no such sweep", "name the folder of one with --output");
    }
    std::error_code error;
    fs::create_directories(output, error);
    if (error) throw_refused(output, "cannot create the folder", error);
    if (report_only) {
      claim_files(plan, {});
      renew_report(plan, read);
      std::cout << "the report is " << (output / "report.html").string() << "\n";
      return 0;
    }
    if (access(train.c_str(), X_OK) != 0) {
      throw Error("--train", "there is no program " + train, "build it, or name another");
    }
    options.train = train.find('/') == std::string::npos ? "./" + train : train;

    // Before anything starts threads: signals are to arrive in one place.
    const BlockedSignals signals{SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    const ProgramLog program_log("sweep");
    std::optional<FolderLock> lock;  // two sweeps in one folder would start the same runs
    if (run_name.empty()) lock.emplace(output, "another sweep", "wait for it, stop it, or choose another --output");
    claim_files(plan, chosen);
    std::vector<SweepRun> results;
    for (const auto& run : plan.runs) results.push_back(read_result(run, read));

    if (launcher == "slurm") {
      std::erase_if(chosen, [&](size_t run) { return results[run].state == SweepRun::State::finished; });
      if (chosen.empty()) {
        write_report(plan, results);
        spdlog::info("all runs are finished; the report is {}", (output / "report.html").string());
        return 0;
      }
      SlurmOptions slurm{.command = {fs::read_symlink("/proc/self/exe").string(), grid_file, "--output",
                                     output.string(), "--train", options.train},
                         .folder = fs::current_path(),
                         .at_once = static_cast<size_t>(jobs),
                         .options = sbatch_options};
      for (const auto& text : overrides) slurm.command.insert(slurm.command.end(), {"--set", text});
      for (const auto seed : plan_options.seeds) {
        slurm.command.insert(slurm.command.end(), {"--seeds", std::to_string(seed)});
      }
      claim_job_array(plan);
      const auto script = output / job_array_names.front();
      write_atomically(script, slurm_script(plan, chosen, slurm));
      const auto job = submit(script);
      spdlog::info(
          "{} runs are handed in as job {}; the same command with --report writes the report, and without it "
          "hands in anew what did not finish",
          chosen.size(), job);
      return 0;
    }

    const bool alone = !run_name.empty();
    // A task of a job array is given its device by the array.
    if (alone && devices.empty()) {
      options.devices = {"cpu"};
    } else {
      options.devices = devices_for(plan, devices, jobs);
    }
    const std::function<void()> changed = [&] {
      if (!alone) write_report(plan, results);
    };
    options.log = program_log.log();
    const auto end = run_all(plan, chosen, results, options, signals, read, changed);
    if (alone) {
      renew_report(plan, read);
    } else {
      write_report(plan, results);
    }
    if (end.signal != 0) {
      spdlog::info("stopped with {} of {} runs finished; the same command goes on", end.finished, chosen.size());
      return 128 + end.signal;
    }
    spdlog::info("{} of {} runs are finished, {} failed; the report is {}", end.finished, chosen.size(), end.failed,
                 (output / "report.html").string());
    for (const size_t run : chosen) {
      if (results[run].state == SweepRun::State::failed) {
        spdlog::error("{} failed: {}", plan.runs[run].name, results[run].reason);
      }
    }
    return end.failed == 0 ? 0 : 1;
  });
}
