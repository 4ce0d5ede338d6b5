#pragma once

#include <cstdint>

namespace transformer {

/// Threads that work which is shared out had better use, where nobody says how many: OMP_NUM_THREADS, or one for each
/// processor that this process may run on.
int64_t default_threads();

}  // namespace transformer
