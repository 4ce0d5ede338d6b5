#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace transformer {

/// Signals that wait to be asked for instead of interrupting, for as long as this lives. Make it before threads start:
/// those inherit what is blocked. SIGCHLD works meanwhile even where a parent left it ignored; all others stay
/// ignored where they are: by nohup, or by a script's shell for what it starts with &.
class BlockedSignals {
 public:
  /// Blocks `signals` in this thread and in those that it starts from now on.
  explicit BlockedSignals(std::initializer_list<int> signals);
  /// Puts back what was blocked before.
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  /// The next signal, or 0 after `milliseconds`.
  int next(int milliseconds) const;
  /// What was blocked before: for processes that are started.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t set_{}, before_{};
  struct sigaction child_before_ {};
};

/// Which of the signals that ask this process to end are wishes of their own. Those that come together are one wish: a
/// service that is stopped gets a signal in all of its processes, and who started this one passes its own on, or one of
/// another kind, when it comes to it. Signal handlers may ask, too.
class SignalWishes {
 public:
  /// The seconds in which another of SIGINT, SIGTERM or SIGHUP belongs to the first. Ctrl-C is a person's, who waits
  /// for less.
  static constexpr int seconds_together(int signal) { return signal == SIGINT ? 1 : 5; }
  /// Whether `signal`, which came just now, is a second wish: the first of its kind came longer ago than that.
  bool again(int signal);
  /// The same at a time, in milliseconds from any that is before all of them.
  bool again(int signal, int64_t now);

 private:
  std::atomic<int64_t> first_came_[SIGTERM + 1] = {};  // by their numbers; 0: it has not
};

/// A write whose reader is gone is an error from now on, not the end of this process, unless somebody handles SIGPIPE.
void ignore_broken_pipes();

/// What start_process is told.
struct ProcessOptions {
  std::vector<std::string> command;                // the program, looked up in PATH where it has no slash
  std::map<std::string, std::string> environment;  // variables that differ from this process's
  std::filesystem::path log;  // where standard output and error are appended; empty: to this process's own
  sigset_t signals{};         // what it starts with blocked
};

/// Starts a process in a group of its own, so that a terminal's Ctrl-C does not reach it twice, without standard input.
/// It is killed when the thread that started it ends, however that ends. It may run wherever this process may, where
/// OpenMP has bound this thread, too. It may write to a terminal that stops what
/// else writes there from the background (stty tostop), and a broken pipe ends it whatever this process does about one.
/// A program that cannot be started ends with status 127 and a line in its log. Throws Failure when the log cannot be
/// written or no process be made.
pid_t start_process(const ProcessOptions& options);

/// Sends `signal` to `processes`, of start_process, and lets those that are stopped go on: they would not get it
/// before. SIGTSTP, a terminal's Ctrl-Z, stops them and this process until that is continued. Where nobody would
/// continue it, as what `ssh -t` starts, the system stops it no more than any other program, and they go on at once.
void signal_processes(const std::vector<pid_t>& processes, int signal);

/// What waitpid says, for people: "was ended by signal 9 (Killed)", "ended with status 2".
std::string process_end(int status);

/// The file of the program that this process runs. Throws Failure naming `asker`, what needs it, where the system does
/// not tell: /proc is not mounted; `remedy` is what to do then.
std::filesystem::path this_program(const std::string& asker, const std::string& remedy = "mount /proc");

/// Where OpenMP has bound this thread to a part of the processors that it was given (OMP_PROC_BIND, OMP_PLACES), the
/// numbers of all of them: for threads and processes that are none of OpenMP's, and would begin bound as well. Else
/// none.
std::vector<int> unbound_processors();
/// Lets the calling thread run on `processors`, where there are any. May be called between fork and exec.
void run_on(const std::vector<int>& processors);

/// Cores that the control group lets be busy at a time; as good as any number where it sets no limit.
int group_cores();
/// Cores that this process may use: those it may run on, wherever OpenMP has bound this thread, and group_cores() at
/// most.
int usable_cores();

}  // namespace transformer
