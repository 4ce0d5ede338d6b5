#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace transformer {

/// Bytes of a text, from `begin` up to `end`.
struct TextSpan {
  size_t begin = 0, end = 0;  // in bytes

  /// These bytes of `text`, the one that the span is of.
  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
  bool operator==(const TextSpan&) const = default;
};

/// Whose abbreviations and ordinals a full stop may belong to.
enum class SentenceLanguage {
  any,      // not known: careful with full stops behind numbers
  english,  // "Mr.", "e.g."; numbers are no ordinals
  german    // "z. B."; "3." may be an ordinal
};

/// The sentences of a line, in order, without blanks at their ends; nothing but blanks is between them.
///
/// A sentence ends behind . ! ? … and their likes in other scripts, with the quotation marks and brackets that close
/// there, where blanks follow and then what may begin one: a capital, a digit, a letter of a script without case. No
/// blank is needed behind the marks of Chinese and Japanese. A full stop, full-width ones (U+FF0E) among them, ends
/// none behind an abbreviation, an initial or the number of an enumeration, nor between digits, nor, in German and
/// where the language is not known, behind a number of one or two digits, which may be an ordinal (not with full-width
/// ones): two sentences taken for one are the smaller harm.
std::vector<TextSpan> split_sentences(std::string_view line, SentenceLanguage language = SentenceLanguage::any);

}  // namespace transformer
