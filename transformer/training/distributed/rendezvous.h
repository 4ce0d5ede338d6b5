#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "transformer/training/distributed/launch.h"

namespace transformer {

/// LibTorch's store of keys and values.
using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// The store that the processes of a run meet at: opened here by rank 0, unless the launcher holds it, and reached by
/// the others. Throws Error for a port that is taken, Failure where no store answers within `timeout` seconds.
StorePointer open_store(const Launch& launch, double timeout);

/// This run's part of a store that others may use, too.
StorePointer with_prefix(const StorePointer& store, const Launch& launch);

/// Comes to the store and waits for all others to do so. Throws Failure naming those that did not in time.
void meet(const StorePointer& store, const Launch& launch, double timeout);

}  // namespace transformer
