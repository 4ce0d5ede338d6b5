#pragma once

#include <memory>

#include "transformer/serving/http.h"
#include "transformer/serving/serving_context.h"

namespace transformer {

/// Whose words a request is in: LibreTranslate's (/translate), or this server's (/v1/translate).
enum class TranslationInterface {
  libretranslate,  // q, alternatives, and answers as its clients expect them
  own              // text, decoding, alignments, attention, streams
};

/// Answers a request for a translation: reads it and encodes its lines on the pool, has them decoded, and writes the
/// answer on the pool again. Lines are what line ends separate; each is translated by itself, as `translate` does it,
/// and one that is longer than the model takes as `translate --document` does it. A text in HTML is translated as
/// `translate --document --markup` does it, and counts as one line.
std::shared_ptr<HttpTask> start_translation(const ServingContext& context, TranslationInterface interface,
                                            HttpRequest request, std::shared_ptr<HttpReply> reply);

}  // namespace transformer
