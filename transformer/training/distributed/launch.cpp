#include "transformer/training/distributed/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "transformer/base/error.h"
#include "transformer/base/number.h"

extern char** environ;

namespace transformer {

namespace {

// Below the ports that systems hand out by themselves (from 32768), above those that services are registered for.
constexpr int first_port = 20000, port_count = 12000;

using Launcher = Launch::Launcher;

// Variables of one launcher, with errors that name them.
class Variables {
 public:
  Variables(const Environment& environment, Launcher launcher) : environment_(environment), launcher_(launcher) {}

  bool has(const std::string& name) const { return environment_.contains(name); }

  std::string text(const std::string& name) const {
    const auto found = environment_.find(name);
    if (found == environment_.end()) {
      throw Error(name, "is missing, although other variables say that this process is one of several",
                  fmt::format("start the processes with {}, or unset its variables", launcher_name(launcher_)));
    }
    if (found->second.empty()) throw Error(name, "is empty");
    return found->second;
  }

  std::string text_or(const std::string& name, const std::string& otherwise) const {
    return has(name) ? text(name) : otherwise;
  }

  int64_t number(const std::string& name, int64_t lowest, int64_t highest) const {
    const auto written = text(name);
    const auto number = number_in<int64_t>(written);
    if (!number || *number < lowest || *number > highest) {
      throw Error(name, fmt::format("is '{}', expected a whole number {}", written,
                                    highest == unlimited ? fmt::format("of at least {}", lowest)
                                                         : fmt::format("from {} to {}", lowest, highest)));
    }
    return *number;
  }

  static constexpr int64_t unlimited = std::numeric_limits<int32_t>::max();

