#pragma once

#include <memory>

#include "transformer/serving/http.h"
#include "transformer/serving/serving_context.h"

namespace transformer {

/// Answers a request of /v1/score: how probable a model finds given translations. They are judged a few at a time, in
/// turns with those of other clients.
std::shared_ptr<HttpTask> start_scoring(const ServingContext& context, HttpRequest request,
                                        std::shared_ptr<HttpReply> reply);

}  // namespace transformer
