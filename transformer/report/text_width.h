#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace transformer {

/// How wide `text` is when it is set in a proportional font of `size`, in its unit: an estimate that errs on the wide
/// side, because fonts differ. Per character as a reader sees it (UAX #29), so that combining marks take no room and an
/// emoji of several code points takes that of one; East Asian wide characters (UAX #11) take an em. Bytes that are no
/// UTF-8 count as U+FFFD.
double display_width(std::string_view text, double size);

/// How many cells of a terminal `text` takes, as far as terminals agree: none for marks that stand on another
/// character, two for what is wide in East Asian scripts.
size_t terminal_width(std::string_view text);

/// `text` as far as it fits into `width`, with an ellipsis where it does not; whole characters alone.
std::string fitting_text(std::string_view text, double width, double size);

/// Whether the first letter that has a direction is Hebrew, Arabic or of another script written from right to left, as
/// HTML's dir="auto" decides.
bool is_right_to_left(std::string_view text);

}  // namespace transformer
