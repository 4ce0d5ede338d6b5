#include "transformer/training/distributed/store_host.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "transformer/training/distributed/rank_state.h"
#include "transformer/training/distributed/rendezvous.h"

namespace transformer {

struct StoreHost::Impl {
  StorePointer store;
};

StoreHost::StoreHost(const Launch& launch, int descriptor) : impl_(std::make_unique<Impl>()) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = descriptor;
  impl_->store = with_prefix(c10::make_intrusive<c10d::TCPStore>(launch.address, options), launch);
}
StoreHost::~StoreHost() = default;

void StoreHost::note_end(int rank, const std::string& how) {
  const auto key = state_key(rank);
  RankState state;
  if (impl_->store->check({key})) state = RankState::read(impl_->store->get(key));
  if (state.phase == RankState::Phase::failed) return;
  state.phase = RankState::Phase::failed;
  state.origin = rank;
  state.reason = fmt::format("rank {} {}", rank, how);
  impl_->store->set(key, state.bytes());
}

}  // namespace transformer
