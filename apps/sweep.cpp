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
#include "transformer/base/described.h"
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

constexpr const char* one_kind = "a sweep that compares runs trains all on one kind";

// Whether the chosen runs are for GPUs. Throws Error where some are and others are not.
bool are_for_gpus(const Plan& plan, const std::vector<size_t>& chosen) {
  const auto gpus = std::count_if(chosen.begin(), chosen.end(), [&](size_t run) { return plan.runs[run].uses_gpu(); });
  if (gpus == 0 || gpus == std::ssize(chosen)) return gpus > 0;
  throw Error("training.device", "is the CPU in some rows and GPUs in others",
              fmt::format("{}: --set training.device=cuda, or cpu", one_kind));
}

// Where runs go, one after another or `jobs` at a time.
std::vector<std::string> devices_for(bool gpus, std::vector<std::string> devices, int jobs) {
  if (devices.empty() && gpus) {
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
    throw Error("--devices", "names the CPU and GPUs", one_kind);
  }
  return kinds.empty() ? "" : *kinds.begin();
}

// A word of a command that can be pasted, and does nothing to a terminal before.
std::string pasted(const std::string& word) {
  if (printable(word, std::string::npos) == word) return shell_quoted(word);
  std::string text = "$'";
  for (const unsigned char c : word) {
    const bool plain = c >= 0x20 && c < 0x7F && c != '\'' && c != '\\';
    text += plain ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  }
  return text + "'";
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
              << (row.changes.empty() ? "" : "; " + printable(row.changes, std::string::npos)) << "\n ";
    for (const auto& word : train_command(plan, run, train)) std::cout << " " << pasted(word);
    std::cout << "\n";
  }
}

