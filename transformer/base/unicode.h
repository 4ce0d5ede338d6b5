#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace transformer {

// Text is UTF-8. What is white space or upper case follows Unicode as Python's str does, so that scores equal
// sacreBLEU's in every language, and does not depend on the locale.

/// Decodes the code point that begins at `position` and moves `position` behind it; a byte that begins none counts as
/// U+FFFD.
char32_t next_code_point(std::string_view text, size_t& position);
void append_utf8(char32_t code_point, std::string& text);

bool is_space(char32_t code_point);
/// The words between white space.
std::vector<std::string_view> split_words(std::string_view text);
/// `text` without its trailing white space.
std::string_view trim_end(std::string_view text);
std::string lowercase(std::string_view text);

}  // namespace transformer
