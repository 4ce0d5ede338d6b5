#include "transformer/base/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "support.h"

using namespace transformer;
using transformer::test::read_file;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;

namespace {

int status_of(const ProcessOptions& options) {
  int status = -1;
  const pid_t process = start_process(options);
  REQUIRE(waitpid(process, &status, 0) == process);
  return status;
}

ProcessOptions shell(const std::string& command, const TemporaryDirectory& directory) {
  ProcessOptions options{.command = {"sh", "-c", command}, .environment = {}, .log = directory / "log", .signals = {}};
  sigemptyset(&options.signals);
  return options;
}

}  // namespace

TEST_CASE("a process appends to its log, in the environment it is given") {
  const TemporaryDirectory directory;
  write_file(directory / "log", "before\n");
  setenv("KEPT", "kept", 1);
  setenv("CHANGED", "no", 1);
  auto options = shell("echo $KEPT $CHANGED; echo error >&2; cat", directory);
  options.environment = {{"CHANGED", "yes"}};
  CHECK(status_of(options) == 0);
  CHECK(read_file(directory / "log") == "before\nkept yes\nerror\n");
}

TEST_CASE("how a process ended is told") {
  const TemporaryDirectory directory;
  CHECK(process_end(status_of(shell("exit 3", directory))) == "ended with status 3");
  CHECK(process_end(status_of(shell("kill -9 $$", directory))) == "was ended by signal 9 (Killed)");
  auto options = shell("", directory);
  options.command = {"/no/such/program"};
  CHECK(process_end(status_of(options)) == "ended with status 127");
  CHECK(read_file(directory / "log") == "/no/such/program: error: cannot be started: No such file or directory\n");
}

TEST_CASE("a process dies with the one that started it") {
  const TemporaryDirectory directory;
  const auto file = directory / "process";
  const pid_t starter = fork();
  if (starter == 0) {
    ProcessOptions options{.command = {"sleep", "60"}, .environment = {}, .log = directory / "log", .signals = {}};
    sigemptyset(&options.signals);
    write_file(file, std::to_string(start_process(options)));
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(starter, &status, 0) == starter);
  const pid_t process = std::stoi(read_file(file));
  bool gone = false;
  for (int i = 0; i < 200 && !gone; ++i) {
    usleep(10000);
    const auto stat = read_file(fmt::format("/proc/{}/stat", process));
    gone = stat.empty() || stat.find(") Z ") != std::string::npos;  // nobody may be there to reap it
  }
  CHECK(gone);
}

TEST_CASE("blocked signals wait until they are asked for") {
  const BlockedSignals signals{SIGUSR1};
  CHECK(signals.next(0) == 0);
  kill(getpid(), SIGUSR1);
  CHECK(signals.next(1000) == SIGUSR1);
  CHECK(signals.next(0) == 0);
  for (const int ignored :
       {SIGHUP, SIGINT, SIGTERM}) {  // as nohup, and a script's shell for what it starts with &, have it
    const auto before = signal(ignored, SIG_IGN);
    {
      const BlockedSignals more{ignored, SIGUSR2};
      kill(getpid(), ignored);
      CHECK(more.next(50) == 0);
      kill(getpid(), SIGUSR2);
      CHECK(more.next(1000) == SIGUSR2);
    }
    signal(ignored, before);
  }
}
