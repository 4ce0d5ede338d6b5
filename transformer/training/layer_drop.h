#pragma once

#include "transformer/architecture/settings.h"
#include "transformer/model/transformer.h"

namespace transformer {

/// The paper's layers, each of which training leaves out with `probability` (LayerDrop; Fan et al., 2020, "Reducing
/// Transformer Depth on Demand with Structured Dropout"): its input goes on as it came, for a whole micro-batch, and
/// its parameters get no gradient, for which Trainer takes zeros. Outside of training all layers work. Which are left
/// out follows from LibTorch's random numbers on the CPU, as dropout does, so a Trainer's seed, step and micro-batch
/// decide. Parameters have the names of a model without it. Empty for a probability of 0; throws std::invalid_argument
/// unless it is at least 0 and below 1.
LayerFactories layer_drop(const ModelSettings& settings, double probability);

/// While one lives, no layer of any model is left out: for what has to know how much memory all of them take.
class KeepLayers {
 public:
  KeepLayers();
  ~KeepLayers();
  KeepLayers(const KeepLayers&) = delete;
  KeepLayers& operator=(const KeepLayers&) = delete;
};

}  // namespace transformer
