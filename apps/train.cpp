#include <fmt/format.h>
#include <malloc.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "apps/log.h"
#include "apps/number_option.h"
#include "apps/settings_listing.h"
#include "recipe.h"
#include "torch_program.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/model_files.h"
#include "transformer/base/process.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/tree_constraint.h"
#include "transformer/model/device.h"
#include "transformer/training/distributed/communicator.h"
#include "transformer/training/distributed/error_file.h"
#include "transformer/training/distributed/launch.h"
#include "transformer/training/distributed/processes.h"

namespace {

std::atomic<bool> stop{false};
std::atomic<int> stopped_by{0};
// A process that has nothing to save yet: it learns a vocabulary, or tokenises, for minutes; one of several waits for
// the others to come.
std::atomic<bool> prepares{false};

constinit transformer::SignalWishes wishes;

// A second wish ends the program at once: the first may have come in the middle of something long.
void on_signal(int signal) {
  const bool again = wishes.again(signal);
  stopped_by = signal;
  stop = true;
  if (!prepares && !again) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Whether a launcher has started this process beside another, which does what is to be done once. Where its variables
// cannot be read, as in a pod of Kubernetes' without torchrun, nobody else is known of.
bool another_does() {
  try {
    return transformer::read_launch(transformer::process_environment()).rank > 0;
  } catch (const transformer::Error&) {
    return false;
  }
}

// Whether the model that is there now was taught trees.
bool writes_trees(const transformer::RunSettings& run) {
  const auto name = transformer::vocabulary_names_of(run.vocabulary.joint).back();
  const auto vocabulary =
      std::make_shared<const transformer::Vocabulary>(std::filesystem::path(run.training.output) / name);
  return transformer::TreeConstraints(vocabulary).has_labels();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace transformer;
  return run_torch_program(argc, argv, [&](CLI::App& app, auto parse) {
    std::string config, output, init_from, given_device, given_threads, given_precision;
    std::vector<std::string> overrides;
    RunOptions options;
    int processes = 0;
    bool dry_run = false, undo = false;
    app.description("Trains a Transformer as a YAML configuration says, and leaves a model directory.");
    auto* config_option = app.add_option("config", config, "Configuration (YAML); see configs/")->type_name("FILE");
    app.add_option("--set", overrides, "Override a setting: --set section.key=value (repeatable)")
        ->type_name("SECTION.KEY=VALUE")
        ->allow_extra_args(false);
    app.add_option("--output", output, "The run's folder; the same as --set training.output=DIR")->type_name("DIR");
    app.add_option(
           "--init-from", init_from,
           "Start from the weights and vocabulary of a model directory; the same as --set training.init_from=DIR")
        ->type_name("DIR");
    app.add_option("--device", given_device, "cpu, cuda or cuda:N; the same as --set training.device=DEVICE")
        ->type_name("DEVICE");
    app.add_option("--threads", given_threads, "Threads of each process; the same as --set training.threads=N")
        ->type_name("N");
    app.add_option("--precision", given_precision,
                   "float32, tf32, bf16 or auto: type of matrix products; the same as --set training.precision=KIND")
        ->type_name("KIND");
    app.add_option("--processes", processes,
                   "Train data-parallel in so many processes on this machine (torchrun, mpirun and srun work as well)")
        ->type_name("N")
        ->transform(number_between(1, 1024));
    app.add_option("--profile", options.profile_steps,
                   "Write a Chrome trace of so many steps to the run's folder (for ui.perfetto.dev)")
        ->type_name("STEPS")
        ->transform(number_between(int64_t{1}, int64_t{10000}));
    app.add_flag("--dry-run", dry_run, "Print the model's summary, check files, vocabulary and space, and end");
    app.add_flag("--restart", options.folder.restart,
                 "Begin anew; the run that the output folder holds is kept aside until the first scheduled checkpoint");
    app.add_option("--from", options.folder.from,
                   "Go on from the checkpoint of this step, or the last, with other settings perhaps; what came after "
                   "it is kept aside until the next scheduled checkpoint or the end")
        ->type_name("STEP|last");
    auto* const undoing =
        app.add_flag("--undo", undo, "Bring back what the last --restart or --from has set aside, and end");
    SettingsListing listing(app, "Write all settings as Markdown, as configs/README.md has them, to a file, and end");
    for (const char* other :
         {"--dry-run", "--restart", "--from", "--processes", "--profile", "--settings", "--settings-reference"}) {
      undoing->excludes(other);
    }
    parse_beside_settings(app, parse, Recipe().settings);

    // Arguments that cannot be read are the shell's to show; all else the agent of a launcher hears of, too.
    int status = 0;
    with_error_file([&] {
      status = with_plain_errors([&]() -> int {
        Recipe recipe;
        if ((listing.asked() || undo || dry_run) && another_does()) return 0;
        if (listing.asked()) {
          listing.show(recipe.settings);
          return 0;
        }
        if (config.empty()) throw CLI::RequiredError(config_option->get_name());
        for (const auto& [setting, given] : {std::pair<const char*, const std::string&>{"output", output},
                                             {"init_from", init_from},
                                             {"device", given_device},
                                             {"threads", given_threads},
                                             {"precision", given_precision}}) {
          if (!given.empty()) overrides.push_back(fmt::format("training.{}={}", setting, given));
        }
        recipe.load(config, overrides);
        if (undo) {
          RunFolder::undo(recipe.run.training.output);
          std::cout << recipe.run.training.output << " is as it was before the last --restart or --from\n";
          return 0;
        }
        for (int i = 0; i < argc; ++i) options.folder.command += (i > 0 ? " " : "") + shell_quoted(argv[i]);
        if (dry_run) {
          std::cout << model_summary(recipe.run.model) << std::flush;
          std::cout << check_run(recipe.run, options);
          // No mistake: runs for other machines are checked, too.
          try {
            open_device(recipe.run.training.device);
          } catch (const Error& error) {
            std::cout << "device: not here: " << error.what() << "\n";
          }
          return 0;
        }
        check_settings(recipe.run);
        const auto launch = read_launch(process_environment());
        if (processes > 0 && launch.launcher != Launch::Launcher::processes) {
          if (is_stream(config)) throw Error(config, "is read by every process, and can be read once", "write a file");
          return run_processes(processes, {argv, argv + argc});
        }
        const ProgramLog program_log("train");
        prepares = true;
        // A script's command behind an & is not to end with what is in front, nor one behind nohup with its terminal.
        for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
          if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
        }
        // Every step allocates the same tensors again. Memory that goes back to the system in between comes back as
        // page faults.
        mallopt(M_MMAP_THRESHOLD, 32 << 20);
        mallopt(M_TRIM_THRESHOLD, 1 << 30);
        mallopt(M_TOP_PAD, 64 << 20);
        const int gpus = visible_gpus(recipe.run.training.device);
        const auto device = local_device(recipe.run.training.device, launch, gpus);
        const bool cuda = open_device(device).is_cuda();
        if (launch.distributed()) {
          spdlog::info("rank {} of {} ({}), {}, device {}", launch.rank, launch.world_size,
                       launcher_name(launch.launcher), cuda ? "NCCL" : "Gloo", device);
        }
        if (launch.rank > 0) spdlog::set_level(spdlog::level::warn);
        Communicator communicator(launch, {.backend = cuda ? Backend::nccl : Backend::gloo,
                                           .timeout_seconds = recipe.run.training.timeout_seconds});
        if (launch.distributed()) prepares = false;  // what one is told to do, the others must hear of from here on
        auto hooks = validation_hooks(recipe, &stop);
        hooks.log = program_log.log(/*progress=*/launch.rank == 0);
        hooks.begins = [begins = hooks.begins] {
          prepares = false;
          if (begins) begins();
        };
        auto end = RunEnd::finished;
        communicator.guard([&] {
          const auto agents = communicator.gather(agent_name(process_environment()));
          options.folder.agents = {agents.begin(), agents.end()};
          options.folder.agents.erase("");
          end = run_training(communicator, device, recipe.run, hooks, options);
        });
        // Of several processes some may have stopped because another was told to.
        if (end == RunEnd::interrupted) return 128 + (stopped_by ? stopped_by.load() : SIGTERM);
        const auto& folder = recipe.run.training.output;
        spdlog::info("the model is in {}: {} --model {}", folder, writes_trees(recipe.run) ? "parse" : "translate",
                     shell_quoted(folder));
        return 0;
      });
    });
    return status;
  });
}
