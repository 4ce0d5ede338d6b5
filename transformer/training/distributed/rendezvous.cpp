#include "transformer/training/distributed/rendezvous.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "transformer/base/error.h"
#include "transformer/training/distributed/clock.h"
#include "transformer/training/distributed/message_of.h"
#include "transformer/training/distributed/rank_state.h"

namespace transformer {

StorePointer open_store(const Launch& launch, double timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = launch.rank == 0 && !launch.agent_store;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout);
  const auto place = fmt::format("{}:{}", launch.address, launch.port);
  try {
    return c10::make_intrusive<c10d::TCPStore>(launch.address, options);
  } catch (const std::exception& error) {
    const auto reason = message_of(error);
    if (options.isServer) {
      throw Error("MASTER_PORT", fmt::format("rank 0 cannot open port {} ({})", launch.port, reason),
                  "choose a port that is free on its machine");
    }
    throw Failure(fmt::format("rank {}", launch.rank),
                  fmt::format("cannot reach {} at {} within {:g} s ({})",
                              launch.agent_store ? launcher_name(launch.launcher) : "rank 0", place, timeout, reason));
  }
}

StorePointer with_prefix(const StorePointer& store, const Launch& launch) {
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("transformer/{}", launch.run), store);
}

void meet(const StorePointer& store, const Launch& launch, double timeout) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < launch.world_size; ++rank) keys.push_back(state_key(rank));
  store->set(state_key(launch.rank), RankState().bytes());
  try {
    store->wait(keys, milliseconds(timeout));
  } catch (const std::exception& error) {
    std::string missing;
    int count = 0;
    for (int rank = 0; rank < launch.world_size; ++rank) {
      if (store->check({state_key(rank)})) continue;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
      ++count;
    }
    if (count == 0) throw Failure(fmt::format("rank {}", launch.rank), message_of(error));
    throw Failure(fmt::format("rank {}", launch.rank),
                  fmt::format("{} {} of {} did not come to {}:{} within {:g} s", count == 1 ? "rank" : "ranks", missing,
                              launch.world_size, launch.address, launch.port, timeout));
  }
}

}  // namespace transformer
