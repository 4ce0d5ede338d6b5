#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace transformer {

/// What a rank says of itself; one value in the store, replaced by its monitor all the time.
struct RankState {
  enum class Phase : char { running = 'r', left = 'l', failed = 'f' };

  int64_t beat = 0;      // grows as long as the process lives
  int64_t entered = 0;   // operations of all ranks that it has begun, each bucket of gradients one of them
  int64_t sections = 0;  // rank 0: calls of on_rank_0 that have ended
  Phase phase = Phase::running;
  int origin = -1;     // failed: the rank at fault, which may be another; -1: unknown
  std::string reason;  // failed: a sentence that begins with whose fault it is

  std::vector<uint8_t> bytes() const;
  static RankState read(const std::vector<uint8_t>& bytes);
};

/// Where a rank's state lies in the store.
std::string state_key(int rank);

}  // namespace transformer
