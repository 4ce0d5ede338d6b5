#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace transformer {

/// JSON in one line, in which what is no UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace transformer
