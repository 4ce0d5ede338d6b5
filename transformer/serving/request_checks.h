#pragma once

#include <string>
#include <vector>

#include "transformer/serving/http.h"
#include "transformer/serving/serving_context.h"

namespace transformer {

/// Throws RequestError (403) where the server asks for a key and neither the request's headers nor `key`, of its body,
/// is one; else makes it the client that turns are counted by.
void check_key(const ServingContext& context, HttpRequest& request, const std::string& key);
/// Throws RequestError (415) where the body is not said to be JSON.
void check_is_json(const HttpRequest& request);
/// Throws RequestError (413) for more characters in all texts than a request may have.
void check_characters(const ServingSettings& settings, const std::vector<std::string>& texts);

/// The answer to what is being thrown: RequestError's own, 400 for other mistakes of whoever asks, 500 for the rest.
HttpResponse answer_of_exception();

}  // namespace transformer
