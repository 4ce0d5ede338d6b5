#include "transformer/serving/request_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "transformer/base/described.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/request_error.h"

namespace transformer {

namespace {

size_t count_characters(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), continues_character));
}

}  // namespace

void check_key(const ServingContext& context, HttpRequest& request, const std::string& given) {
  if (!context.keys->needed()) return;
  const auto& key = request.api_key.empty() ? given : request.api_key;
  if (key.empty()) throw RequestError(403, "an API key is needed");
  const auto number = context.keys->find(key);
  if (!number) throw RequestError(403, "the API key is none of this server's");
  request.client = fmt::format("key {}", *number + 1);
}

void check_is_json(const HttpRequest& request) {
  const auto& type = request.content_type;
  if (type.empty() || type == "application/json" || type.ends_with("+json")) return;
  throw RequestError(415,
                     fmt::format("a body of the type {} is not read here: send application/json", printable(type)));
}

void check_characters(const ServingSettings& settings, const std::vector<std::string>& texts) {
  size_t characters = 0;
  for (const auto& text : texts) characters += count_characters(text);
  if (characters > static_cast<size_t>(settings.max_characters)) {
    throw RequestError(413, fmt::format("a request holds {} characters at most, and this has {}",
                                        settings.max_characters, characters));
  }
}

HttpResponse answer_of_exception() {
  try {
    throw;
  } catch (const RequestError& error) {
    return error_response(error.status(), error.what(), error.retry_seconds());
  } catch (...) {
    const auto described = described_exception();
    return error_response(described.mistake ? 400 : 500, described.text);
  }
}

}  // namespace transformer
