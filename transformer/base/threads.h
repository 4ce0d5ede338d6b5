#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <system_error>

#include "transformer/base/error.h"

namespace transformer {

/// Threads that work which is shared out had better use, where nobody says how many: OMP_NUM_THREADS, or one for each
/// processor that this process may run on.
int64_t default_threads();

/// What to throw where a thread could not be started, and `started` of those that were wanted had been.
Failure cannot_start(const std::system_error& error, size_t started, size_t wanted);

/// work(first, last) on parts of [0, count) of `grain` each, the last perhaps smaller, as threads come to them: the
/// caller and others of its own, `threads` at most, and fewer where no more can be started. What work throws on the
/// first part that fails is thrown here, when all threads have ended.
void in_parallel(size_t count, size_t grain, int64_t threads,
                 const std::function<void(size_t first, size_t last)>& work);

}  // namespace transformer
