#pragma once

#include <memory>

#include "transformer/serving/api_keys.h"
#include "transformer/serving/http.h"
#include "transformer/serving/served_models.h"
#include "transformer/serving/settings.h"
#include "transformer/serving/task_pool.h"

namespace transformer {

/// What a request meets as it comes; the next may meet other models.
struct ServingContext {
  const ServingSettings& settings;
  TaskPool& pool;
  std::shared_ptr<const ServedModels> models;
  std::shared_ptr<const ApiKeys> keys;
};

/// Whose words a request is in: LibreTranslate's (/translate), or this server's (/v1/translate).
enum class TranslationInterface { libretranslate, own };

/// Answers a request for a translation: reads it and encodes its lines on the pool, has them decoded, and writes the
/// answer on the pool again. Lines are what line ends separate; each is translated by itself, as `translate` does it.
std::shared_ptr<HttpTask> start_translation(const ServingContext& context, TranslationInterface interface,
                                            HttpRequest request, std::shared_ptr<HttpReply> reply);

}  // namespace transformer
