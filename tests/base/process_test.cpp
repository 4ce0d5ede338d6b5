#include "transformer/base/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "support.h"
#include "transformer/base/error.h"

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

// The status that waitpid tells of a copy of this process that ends with what `body` returns.
int status_of_copy(const std::function<int()>& body) {
  const pid_t copy = fork();
  if (copy == 0) _exit(body());
  int status = -1;
  REQUIRE(waitpid(copy, &status, 0) == copy);
  return status;
}

// As /proc tells it: 'T' of a process that is stopped.
char state_of(pid_t process) {
  const auto stat = read_file(fmt::format("/proc/{}/stat", process));
  const auto end = stat.rfind(") ");
  return end == std::string::npos ? ' ' : stat[end + 2];
}

bool comes_to(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    usleep(10000);
  }
  return false;
}

// The status of a child that is to end by itself, and is killed where that takes too long.
int status_in_time(pid_t child) {
  int status = -1;
  if (comes_to([&] { return waitpid(child, &status, WNOHANG) == child; })) return status;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return status;
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

TEST_CASE("signals that come together are one wish, later ones of their kind another") {
  SignalWishes wishes;
  CHECK_FALSE(wishes.again(SIGINT, 5000));
  CHECK_FALSE(wishes.again(SIGINT, 6000));
  CHECK_FALSE(wishes.again(SIGTERM, 7000));  // another kind is no second one
  CHECK_FALSE(wishes.again(SIGHUP, 8000));
  CHECK(wishes.again(SIGINT, 6001));
  CHECK_FALSE(wishes.again(SIGTERM, 12000));
  CHECK(wishes.again(SIGTERM, 12001));
  CHECK_FALSE(wishes.again(SIGHUP, 13000));
  CHECK(wishes.again(SIGHUP, 20000));
  SignalWishes just_now;
  CHECK_FALSE(just_now.again(SIGTERM));
  CHECK_FALSE(just_now.again(SIGTERM));
}

TEST_CASE("a process writes to a terminal that stops what writes to it from the background") {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE((grantpt(terminal) == 0 && unlockpt(terminal) == 0));
  const std::string name = ptsname(terminal);
  const int status = status_of_copy([&] {
    setsid();
    const int own = open(name.c_str(), O_RDWR);
    termios settings{};
    if (own < 0 || tcgetattr(own, &settings) != 0) return 2;
    settings.c_lflag |= TOSTOP;
    if (tcsetattr(own, TCSANOW, &settings) != 0) return 3;
    dup2(own, STDOUT_FILENO);
    ProcessOptions options{.command = {"echo", "a line"}, .environment = {}, .log = {}, .signals = {}};
    sigemptyset(&options.signals);
    int end = 0;
    if (waitpid(start_process(options), &end, WUNTRACED) < 0) return 4;
    return WIFEXITED(end) && WEXITSTATUS(end) == 0 ? 0 : 1;
  });
  close(terminal);
  CHECK(process_end(status) == "ended with status 0");
}

TEST_CASE("a process ends by a broken pipe, whatever this one does about its own") {
  const TemporaryDirectory directory;
  const auto before = signal(SIGPIPE, SIG_IGN);
  CHECK(process_end(status_of(shell("kill -PIPE $$", directory))) == "was ended by signal 13 (Broken pipe)");
  signal(SIGPIPE, before);
}

TEST_CASE("a signal reaches a process that is stopped") {
  const TemporaryDirectory directory;
  const pid_t process = start_process(shell("kill -STOP $$; exit 3", directory));
  int status = 0;
  REQUIRE(waitpid(process, &status, WUNTRACED) == process);
  REQUIRE(WIFSTOPPED(status));
  signal_processes({process}, SIGTERM);
  CHECK(process_end(status_in_time(process)) == "was ended by signal 15 (Terminated)");
}

TEST_CASE("Ctrl-Z stops a process and those that it started, where somebody can continue it") {
  const TemporaryDirectory directory;
  const auto file = directory / "process";
  // In a session of its own nobody could.
  for (const bool orphaned : {false, true}) {
    std::filesystem::remove(file);
    const pid_t starter = fork();
    if (starter == 0) {
      orphaned ? setsid() : setpgid(0, 0);
      const BlockedSignals signals{SIGTSTP};
      const pid_t process = start_process(shell("sleep 60", directory));
      const auto sleeps = [&] { return state_of(process) == 'S'; };
      comes_to(sleeps);
      write_file(directory / "new", std::to_string(process));
      std::filesystem::rename(directory / "new", file);
      kill(getpid(), SIGTSTP);
      while (signals.next(1000) != SIGTSTP) continue;
      signal_processes({process}, SIGTSTP);
      const bool goes_on = comes_to(sleeps);
      signal_processes({process}, SIGKILL);
      _exit(goes_on ? 0 : 1);
    }
    if (!orphaned) {
      int status = 0;
      REQUIRE(waitpid(starter, &status, WUNTRACED) == starter);
      CHECK(WIFSTOPPED(status));
      const pid_t process = std::stoi(read_file(file));
      CHECK(comes_to([&] { return state_of(process) == 'T'; }));
      kill(starter, SIGCONT);
    }
    CHECK(process_end(status_in_time(starter)) == "ended with status 0");
  }
}

TEST_CASE("a program knows its file, or says what that takes") {
  CHECK(std::filesystem::equivalent(this_program("--this"), "/proc/self/exe"));
  constexpr int refused = 77;
  const int status = status_of_copy([] {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || mount("none", "/proc", "tmpfs", 0, nullptr) != 0) return refused;
    try {
      this_program("--that", "name it");
    } catch (const Failure& failure) {
      const std::string expected =
          "--that: the file of this program is not known (/proc/self/exe: No such file or directory); name it";
      return failure.what() == expected ? 0 : 1;
    }
    return 2;
  });
  if (status == refused << 8) {
    WARN("no test without /proc: not allowed here");
    return;
  }
  CHECK(process_end(status) == "ended with status 0");
}
