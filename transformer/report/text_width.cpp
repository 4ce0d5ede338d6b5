#include "transformer/report/text_width.h"

#include <utf8proc.h>

#include <algorithm>

#include "transformer/base/ascii.h"
#include "transformer/base/unicode.h"

namespace transformer {
namespace {

constexpr std::string_view ellipsis = "…";
constexpr double wide = 1.05, emoji = 1.4;

/// In ems.
double code_point_width(utf8proc_int32_t c) {
  if (c < 0x80) {
    const char letter = static_cast<char>(c);
    if (std::string_view(" .,:;|!'ijlI()[]").find(letter) != std::string_view::npos) return 0.34;
    if (std::string_view("mwMW%@").find(letter) != std::string_view::npos) return 0.93;
    return is_ascii_upper(letter) ? 0.72 : 0.6;
  }
  const auto* property = utf8proc_get_property(c);
  if (property->boundclass == UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC ||
      property->boundclass == UTF8PROC_BOUNDCLASS_REGIONAL_INDICATOR) {
    return emoji;
  }
  const int cells = utf8proc_charwidth(c);
  if (cells == 2) return wide;
  // Format characters and marks that stand on another character; what is not assigned shows as a box.
  if (cells == 0 && property->category != UTF8PROC_CATEGORY_CN && property->category != UTF8PROC_CATEGORY_CO) return 0;
  return 0.68;
}

/// Calls `visit(character, width in ems)` for every grapheme cluster until it returns false.
template <class Visit>
void for_each_character(std::string_view text, const Visit& visit) {
  utf8proc_int32_t state = 0;
  for (size_t start = 0, position = 0; start < text.size();) {
    double width = 0;
    utf8proc_int32_t previous = 0;
    for (bool first = true; position < text.size(); first = false) {
      size_t behind = position;
      const auto point = static_cast<utf8proc_int32_t>(next_code_point(text, behind));
      if (!first && utf8proc_grapheme_break_stateful(previous, point, &state)) break;
      // What joins a character draws over it or melts into it; the widest part is as wide as the whole.
      width = std::max(width, code_point_width(point));
      previous = point;
      position = behind;
    }
    if (!visit(text.substr(start, position - start), width)) return;
    start = position;
    state = 0;
  }
}

}  // namespace

double display_width(std::string_view text, double size) {
  double ems = 0;
  for_each_character(text, [&](std::string_view, double width) {
    ems += width;
    return true;
  });
  return ems * size;
}

size_t terminal_width(std::string_view text) {
  size_t cells = 0;
  for (size_t position = 0; position < text.size();) {
    cells += static_cast<size_t>(utf8proc_charwidth(static_cast<utf8proc_int32_t>(next_code_point(text, position))));
  }
  return cells;
}

std::string fitting_text(std::string_view text, double width, double size) {
  if (display_width(text, size) <= width) return std::string(text);
  std::string kept;
  double used = display_width(ellipsis, size);
  for_each_character(text, [&](std::string_view character, double ems) {
    used += ems * size;
    if (used > width) return false;
    kept += character;
    return true;
  });
  return kept.append(ellipsis);
}

bool is_right_to_left(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const auto point = static_cast<utf8proc_int32_t>(next_code_point(text, position));
    const auto bidirectional = utf8proc_get_property(point)->bidi_class;
    if (bidirectional == UTF8PROC_BIDI_CLASS_L) return false;
    if (bidirectional == UTF8PROC_BIDI_CLASS_R || bidirectional == UTF8PROC_BIDI_CLASS_AL) return true;
  }
  return false;
}

}  // namespace transformer
