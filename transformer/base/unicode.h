#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

// The one place that knows what UTF-8 is, what is blank, and how a stranger's text is shown. Nothing here depends on
// the locale.

/// The length in bytes of the well-formed UTF-8 sequence at the beginning of `text`: 1 to 4, or 0 where there is none
/// (overlong forms, surrogates and values above U+10FFFF are none).
size_t sequence_length(std::string_view text);
/// Whether `text` is the beginning of such a sequence, and not the whole of it: 1 to 3 bytes.
bool begins_sequence(std::string_view text);

/// Whether a byte is one of a character's, and not its first.
constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Decodes the code point that begins at `position` and moves `position` behind it; a byte that begins none counts as
/// U+FFFD.
char32_t next_code_point(std::string_view text, size_t& position);
/// Appends a code point's bytes.
void append_utf8(char32_t code_point, std::string& text);

/// Where `text` stops being UTF-8: the offset of the first byte of the broken character, or npos.
size_t find_broken_utf8(std::string_view text);
/// `text` as UTF-8, for what takes nothing else (JSON): each byte that begins no character becomes U+FFFD.
std::string repaired_utf8(std::string_view text);

/// Whether there is an ASCII control character in `text`: a tab, a line end or anything else that shows nothing.
bool has_control_characters(std::string_view text);

/// White space as Python's str.isspace() has it: spaces of every width, tabs, line ends and separators.
bool is_blank(char32_t code_point);
/// The words between blanks.
std::vector<std::string_view> split_words(std::string_view text);
/// `text` without blanks at its ends.
std::string_view trim(std::string_view text);
/// `text` without blanks at its end.
std::string_view trim_end(std::string_view text);

/// A stranger's text for a line of a message or a log: whatever a terminal could take for a command, or a reader for
/// nothing (control characters of all kinds, line ends, marks of writing direction, broken UTF-8), is written as \x1b
/// or \u202e, and what is longer than `longest` bytes is cut with "..." at its end.
std::string printable(std::string_view text, size_t longest = 80);
/// The same between single quotes.
std::string in_quotes(std::string_view text, size_t longest = 80);

/// One word of a POSIX shell's command line: as it is where no character has a meaning there, else in single quotes.
std::string shell_quoted(std::string_view word);

}  // namespace transformer