// Whether runs that have begun are of these settings: with others they would fail, and the report forget what they came
// to. What is damaged is told of by the run itself, and stops no other.
void check_begun(const Plan& plan, const std::vector<size_t>& chosen, const ReadConfiguration& read) {
  for (const size_t index : chosen) {
    const auto& run = plan.runs[index];
    if (!something_at(run.folder / config_name)) continue;
    std::string different;
    try {
      different = other_settings(run, read);
    } catch (const Error&) {
    }
    if (different.empty()) continue;
    Recipe recipe;
    recipe.load(plan.grid.base, run.overrides);
    try {
      RunFolder(run.folder, recipe.run.config, recipe.run.rules, {.look_only = true});
    } catch (const Error&) {
      throw Error("run " + run.name,
                  fmt::format("{} holds a run with other settings ({})", run.folder.string(), different),
                  "give it the settings it had, move its folder away, or choose another --output");
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
    const auto told = fmt::format("{}\n{}\n{}", reading, data.source_language, data.target_language);
    if (!checked.insert(fits ? fmt::format("{}\n{}", told, run.row) : told).second) continue;
    try {
      check_inputs(recipe.run);
    } catch (const Error& mistake) {
      if (!described_exception().mistake) throw;
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
    std::string grid_file, launcher = "local", run_name, train;
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
    if (!only.empty() && !run_name.empty()) {
      throw Error("--only", "cannot be given together with --run", "--run names the run that is trained");
    }
    if (train.empty() && (!report_only || dry_run)) {
      train = (this_program("--train", "name the program that trains").parent_path() / "train").string();
    }
    const auto read = configuration_reader();
    for (const auto& text : overrides) plan_options.overrides.push_back(parse_override(text));
    plan_options.device = device_setting(devices);
    const auto grid = read_grid(grid_file, section_names());
    auto plan = make_plan(grid, plan_options, read);
    auto chosen = plan.runs_of(only);
    if (!run_name.empty()) chosen = {plan.find(run_name)};
    // Every run gets a GPU of this machine's, or of Slurm's, whichever the configuration names.
    const bool gpus = !report_only && are_for_gpus(plan, chosen);
    if (devices.empty() && run_name.empty() && gpus) {
      plan_options.device = "cuda";
      plan = make_plan(grid, plan_options, read);
    }
    const auto& output = plan.grid.output;
    const auto as_program = [](const std::string& file) {
      return file.find('/') == std::string::npos ? "./" + file : as_operand(file);
    };
    const auto slurm_options = [&] {
      SlurmOptions slurm{.command = {this_program("--launcher slurm").string(), as_operand(grid_file), "--output",
                                     as_operand(output), "--train", as_program(train)},
                         .folder = fs::current_path(),
                         .at_once = static_cast<size_t>(jobs),
                         .options = sbatch_options};
      for (const auto& text : overrides) slurm.command.insert(slurm.command.end(), {"--set", text});
      if (gpus) slurm.command.insert(slurm.command.end(), {"--set", "training.device=cuda"});
      for (const auto seed : plan_options.seeds) {
        slurm.command.insert(slurm.command.end(), {"--seeds", std::to_string(seed)});
      }
      return slurm;
    };
    // Whether there can be a script.
    if (launcher == "slurm" && !report_only) {
      if (is_stream(plan.grid.file)) {
        throw Error(plan.grid.file.string(), "is read by every task, and can be read once", "write a file");
      }
      slurm_script(plan, chosen, slurm_options());
    }
    if (dry_run) {
      list_runs(plan, chosen, train);
      if (launcher == "local") check_files(plan, chosen);
      check_begun(plan, chosen, read);
      return 0;
    }
    // Before anything is made or started: without its GPU every run would fail by itself. Slurm's are elsewhere, and
    // need not be here for a report.
    if (launcher == "local" && !report_only) {
      for (const auto& device : devices) open_device(device);
      if (devices.empty() && run_name.empty() && gpus) open_device("cuda");
    }
    std::error_code error;
    if (report_only && !something_at(output)) {
      throw Error(output.string(), "there is no such sweep", "name the folder of one with --output");
    }
    if (!report_only && (!fs::is_regular_file(train, error) || access(train.c_str(), X_OK) != 0)) {
      throw Error("--train", "there is no program " + train, "build it, or name another");
    }
    options.train = as_program(train);
    std::optional<FolderLock> lock;  // two sweeps in one folder would start the same runs
    const auto take_lock = [&] {
      if (!lock) lock.emplace(output, "another sweep", "wait for it, stop it, or choose another --output");
    };
    if (!report_only && run_name.empty()) {
      // Whose runs may be of other settings.
      if (fs::is_directory(output, error)) take_lock();
      if (launcher == "local") check_files(plan, chosen);
      check_begun(plan, chosen, read);
    }
    fs::create_directories(output, error);
    if (error) throw_refused(output, "cannot create the folder", error);
    if (report_only) {
      claim_files(plan, {});
      renew_report(plan, read);
      std::cout << "the report is " << (output / "report.html").string() << "\n";
      return 0;
    }
    const ProgramLog program_log("sweep");
    if (run_name.empty()) take_lock();
    claim_files(plan, chosen);
    const bool alone = !run_name.empty();
    // A task of a job array asks for one run of many.
    std::vector<SweepRun> results(plan.runs.size());
    for (const size_t run : alone ? chosen : plan.runs_of({})) results[run] = read_result(plan.runs[run], read);

    if (launcher == "slurm") {
      std::erase_if(chosen, [&](size_t run) { return results[run].state == SweepRun::State::finished; });
      const auto trained = std::erase_if(chosen, [&](size_t run) { return is_being_trained(plan.runs[run]); });
      if (trained > 0) {
        spdlog::info("{} being trained by another process, and not handed in",
                     trained == 1 ? "1 run is" : fmt::format("{} runs are", trained));
      }
      if (chosen.empty()) {
        renew_report(plan, read);
        spdlog::info("all {}runs are finished; the report is {}", trained > 0 ? "other " : "",
                     (output / "report.html").string());
        return 0;
      }
      claim_job_array(plan);
      const auto script = output / job_array_names.front();
      write_atomically(script, slurm_script(plan, chosen, slurm_options()));
      const auto job = submit(script, program_log.log());
      spdlog::info(
          "{} runs are handed in as job {}; the same command with --report writes the report, and without it "
          "hands in anew what did not finish",
          chosen.size(), job);
      return 0;
    }

    // A task of a job array is given its device by the array.
    if (alone && devices.empty()) {
      options.devices = {"cpu"};
    } else {
      options.devices = devices_for(gpus, devices, jobs);
    }
    const std::function<void()> changed = [&] {
      if (!alone) write_report(plan, results);
    };
    options.log = program_log.log();
    // From here on somebody asks for them. Before anything starts threads: signals are to arrive in one place.
    const BlockedSignals signals{SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCHLD};
    const auto end = run_all(plan, chosen, results, options, signals, read, changed);
    if (!alone) write_report(plan, results);
    // Who is told to stop waits for nobody's lock.
    const bool reported = !alone || (end.signal == 0 && renew_report_after_run(plan, read));
    if (end.signal != 0) {
      spdlog::info("stopped with {} of {} runs finished; the same command goes on", end.finished, chosen.size());
      return 128 + end.signal;
    }
    const auto left = std::count_if(chosen.begin(), chosen.end(),
                                    [&](size_t run) { return results[run].state == SweepRun::State::running; });
    spdlog::info("{} of {} runs are finished, {} failed{}; the report {} {}", end.finished, chosen.size(), end.failed,
                 left > 0 ? fmt::format(", {} left to another process", left) : "",
                 reported ? "is" : "of this run, too, will be", (output / "report.html").string());
    for (const size_t run : chosen) {
      if (results[run].state == SweepRun::State::failed) {
        spdlog::error("{} failed: {}", plan.runs[run].name, results[run].reason);
      }
    }
    return end.failed + left == 0 ? 0 : 1;
  });
}
