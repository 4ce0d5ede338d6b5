#pragma once

#include <string>
#include <string_view>

namespace transformer {

/// `text` for an element or a quoted attribute of HTML and XML. What is not UTF-8, and control characters, become
/// U+FFFD.
std::string escape_markup(std::string_view text);

}  // namespace transformer
