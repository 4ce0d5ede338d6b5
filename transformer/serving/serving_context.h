#pragma once

#include <memory>

#include "transformer/serving/api_keys.h"
#include "transformer/serving/served_models.h"
#include "transformer/serving/settings.h"
#include "transformer/serving/task_pool.h"
#include "transformer/serving/turn_queue.h"

namespace transformer {

/// What a request meets as it comes; the next may meet other models.
struct ServingContext {
  const ServingSettings& settings;             // the server's, the same for all requests
  TaskPool& pool;                              // for all but decoding
  TurnQueue& scoring;                          // where given translations are judged, a few at a time
  TurnQueue& aligning;                         // where words of translations are aligned
  std::shared_ptr<const ServedModels> models;  // as last loaded
  std::shared_ptr<const ApiKeys> keys;         // as last loaded
};

}  // namespace transformer
