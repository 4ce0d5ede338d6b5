#include "transformer/training/distributed/processes.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/process.h"
#include "transformer/base/threads.h"
#include "transformer/training/distributed/launch.h"
#include "transformer/training/distributed/store_host.h"

namespace transformer {

namespace {

std::string system_message() {
  return std::strerror(errno);
}

// A listening socket on the loopback interface, on a port of the system's choice.
class LoopbackSocket {
 public:
  LoopbackSocket() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (descriptor_ < 0 || bind(descriptor_, generic, length) != 0 || listen(descriptor_, SOMAXCONN) != 0 ||
        getsockname(descriptor_, generic, &length) != 0) {
      throw Failure("--processes", "cannot open a port on the loopback interface: " + system_message());
    }
    port_ = ntohs(address.sin_port);
  }
  ~LoopbackSocket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;

  int port() const { return port_; }
  /// To an owner that closes it.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_, port_ = 0;
};

struct Process {
  pid_t id = 0;
  bool running = true;
  int status = 0;  // as waitpid says
};

}  // namespace

int run_processes(int count, const std::vector<std::string>& arguments, const ProcessesOptions& options) {
  if (count < 1) throw Error("--processes", fmt::format("is {}, expected at least 1", count));
  const auto inherited = process_environment();
  if (const auto launch = read_launch(inherited); launch.launcher != Launch::Launcher::none) {
    throw Error("--processes",
                fmt::format("this process is itself rank {} of {}, started by {}", launch.rank, launch.world_size,
                            launcher_name(launch.launcher)),
                "leave it out");
  }
  const auto program = this_program("--processes").string();
  const auto name = std::filesystem::path(arguments.empty() ? program : arguments.front()).filename().string();

  const BlockedSignals signals{SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCHLD};
  LoopbackSocket socket;
  std::vector<Process> processes;
  auto signal_all = [&](int signal) {
    std::vector<pid_t> running;
    for (const auto& process : processes) {
      if (process.running) running.push_back(process.id);
    }
    signal_processes(running, signal);
  };

  auto environment = inherited;
  for (const auto& [variable, value] : environment_of_shares(count)) environment[variable] = value;
  environment[processes_variable] = environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(count);
  environment["MASTER_ADDR"] = loopback;
  environment["MASTER_PORT"] = std::to_string(socket.port());
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  environment["TORCHELASTIC_RUN_ID"] = fmt::format("processes-{}", getpid());
  environment["TORCHELASTIC_RESTART_COUNT"] = "0";
  std::vector<std::string> command{program};
  if (!arguments.empty()) command.insert(command.end(), arguments.begin() + 1, arguments.end());
  std::optional<StoreHost> store;
  try {
    for (int rank = 0; rank < count; ++rank) {
      environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
      processes.push_back(
          {.id = start_process(
               {.command = command, .environment = environment, .log = {}, .signals = signals.before()})});
    }
    // After the processes, so that no thread exists at the fork; their connections wait in the socket meanwhile.
    if (count > 1) store.emplace(read_launch(environment), socket.release());
  } catch (...) {
    signal_all(SIGKILL);
    for (const auto& process : processes) waitpid(process.id, nullptr, 0);
    throw;
  }
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> broken;  // when a process was first known to be gone without the others' consent
  int passed_on = 0, running = count;
  std::optional<Clock::time_point> terminated;  // when SIGTERM was sent for that reason
  // What this process ends with is what the rank ended with that is to blame: before a signal that was passed on, and
  // before ranks that end because another did.
  enum class Blame { none, other, asked, own };
  Blame blame = Blame::none;
  int result = 0;
  auto report = [&](int rank, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    const bool signalled = WIFSIGNALED(status);
    const bool asked =
        passed_on != 0 && (signalled ? WTERMSIG(status) == passed_on
                                     : WEXITSTATUS(status) == 130 || WEXITSTATUS(status) == 128 + passed_on);
    Blame found = asked ? Blame::asked : Blame::own;
    if (!asked && signalled && terminated) {
      found = Blame::other;  // by the signal that it got from here
    } else if (!asked && !signalled && store) {
      const auto state = store->state(rank);
      if (state.phase == RankState::Phase::failed && state.origin != rank) found = Blame::other;
    }
    if (found > blame) {
      blame = found;
      result = !signalled ? WEXITSTATUS(status) : asked ? 128 + passed_on : 1;
    }
    if (!asked) std::cerr << fmt::format("{}: rank {} {}\n", name, rank, process_end(status)) << std::flush;
    // A signal that it was asked to end by came before the process was ready for one.
    if (asked && !signalled) return;
    if (store && (signalled || !broken)) store->note_end(rank, process_end(status));
    if (!broken) broken = Clock::now();
  };
  // Rank 0 may be writing a checkpoint, which is not to be cut off.
  auto kill_all = [&] {
    for (int rank = 0; rank < count; ++rank) {
      const auto state = rank == 0 && store ? store->state(rank) : RankState();
      const bool busy = state.alone && state.phase == RankState::Phase::running;
      if (processes[rank].running && !busy) kill(processes[rank].id, SIGKILL);
    }
  };
  while (running > 0) {
    const int signal = signals.next(100);
    if (signal != 0 && signal != SIGCHLD) {
      if (signal != SIGTSTP) passed_on = signal;
      signal_all(signal);
    }
    for (int rank = 0; rank < count; ++rank) {
      auto& process = processes[rank];
      if (!process.running || waitpid(process.id, &process.status, WNOHANG) != process.id) continue;
      process.running = false;
      --running;
      report(rank, process.status);
    }
    const auto past = [](const std::optional<Clock::time_point>& time, double seconds) {
      return time && std::chrono::duration<double>(Clock::now() - *time).count() > seconds;
    };
    if (!terminated && past(broken, options.grace_seconds)) {
      signal_all(SIGTERM);
      terminated = Clock::now();
    }
    if (past(terminated, options.kill_seconds)) kill_all();
  }
  return result;
}

}  // namespace transformer
