#include "transformer/text/normalization.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "transformer/base/unicode.h"

namespace transformer {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

// Of the characters of a word: nothing is seen of them, and a model has never met them.
bool is_control(char32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
}

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void append_decomposed(char32_t code_point, CodePoints& decomposed) {
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts.data(), parts.size(),
                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    throw std::logic_error("utf8proc cannot decompose a character");
  }
  decomposed.insert(decomposed.end(), parts.begin(), parts.begin() + count);
}

// Puts runs of marks into canonical order. utf8proc_decompose would do it too, but in a time that grows with the square
// of a run: hours for a line of a megabyte of marks.
void sort_marks(CodePoints& decomposed) {
  const auto is_mark = [](utf8proc_int32_t code_point) { return combining_class(code_point) != 0; };
  for (auto at = decomposed.begin(); at != decomposed.end();) {
    at = std::find_if(at, decomposed.end(), is_mark);
    const auto end = std::find_if_not(at, decomposed.end(), is_mark);
    std::stable_sort(at, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

}  // namespace

bool is_plainly_normal(std::string_view text) {
  // Spaces one by one between words, ASCII without controls, and U+00A1 to U+02FF, the Latin letters that neither
  // compose nor come apart.
  bool space_allowed = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == ' ') {
      if (!space_allowed) return false;
      space_allowed = false;
      continue;
    }
    space_allowed = true;
    if (byte > ' ' && byte < 0x7F) continue;
    if (byte < 0xC2 || byte > 0xCB || sequence_length(text.substr(i)) != 2) return false;
    if (byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA1) return false;
    ++i;
  }
  return text.empty() || text.back() != ' ';
}

std::string normalized(std::string_view text) {
  if (is_plainly_normal(text)) return std::string(text);
  CodePoints code_points;
  code_points.reserve(text.size());
  for (const auto word : split_words(text)) {
    if (!code_points.empty()) code_points.push_back(' ');
    const size_t before = code_points.size();
    for (size_t position = 0; position < word.size();) {
      const char32_t code_point = next_code_point(word, position);
      if (!is_control(code_point)) append_decomposed(code_point, code_points);
    }
    if (code_points.size() == before) code_points.push_back(0xFFFD);
  }
  sort_marks(code_points);
  const auto count = utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (count < 0) throw std::logic_error("utf8proc cannot compose a text");
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<char32_t>(code_points[static_cast<size_t>(i)]), result);
  }
  return result;
}

}  // namespace transformer
