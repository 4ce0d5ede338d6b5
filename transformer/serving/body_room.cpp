#include "transformer/serving/body_room.h"

#include <malloc.h>

namespace transformer {

namespace {

// What is freed stays with the process, which is good for what comes again and again, and bad for a flood that is over.
constexpr size_t flood_bytes = size_t{64} << 20, few_bytes = size_t{1} << 20;

}  // namespace

void BodyRoom::take(size_t bytes) {
  const size_t now = bytes_ += bytes;
  for (size_t most = most_; most < now && !most_.compare_exchange_weak(most, now);) {
  }
}

void BodyRoom::give_back(size_t bytes) {
  const size_t now = bytes_ -= bytes;
  if (now < few_bytes && most_ > flood_bytes && most_.exchange(now) > flood_bytes) malloc_trim(0);
}

}  // namespace transformer
