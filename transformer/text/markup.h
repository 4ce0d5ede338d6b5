#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/text/sentences.h"

namespace transformer {

/// What of a text is carried over instead of translated.
struct CarriedOver {
  bool tags = true;           // of HTML or XML, whose references are the characters they stand for
  bool placeholders = false;  // see placeholder_end
};

/// HTML or XML taken apart: what is read, and the tags between.
///
/// Tags are start and end tags, comments, declarations, processing instructions, CDATA sections, and scripts and style
/// sheets as a whole. A "<" that begins none of them is text; so is what looks like a tag and never ends. References
/// (&amp; &eacute; &#8212;) are the characters they stand for; of names HTML 4's are known. What others stand for is
/// said elsewhere (in XML, of `brandShortName` for one), so that they are placeholders; without a semicolon they are
/// text. Nothing is an error.
///
/// Placeholders, where they are carried over, too, and references of other names are tags that stand alone, with what
/// belongs to them: the quotation marks and brackets that are round them alone, signs such as % and $, each other where
/// no blank is between ("%d/%d"), the comma or full stop behind where one, or nothing, is before, and the comma before
/// where a full stop is behind. The text has one blank where theirs were two, and none before a comma that they stood
/// before: "Dear {name}, open (%d) now" is "Dear, open now".
struct MarkedText {
  /// What is next to a placeholder: a blank or no text, a punctuation mark or another sign, a word that it is part of,
  /// or before it a comma that it begins with, which goes without a blank.
  enum class Beside { blank, sign, word, comma };
  /// A tag, or whatever else is no text.
  struct Tag {
    std::string markup;    // as it is written
    size_t position = 0;   // the byte of `text` that it stands before
    int64_t partner = -1;  // among the tags: the end of the element that this one begins, or its beginning; -1: neither
    bool breaks = false;   // sentences do not go over it: of paragraphs, headings, list items, table cells, line breaks
    bool placeholder = false;                               // no tag, but carried over like one
    Beside before = Beside::blank, behind = Beside::blank;  // a placeholder's
  };
  std::string text;            // what is read: without tags, references resolved
  std::vector<Tag> tags;       // in the order in which they are written
  bool has_references = true;  // between the tags, for & < >

  /// Where sentences end in any case, ascending.
  std::vector<size_t> breaks() const;
};
/// Takes any text: see above.
MarkedText parse_markup(std::string_view marked, const CarriedOver& carried = {});

/// The tag, comment or script that a line of a page ends within, and the next line goes on with.
struct OpenMarkup {
  /// What it is.
  enum class Kind {
    none,
    tag,                    // a start or end tag
    element,                // a script or a style sheet, whose contents are no markup
    other                   // what a text ends: a comment, CDATA, a declaration
  } kind = Kind::none;      // what it is
  std::string name = {};    // of the element that is a script or a style sheet, or that a tag begins; of others: none
  char quote = 0;           // of the attribute's value that a tag is within
  bool value = false;       // whether a tag's latest sign is the = of an attribute, whose value comes
  std::string ending = {};  // what the rest ends with
  int64_t lines = 0;        // that it goes over, behind the one that it begins in
};
/// The same of a line of a page: what the line before left `open` goes on, and what is unended at the line's end is a
/// tag to there, which is left in `open`.
MarkedText parse_markup(std::string_view marked, const CarriedOver& carried, OpenMarkup& open);

/// `text` as it is written between tags: & < > as references.
std::string escaped_text(std::string_view text);

/// A stretch of a text, and of its translation, whose words are linked: (word of the source, word of the target), both
/// counted from 0 within the stretch, as split_words counts them.
struct AlignedSegment {
  TextSpan source, target;                            // bytes of the whole texts
  std::vector<std::pair<size_t, size_t>> links = {};  // in any order
};

/// Where a tag comes to stand in a translation: before the byte `position`.
struct PlacedTag {
  size_t tag = 0;       // of MarkedText::tags
  size_t position = 0;  // in bytes
};

/// Every tag's place in `translation`, in the order in which they are written: each tag once, each element's end behind
/// its beginning, and elements within each other as they were. An element goes round the longest run of words that
/// stand for its own, within the element around it; what is around whole segments, or around what is between them,
/// stays so; a tag that is alone stays with its neighbour, in texts with placeholders before the punctuation that it
/// stood before. `segments`, in order, cover all that was translated; what is between them is the same on both sides,
/// or has no length in one.
std::vector<PlacedTag> place_tags(const MarkedText& source, std::string_view translation,
                                  std::span<const AlignedSegment> segments);

/// `translation` with its tags, escaped where the source was. Placeholders get blanks where they had some, and none is
/// there, and between them and words that they were no part of.
std::string with_tags(const MarkedText& source, std::string_view translation, std::span<const PlacedTag> placed);

}  // namespace transformer
