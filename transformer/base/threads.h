#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace transformer {

// Threads that begin here may run wherever this process may, where OpenMP has bound the one that starts them, too.

/// What OMP_NUM_THREADS says, of a list the first, which is of the outermost loops; none where it gives no number of 1
/// or more.
std::optional<int64_t> given_threads();
/// Threads that work which is shared out had better use, where nobody says how many: given_threads(), or one for each
/// of usable_cores().
int64_t default_threads();
/// The environment of each of `processes` that compute at a time on this machine: with given_threads(), or its part of
/// usable_cores(), and wherever it may run, since OpenMP would bind the threads of every one to the same first cores
/// (OMP_PROC_BIND, OMP_PLACES).
std::map<std::string, std::string> environment_of_shares(int processes);

/// Puts `count` threads into `threads`; each does what task(its number), called here, gives. Where they cannot all be
/// started, `end` is called, which has those that were end, they are waited for, and Failure is thrown, or what task
/// threw.
void start_threads(std::vector<std::jthread>& threads, size_t count,
                   const std::function<std::function<void()>(size_t number)>& task, const std::function<void()>& end);

/// work(first, last) on parts of [0, count) of `grain` each, the last perhaps smaller, as threads come to them: the
/// caller and others of its own, `threads` at most, and fewer where no more can be started. What work throws on the
/// first part that fails is thrown here, when all threads have ended.
void in_parallel(size_t count, size_t grain, int64_t threads,
                 const std::function<void(size_t first, size_t last)>& work);

}  // namespace transformer
