#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "transformer/training/distributed/rendezvous.h"

namespace transformer {

/// All ranks. Throws Error where no network interface is found that the others can reach, and where the one that
/// GLOO_SOCKET_IFNAME names cannot be used.
c10::intrusive_ptr<c10d::Backend> open_gloo(const StorePointer& store, const Launch& launch, double timeout);

}  // namespace transformer
