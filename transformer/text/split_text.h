#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transformer/text/sentences.h"

namespace transformer {

/// A text, and the stretches of it that are translated one by one: its sentences. What is between them (line ends,
/// blank lines, indentation, lines without a letter or digit such as "***", and what marks the items of a list: "- ",
/// "* ", "+ ", "• ", "– ", "1. ", "12) ", "a) ") stays as it is, byte for byte. "3. Mai" is no item, but a day.
class SplitText {
 public:
  /// A sentence, or a part of one.
  struct Segment : TextSpan {
    bool cut = false;  // the sentence goes on in the next segment
  };

  /// An empty text.
  SplitText() = default;
  /// Every line is a paragraph of its own. `breaks`, ascending, are other places in the text over which no sentence
  /// goes.
  explicit SplitText(std::string text, SentenceLanguage language = SentenceLanguage::any,
                     std::span<const size_t> breaks = {});
  /// As one segment, blanks at its ends left out; none where it is blank.
  static SplitText whole(std::string text);

  /// As it was given.
  const std::string& text() const { return text_; }
  /// From the beginning to the end; none overlap.
  const std::vector<Segment>& segments() const { return segments_; }
  /// The bytes of one of them, from 0.
  std::string_view segment(size_t index) const { return segments_[index].of(text_); }

  /// Cuts what is longer than `longest` by `length` (of at least 1) into parts that are not: where it can behind a
  /// semicolon, a comma or another mark of the kind, else between words, else between characters, near the middle, and
  /// again. Returns how many segments were cut. A single character is never cut, whatever its length.
  int64_t cut_longer(int64_t longest, const std::function<int64_t(std::string_view)>& length);

  /// The translated text.
  struct Joined {
    std::string text;                // whole
    std::vector<TextSpan> segments;  // where each one's translation lies in it
  };
  /// The text with `translations` in the places of its segments. Between sentences that no space separates, as in
  /// Chinese, and between the parts of a cut one, comes one where the translations on both sides are of scripts that
  /// have spaces.
  Joined join(std::span<const std::string> translations) const;

 private:
  std::string text_;
  std::vector<Segment> segments_;
};

}  // namespace transformer