 private:
  const Environment& environment_;
  Launcher launcher_;
};

constexpr auto unlimited = Variables::unlimited;

void read_numbers(Launch& launch, const Variables& variables, const char* rank, const char* size,
                  const char* local_rank, const char* local_size) {
  launch.world_size = static_cast<int>(variables.number(size, 1, unlimited));
  launch.rank = static_cast<int>(variables.number(rank, 0, launch.world_size - 1));
  launch.local_world_size = static_cast<int>(variables.number(local_size, 1, launch.world_size));
  launch.local_rank = static_cast<int>(variables.number(local_rank, 0, launch.local_world_size - 1));
}

// The store's address from MASTER_ADDR and MASTER_PORT where they are set; the defaults are called where not.
template <class Address, class Port>
void read_meeting_place(Launch& launch, const Variables& variables, Address address, Port port) {
  if (!launch.distributed()) return;
  launch.address = variables.has("MASTER_ADDR") ? variables.text("MASTER_ADDR") : address();
  launch.port = variables.has("MASTER_PORT") ? static_cast<int>(variables.number("MASTER_PORT", 1, 65535)) : port();
}

Launch read_torchrun(const Environment& environment) {
  Launch launch;
  launch.launcher = environment.contains(processes_variable) ? Launcher::processes : Launcher::torchrun;
  const Variables variables(environment, launch.launcher);
  read_numbers(launch, variables, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  read_meeting_place(
      launch, variables, [&] { return variables.text("MASTER_ADDR"); },
      [&] { return static_cast<int>(variables.number("MASTER_PORT", 1, 65535)); });
  launch.agent_store = variables.text_or("TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  // TORCHELASTIC_RESTART_COUNT does not tell attempts apart: it is the agent's, not the run's. Agents whose own
  // processes were well when the run began again have not counted that.
  launch.run = variables.text_or("TORCHELASTIC_RUN_ID", "run");
  return launch;
}

Launch read_mpirun(const Environment& environment) {
  Launch launch;
  launch.launcher = Launcher::mpirun;
  const Variables variables(environment, launch.launcher);
  read_numbers(launch, variables, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
               "OMPI_COMM_WORLD_LOCAL_SIZE");
  // The job's name under Open MPI 5 and 4; all of its processes see the same.
  const auto job = variables.text_or("PMIX_NAMESPACE", variables.text_or("OMPI_MCA_ess_base_jobid", ""));
  auto own = [&](const char* variable) {
    if (launch.on_one_machine() && !job.empty()) return;
    throw Error(variable, "is missing, and Open MPI does not say where the processes can meet",
                "set MASTER_ADDR to the machine of rank 0 and MASTER_PORT to a free port: mpirun -x MASTER_ADDR=HOST "
                "-x MASTER_PORT=PORT ..");
  };
  read_meeting_place(
      launch, variables,
      [&] {
        own("MASTER_ADDR");
        return std::string(loopback);
      },
      [&] {
        own("MASTER_PORT");
        uint32_t hash = 2166136261;  // FNV-1a, which is the same in every process
        for (const unsigned char byte : job) hash = (hash ^ byte) * 16777619;
        return first_port + static_cast<int>(hash % port_count);
      });
  launch.run = job.empty() ? "run" : job;
  return launch;
}

// The number of the step that srun started this process for, if it did. Slurm gives its batch script and an interactive
// shell numbers of their own, at the upper end.
std::optional<int64_t> slurm_step(const Variables& variables) {
  for (const char* name : {"SLURM_STEP_ID", "SLURM_STEPID"}) {
    if (!variables.has(name)) continue;
    const auto step = variables.number(name, 0, std::numeric_limits<uint32_t>::max());
    if (step < 0xfffffff0) return step;
    return std::nullopt;
  }
  return std::nullopt;
}

// Tasks of machine `node` where Slurm writes them as "2(x3),1": two on each of three machines, then one.
int tasks_of_node(const std::string& list, int64_t node, const std::string& where) {
  size_t position = 0;
  auto number = [&] {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(list.data() + position, list.data() + list.size(), value);
    if (error != std::errc() || value < 1 || value > unlimited) {
      throw Error(where, fmt::format("is '{}', expected task counts such as 2(x3),1", list));
    }
    position = static_cast<size_t>(stop - list.data());
    return value;
  };
  while (position < list.size()) {
    const auto tasks = number();
    int64_t repeated = 1;
    if (list.compare(position, 2, "(x") == 0) {
      position += 2;
      repeated = number();
      ++position;  // ')'
    }
    if (node < repeated) return static_cast<int>(tasks);
    node -= repeated;
    ++position;  // ','
  }
  throw Error(where, fmt::format("is '{}', which has no machine of the number that SLURM_NODEID says", list));
}

Launch read_srun(const Environment& environment) {
  Launch launch;
  const Variables variables(environment, Launcher::srun);
  const auto step = slurm_step(variables);
  if (!step) return launch;
  const char* size = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  launch.world_size = static_cast<int>(variables.number(size, 1, unlimited));
  if (!launch.distributed()) return launch;

  launch.launcher = Launcher::srun;
  launch.rank = static_cast<int>(variables.number("SLURM_PROCID", 0, launch.world_size - 1));
  const char* tasks = variables.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  if (variables.has(tasks)) {
    launch.local_world_size =
        tasks_of_node(variables.text(tasks), variables.number("SLURM_NODEID", 0, unlimited), tasks);
  } else {
    launch.local_world_size =
        static_cast<int>(std::min<int64_t>(variables.number("SLURM_NTASKS_PER_NODE", 1, unlimited), launch.world_size));
  }
  launch.local_rank = static_cast<int>(variables.number("SLURM_LOCALID", 0, launch.local_world_size - 1));

  const auto job = variables.number("SLURM_JOB_ID", 0, std::numeric_limits<uint32_t>::max());
  read_meeting_place(
      launch, variables,
      [&] {
        if (launch.on_one_machine()) return std::string(loopback);
        const char* nodes = variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
        return first_host(variables.text(nodes), nodes);
      },
      [&] { return first_port + static_cast<int>((job * 31 + *step) % port_count); });
  launch.run = fmt::format("{}.{}/{}", job, *step, variables.text_or("SLURM_RESTART_COUNT", "0"));
  return launch;
}

// The process that started this one; its number alone may be another's later.
std::string parent_name() {
  const auto parent = getppid();
  std::string boot, status, start;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", parent)), status);
  // Behind the program's name, which may have blanks, the 20th is when it started.
  std::istringstream fields(status.substr(std::min(status.rfind(')') + 1, status.size())));
  for (int i = 0; i < 20; ++i) fields >> start;
  return fmt::format("{}/{}/{}", boot, parent, start);
}

bool has_any(const Environment& environment, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return environment.contains(name); });
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::string launcher_name(Launcher launcher) {
  switch (launcher) {
    case Launcher::none:
      return "no launcher";
    case Launcher::processes:
      return "--processes";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::mpirun:
      return "mpirun";
    case Launcher::srun:
      return "srun";
  }
  return "";
}

Launch read_launch(const Environment& environment) {
  if (has_any(environment, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})) return read_torchrun(environment);
  if (has_any(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) return read_mpirun(environment);
  if (has_any(environment, {"SLURM_PROCID"})) return read_srun(environment);
  for (const char* name : {"PET_NNODES", "PET_NPROC_PER_NODE"}) {
    const auto found = environment.find(name);
    if (found == environment.end() || found->second.empty() || found->second == "1") continue;
    throw Error(name,
                fmt::format("is '{}', a setting of torchrun's, but torchrun did not start this process", found->second),
                "start it by torchrun --no-python, which reads it, or unset it");
  }
  return {};
}

std::string agent_name(const Environment& environment) {
  if (environment.contains(processes_variable) || !environment.contains("TORCHELASTIC_RESTART_COUNT")) return "";
  // Its own new folder of logs, where a script that it started in this program's place leads to, too:
  // FOLDER/attempt_N/LOCAL_RANK/error.json.
  if (const auto file = environment.find("TORCHELASTIC_ERROR_FILE"); file != environment.end()) {
    const auto attempt = std::filesystem::path(file->second).parent_path().parent_path();
    if (attempt.filename().string().starts_with("attempt_")) return attempt.parent_path().string();
  }
  return parent_name();  // it keeps no logs
}

std::string first_host(const std::string& list, const std::string& where) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const auto close = list.find(']', i);
    const auto first = list.find_first_of(",-]", i);
    if (close == std::string::npos || first == i + 1) {
      throw Error(where, fmt::format("is '{}', expected machines such as gpu[01-04],login", list));
    }
    host += list.substr(i + 1, first - i - 1);
    i = close;
  }
  if (host.empty()) throw Error(where, fmt::format("is '{}', which names no machine", list));
  return host;
}

std::string local_device(const std::string& device, const Launch& launch, int gpus) {
  if (device != "cuda" || !launch.distributed()) return device;
  if (gpus == 1) return "cuda:0";
  if (launch.local_rank >= gpus) {
    throw Error("device 'cuda'",
                fmt::format("this machine has {} processes, but {} GPUs", launch.local_world_size, gpus),
                "start a process a GPU");
  }
  return fmt::format("cuda:{}", launch.local_rank);
}

}  // namespace transformer
