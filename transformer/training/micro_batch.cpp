#include "transformer/training/micro_batch.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <utility>

#include "transformer/base/memory.h"
#include "transformer/model/tensor_memory.h"

namespace transformer {

namespace {

// Of a CPU's memory that is available. The rest is for what is no tensor, and for gaps between them.
constexpr double usable_share = 0.8;

}  // namespace

std::vector<int64_t> micro_batch_sizes(int64_t batch_tokens, int64_t processes, int64_t longest) {
  std::vector<int64_t> sizes;
  // Half as many again each time, once the steps of one have become small.
  for (int64_t passes = 1;; passes += std::max<int64_t>(1, passes / 2)) {
    const int64_t size = std::max(longest, batch_tokens / (processes * passes));
    if (sizes.empty() || size < sizes.back()) sizes.push_back(size);
    if (size == longest) return sizes;
  }
}

MemoryProbe::MemoryProbe(Options options) : options_(std::move(options)) {}

bool MemoryProbe::try_pass(int64_t tokens) const {
  try {
    at::Tensor reserved;
    if (!options_.device.is_cpu())
      reserved = at::empty({options_.reserved_bytes}, at::device(options_.device).dtype(at::kByte));
    options_.pass(tokens);
    return true;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    return false;
  }
}

void MemoryProbe::measure() {
  measured_ = true;
  const int64_t few = options_.smallest_tokens, more = 4 * few;
  const auto peak = [&](int64_t tokens) {
    return static_cast<double>(peak_tensor_bytes([&] { out_of_memory_ |= !try_pass(tokens); }));
  };
  peak(few);  // what the first pass allocates for good, such as gradients
  allowed_bytes_ = usable_share * static_cast<double>(available_bytes()) / options_.processes_here -
                   static_cast<double>(options_.reserved_bytes);
  const double small = peak(few), large = peak(more);
  bytes_a_token_ = (large - small) / static_cast<double>(more - few);
  fixed_bytes_ = large - bytes_a_token_ * static_cast<double>(more);
}

bool MemoryProbe::fits(int64_t tokens) {
  if (options_.device.is_cpu()) {
    if (tokens <= options_.smallest_tokens) return try_pass(tokens);
    if (!measured_) measure();
    return !out_of_memory_ && fixed_bytes_ + bytes_a_token_ * static_cast<double>(tokens) <= allowed_bytes_;
  }
  const auto try_apart = [&](int64_t size) {
    const bool passed = try_pass(size);
    // What one pass has left in pieces must not stand in the way of the next.
    c10::getDeviceAllocator(options_.device.type())->emptyCache();
    return passed;
  };
  // The first pass loads kernels and makes workspaces, for which a large one would leave no room.
  if (!std::exchange(warm_, true)) try_apart(std::min(tokens, options_.smallest_tokens));
  return try_apart(tokens + tokens / 10);
}

}  // namespace transformer
