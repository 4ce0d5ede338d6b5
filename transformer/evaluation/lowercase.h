#pragma once

#include <string>
#include <string_view>

namespace transformer {

/// UTF-8 text in lower case as Python's str.lower() has it, so that scores equal sacreBLEU's in every language.
std::string lowercase(std::string_view text);

}  // namespace transformer
