#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace transformer {

/// What a rank says of itself; one value in the store, replaced by its monitor all the time.
struct RankState {
  /// How it is, by its sign in the store.
  enum class Phase : char {
    running = 'r',  // at work
    left = 'l',     // came to its end in good order
    failed = 'f'    // ends because of a failure
  };

  int64_t beat = 0;              // grows as long as the process lives
  int64_t entered = 0;           // operations of all ranks that it has begun, each bucket of gradients one of them
  int64_t sections = 0;          // rank 0: calls of on_rank_0 that have ended
  bool alone = false;            // rank 0: within such a call
  Phase phase = Phase::running;  // as it was when the value was written
  int origin = -1;               // failed: the rank at fault, which may be another; -1: unknown
  int world_size = 0;            // how many ranks it was told that there are; 0: it has not said so
  std::string reason;            // failed: a sentence that begins with whose fault it is

  /// As it is kept in the store.
  std::vector<uint8_t> bytes() const;
  /// From what bytes() gave; nothing is checked.
  static RankState read(const std::vector<uint8_t>& bytes);
};

/// Where a rank's state lies in the store.
std::string state_key(int rank);

}  // namespace transformer
