#include "transformer/training/distributed/store_host.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "transformer/base/process.h"
#include "transformer/training/distributed/rendezvous.h"

namespace transformer {

struct StoreHost::Impl {
  StorePointer store;
};

StoreHost::StoreHost(const Launch& launch, int descriptor) : impl_(std::make_unique<Impl>()) {
  ignore_broken_pipes();  // who reads from the store may have died
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = descriptor;
  impl_->store = with_prefix(c10::make_intrusive<c10d::TCPStore>(launch.address, options), launch);
}
StoreHost::~StoreHost() = default;

RankState StoreHost::state(int rank) const {
  const auto key = state_key(rank);
  return impl_->store->check({key}) ? RankState::read(impl_->store->get(key)) : RankState();
}

void StoreHost::note_end(int rank, const std::string& how) {
  auto state = this->state(rank);
  if (state.phase == RankState::Phase::failed) return;
  state.phase = RankState::Phase::failed;
  state.origin = rank;
  state.reason = fmt::format("rank {} {}", rank, how);
  impl_->store->set(state_key(rank), state.bytes());
}

}  // namespace transformer
