#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace transformer {

/// SplitMix64 (Steele, Lea and Flood 2014). The standard library leaves open how its distributions and std::shuffle
/// draw, so a run could not be resumed on another system with them.
class Random {
 public:
  /// A stream of its own for every seed and every list of numbers that say what it is for.
  template <std::same_as<uint64_t>... Numbers>
  explicit Random(uint64_t seed, Numbers... purpose) : state_(seed) {
    ((state_ = next() ^ purpose), ...);
  }

  /// 64 random bits.
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  /// From 0 to bound - 1, all alike probable. `bound` must not be 0.
  uint64_t below(uint64_t bound) {
    // Numbers from the last, incomplete multiple of bound would favour small results.
    const uint64_t limit = std::numeric_limits<uint64_t>::max() / bound * bound;
    uint64_t number = next();
    while (number >= limit) number = next();
    return number % bound;
  }

  /// Puts `items` into a random order, all orders alike probable (Fisher and Yates).
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace transformer
