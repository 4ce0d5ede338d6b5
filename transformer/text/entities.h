#pragma once

#include <cstddef>
#include <string_view>

namespace transformer {

/// The character that `name` stands for in HTML, as in &eacute; or 0.
char32_t entity_of(std::string_view name);

/// The length of the longest name at the beginning of `text` that HTML knows without a semicolon; 0: there is none.
size_t bare_entity(std::string_view text);

}  // namespace transformer
