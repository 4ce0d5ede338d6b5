#include "transformer/base/threads.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace transformer {

int64_t default_threads() {
  constexpr int64_t most = 1024;
  if (const char* given = std::getenv("OMP_NUM_THREADS")) {
    // OpenMP takes a list for nested loops, too; the first is that of the outermost.
    const std::string_view text(given);
    int64_t threads = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), threads).ec == std::errc() && threads > 0) {
      return std::min(threads, most);
    }
  }
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::clamp<int64_t>(CPU_COUNT(&allowed), 1, most);
  return std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, most);  // more processors than the set holds
}

}  // namespace transformer
