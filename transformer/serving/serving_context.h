#pragma once

#include <memory>

#include "transformer/serving/api_keys.h"
#include "transformer/serving/served_models.h"
#include "transformer/serving/settings.h"
#include "transformer/serving/task_pool.h"

namespace transformer {

/// What a request meets as it comes; the next may meet other models.
struct ServingContext {
  const ServingSettings& settings;
  TaskPool& pool;      // for what is short
  TaskQueue& scoring;  // where given translations are judged, a few at a time
  std::shared_ptr<const ServedModels> models;
  std::shared_ptr<const ApiKeys> keys;
};

}  // namespace transformer
