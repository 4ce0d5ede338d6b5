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

/// Comes to the store, waits for all others to do so, and returns the part of it that is theirs. Throws Failure naming
/// those that did not come within `timeout` seconds; Error where this process was told another number of ranks than
/// rank 0.
///
/// Where the store outlives attempts, the part is a new one each time: rank 0 makes up a name for it, says it, and
/// lists those that came there. A process that is not listed has found what an earlier attempt left, or an earlier self
/// of it is listed: it waits for the next rank 0. Processes of an attempt with another number of them do not meet.
StorePointer meet(const StorePointer& store, const Launch& launch, double timeout);

}  // namespace transformer
