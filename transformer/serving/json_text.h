#pragma once

#include <string>

namespace transformer {

/// JSON, as nlohmann-json has it, in one line, in which what is no UTF-8 becomes U+FFFD.
template <class Json>
std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace transformer
