#include "transformer/report/markup.h"

#include <cstddef>

#include "transformer/base/unicode.h"

namespace transformer {

std::string escape_markup(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const size_t from = position;
    const char32_t c = next_code_point(text, position);
    const bool control = (c < 0x20 && c != '\t' && c != '\n') || (c >= 0x7f && c < 0xa0) || (c & 0xfffe) == 0xfffe;
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (c == 0xfffd || control) {
      out += "\xef\xbf\xbd";
    } else {
      out += text.substr(from, position - from);
    }
  }
  return out;
}

}  // namespace transformer
