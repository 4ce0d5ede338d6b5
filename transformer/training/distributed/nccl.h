#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "transformer/training/distributed/rendezvous.h"

namespace transformer {

/// All ranks. Opens the module that nccl/ is built into. Throws Error, each in its own words, where that is missing or
/// cannot be loaded, and where NCCL itself refuses, as without a GPU.
c10::intrusive_ptr<c10d::Backend> open_nccl(const StorePointer& store, const Launch& launch, double timeout);

}  // namespace transformer
