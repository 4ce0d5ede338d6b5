// What a monitor does for a main thread that nothing would wake, as on a GPU: operations there return at once, and wait
// for ever where a rank does not come.
#include "transformer/training/distributed/monitor.h"

#include <atomic>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "support.h"

using namespace transformer;

namespace {

// Two ranks in one process, which share a store and are told when they would end.
struct Ranks {
  c10::intrusive_ptr<c10d::HashStore> store = c10::make_intrusive<c10d::HashStore>();
  std::shared_ptr<Monitor> monitors[2];
  std::atomic<int> ended[2] = {0, 0};
  std::mutex mutex;
  std::string reasons[2];

  explicit Ranks(double timeout = 2) {
    for (int rank = 0; rank < 2; ++rank) store->set(state_key(rank), RankState().bytes());
    for (int rank = 0; rank < 2; ++rank) {
      Launch launch;
      launch.rank = launch.local_rank = rank;
      launch.world_size = launch.local_world_size = 2;
      launch.agent_store = true;
      monitors[rank] = std::make_shared<Monitor>(store, launch, timeout, [this, rank](const std::string& reason) {
        const std::lock_guard lock(mutex);
        if (ended[rank]++ == 0) reasons[rank] = reason;
      });
      monitors[rank]->start();
    }
  }
  ~Ranks() {
    for (auto& monitor : monitors) {
      if (monitor) monitor->stop();
    }
  }

  std::string reason(int rank) {
    const std::lock_guard lock(mutex);
    return reasons[rank];
  }
};

void wait(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

bool within(double seconds, const std::function<bool()>& happens) {
  for (double waited = 0; waited < seconds; waited += 0.05) {
    if (happens()) return true;
    wait(0.05);
  }
  return happens();
}

}  // namespace

TEST_CASE("a rank that hangs is named by the others, which wait for it in operations that never end") {
  Ranks ranks;
  for (auto& monitor : ranks.monitors) monitor->enter();
  ranks.monitors[0]->enter();  // rank 1 does not come to this one
  REQUIRE(within(30, [&] { return ranks.ended[0] > 0; }));
  CHECK(ranks.reason(0) ==
        "rank 0: stopped, because rank 1 did not come to an operation of all ranks within 2 s, although its process is "
        "alive");
  CHECK(ranks.ended[1] == 0);
}

TEST_CASE("ranks that move, however slowly, are left alone") {
  Ranks ranks;
  for (int step = 0; step < 9; ++step) {
    ranks.monitors[0]->enter();
    wait(0.7);  // less than the limit, and all together more
    ranks.monitors[1]->enter();
  }
  CHECK(ranks.ended[0] + ranks.ended[1] == 0);
}

TEST_CASE("rank 0 is not cut off while it works alone, and only then") {
  Ranks ranks;
  ranks.monitors[0]->begin_section();                    // it writes a checkpoint
  ranks.monitors[1]->fail(1, "rank 1 failed: made up");  // and meanwhile the other fails
  wait(7);                                               // that would have been its end
  CHECK(ranks.ended[0] == 0);
  ranks.monitors[0]->end_section();
  REQUIRE(within(30, [&] { return ranks.ended[0] > 0; }));
  CHECK(ranks.reason(0) == "rank 0: stopped, because rank 1 failed: made up");
}

TEST_CASE("that rank 0 has ended its work alone is heard at once, not with the next sign of life") {
  Ranks ranks(200);  // a sign of life a second
  const auto begun = Clock::now();
  for (int64_t section = 1; section <= 10; ++section) {
    wait(0.1);  // both are at work, and nobody waits for anything
    ranks.monitors[0]->begin_section();
    ranks.monitors[0]->end_section();
    ranks.monitors[1]->wait_for_section(section);
  }
  CHECK(seconds_since(begun) < 6);
}
