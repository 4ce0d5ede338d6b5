#include "transformer/training/micro_batch.h"

#include <ATen/ATen.h>

#include <new>

#include "support.h"
#include "transformer/base/memory.h"
#include "transformer/model/tensor_memory.h"

using namespace transformer;

namespace {

constexpr int64_t bytes_a_token = 100'000, fixed = 20'000'000;

void take_memory(int64_t tokens) {
  const auto taken = at::empty({fixed}, at::kByte), grown = at::empty({tokens * bytes_a_token}, at::kByte);
}

}  // namespace

TEST_CASE("micro-batches divide a batch, down to the longest pair") {
  CHECK(micro_batch_sizes(25000, 1, 5000) == std::vector<int64_t>{25000, 12500, 8333, 6250, 5000});
  CHECK(micro_batch_sizes(25000, 8, 200) == std::vector<int64_t>{3125, 1562, 1041, 781, 520, 347, 240, 200});
  CHECK(micro_batch_sizes(100, 1, 100) == std::vector<int64_t>{100});
  // A pair longer than a process's part of the batch has to fit all the same.
  CHECK(micro_batch_sizes(100, 4, 60) == std::vector<int64_t>{60});
}

TEST_CASE("what fits into memory is found out from small passes") {
  int64_t largest_tried = 0, passes = 0;
  MemoryProbe probe({.smallest_tokens = 256, .pass = [&](int64_t tokens) {
                       ++passes;
                       largest_tried = std::max(largest_tried, tokens);
                       take_memory(tokens);
                     }});
  // What is available may change while this runs: limits are met by a wide margin.
  const double available = static_cast<double>(available_bytes());
  REQUIRE(available > 500e6);
  const auto tokens_for = [&](double share) {
    return static_cast<int64_t>((share * available - fixed) / bytes_a_token);
  };
  CHECK(probe.fits(tokens_for(0.6)));
  CHECK_FALSE(probe.fits(tokens_for(1.1)));
  CHECK(largest_tried == 1024);  // measured once, and not by trying
  CHECK(passes == 3);

  SECTION("processes share what there is") {
    MemoryProbe one_of_four(
        {.processes_here = 4, .smallest_tokens = 256, .pass = [](int64_t tokens) { take_memory(tokens); }});
    CHECK(one_of_four.fits(tokens_for(0.1)));
    CHECK_FALSE(one_of_four.fits(tokens_for(0.3)));
  }
  SECTION("what training needs besides is put aside") {
    MemoryProbe modest({.reserved_bytes = static_cast<int64_t>(0.5 * available),
                        .smallest_tokens = 256,
                        .pass = [](int64_t tokens) { take_memory(tokens); }});
    CHECK(modest.fits(tokens_for(0.15)));
    CHECK_FALSE(modest.fits(tokens_for(0.5)));
  }
}

TEST_CASE("a pass that runs out of memory does not fit, other errors pass through") {
  MemoryProbe full({.pass = [](int64_t) { throw std::bad_alloc(); }});
  CHECK_FALSE(full.fits(1));
  MemoryProbe broken({.pass = [](int64_t) { throw std::logic_error("another"); }});
  CHECK_THROWS_AS(broken.fits(1), std::logic_error);
}
