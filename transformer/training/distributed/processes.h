#pragma once

#include <string>
#include <vector>

namespace transformer {

/// How patient run_processes is.
struct ProcessesOptions {
  /// How long the others may go on after one process failed. They are told of it at once and normally end by
  /// themselves; then they get SIGTERM, and `kill_seconds` later SIGKILL, rank 0 when its work alone is done.
  double grace_seconds = 10;
  double kill_seconds = 5;  // between SIGTERM and SIGKILL
};

/// Starts `count` copies of this program with `arguments` (the first is the program's name) as ranks 0 to count - 1 on
/// this machine, waits for them all and returns an exit status: 0 when all ended with 0, else what the first ended with
/// whose fault it is (1 for a signal). Which rank ended how goes to standard error. Copies read_launch their place.
///
/// SIGINT, SIGTERM and SIGHUP are passed on to all of them, once, and ending by them, with 130 or with 128 and the
/// signal's number, is then in order. SIGTSTP stops them and this process until it is continued (signal_processes),
/// which within the time limit of their operations disturbs nothing. They have a process group of their own each, so
/// that a terminal's Ctrl-C does not reach them twice. They are killed when this process dies. This process holds their
/// store, on the loopback interface and a port of the system's choice, so that nobody can take the port in between, and
/// nobody outside this machine can reach it.
///
/// Call it before this process starts threads: signals are to arrive here and nowhere else. Throws Error for a count
/// below 1 or inside a process that a launcher started, Failure when a process cannot be started, also because this
/// program's file is not known (this_program).
int run_processes(int count, const std::vector<std::string>& arguments, const ProcessesOptions& options = {});

}  // namespace transformer
