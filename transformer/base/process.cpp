#include "transformer/base/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "transformer/base/control_group.h"
#include "transformer/base/error.h"

namespace transformer {

BlockedSignals::BlockedSignals(std::initializer_list<int> signals) {
  sigemptyset(&set_);
  for (const int signal : signals) {
    // Blocked, it would no longer be ignored.
    struct sigaction given {};
    const bool ignored = sigaction(signal, nullptr, &given) == 0 && given.sa_handler == SIG_IGN;
    if (ignored && signal != SIGCHLD) continue;
    sigaddset(&set_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &child_before_);
}

BlockedSignals::~BlockedSignals() {
  sigaction(SIGCHLD, &child_before_, nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int BlockedSignals::next(int milliseconds) const {
  const timespec time{milliseconds / 1000, milliseconds % 1000 * 1000000L};
  const int signal = sigtimedwait(&set_, nullptr, &time);
  return signal > 0 ? signal : 0;
}

bool SignalWishes::again(int signal) {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return again(signal, int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1000000);
}

bool SignalWishes::again(int signal, int64_t now) {
  static_assert(SIGHUP < SIGTERM && SIGINT < SIGTERM && std::atomic<int64_t>::is_always_lock_free);
  int64_t first = 0;
  return !first_came_[signal].compare_exchange_strong(first, now) && now - first > seconds_together(signal) * 1000;
}

void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

namespace {

// Pointers to a list of strings, as execve takes them.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> changed_environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable) {
    const std::string text = *variable;
    if (!changes.contains(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  for (const auto& [name, value] : changes) variables.push_back(fmt::format("{}={}", name, value));
  return variables;
}

}  // namespace

pid_t start_process(const ProcessOptions& options) {
  // All memory is taken before the fork: after it, only calls that signal handlers may make are safe.
  auto arguments = options.command;
  auto variables = changed_environment(options.environment);
  const auto argument_pointers = pointers_to(arguments), variable_pointers = pointers_to(variables);
  const bool logged = !options.log.empty();
  const int log = logged ? open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
  if (logged && log < 0) throw Failure(options.log.string(), fmt::format("cannot be written: {}", strerror(errno)));
  const auto processors = unbound_processors();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) {
    const int reason = errno;
    if (logged) close(log);
    if (child < 0) throw Failure(arguments[0], fmt::format("cannot start a process: {}", strerror(reason)));
    return child;
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before prctl
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (logged) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
  }
  run_on(processors);
  std::signal(SIGTTOU, SIG_IGN);  // its group is in the background of this process's terminal
  std::signal(SIGPIPE, SIG_DFL);  // what is ignored stays so in the program
  sigprocmask(SIG_SETMASK, &options.signals, nullptr);
  execvpe(argument_pointers[0], argument_pointers.data(), variable_pointers.data());
  const char* reason = strerrordesc_np(errno);
  for (const char* text :
       std::initializer_list<const char*>{argument_pointers[0], ": error: cannot be started: ", reason, "\n"}) {
    if (text && write(STDERR_FILENO, text, strlen(text)) < 0) break;
  }
  _exit(127);
}

void signal_processes(const std::vector<pid_t>& processes, int signal) {
  const auto send = [&](int each) {
    for (const pid_t process : processes) kill(process, each);
  };
  if (signal == SIGTSTP) {
    send(SIGSTOP);
    sigset_t stop, before;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &stop, &before);  // here it stops
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  } else {
    send(signal);
  }
  send(SIGCONT);
}

std::string process_end(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

std::filesystem::path this_program(const std::string& asker, const std::string& remedy) {
  constexpr const char* link = "/proc/self/exe";
  std::error_code error;
  auto program = std::filesystem::read_symlink(link, error);
  if (error) {
    throw Failure(asker, fmt::format("the file of this program is not known ({}: {})", link, error.message()), remedy);
  }
  return program;
}

std::vector<int> unbound_processors() {
  // OpenMP has bound its first thread before anybody could ask what that was allowed; its places are what it found.
  const auto number_of = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_num_places"));
  const auto size_of = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "omp_get_place_num_procs"));
  const auto take = reinterpret_cast<void (*)(int, int*)>(dlsym(RTLD_DEFAULT, "omp_get_place_proc_ids"));
  cpu_set_t own;
  if (!number_of || !size_of || !take || sched_getaffinity(0, sizeof own, &own) != 0) return {};
  cpu_set_t all = own;
  const int places = number_of();
  for (int place = 0; place < places; ++place) {
    std::vector<int> processors(static_cast<size_t>(std::max(0, size_of(place))));
    take(place, processors.data());
    for (const int processor : processors) CPU_SET(processor, &all);
  }
  std::vector<int> numbers;
  for (int number = 0; number < CPU_SETSIZE && !CPU_EQUAL(&own, &all); ++number) {
    if (CPU_ISSET(number, &all)) numbers.push_back(number);
  }
  return numbers;
}

void run_on(const std::vector<int>& processors) {
  if (processors.empty()) return;
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const int number : processors) CPU_SET(number, &all);
  sched_setaffinity(0, sizeof all, &all);
}

int group_cores() {
  constexpr int most = 1 << 20;
  return std::max(1, static_cast<int>(std::min<double>(most, std::ceil(control_group_limits().processors))));
}

int usable_cores() {
  cpu_set_t own;  // cannot be had where there are more than the set holds
  int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (const auto processors = unbound_processors(); !processors.empty()) {
    cores = static_cast<int>(processors.size());
  } else if (sched_getaffinity(0, sizeof own, &own) == 0) {
    cores = CPU_COUNT(&own);
  }
  return std::max(1, std::min(cores, group_cores()));
}

}  // namespace transformer
