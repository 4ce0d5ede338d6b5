#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transformer/inference/translator.h"
#include "transformer/text/glossary.h"
#include "transformer/text/split_text.h"

namespace transformer {

/// A text that was translated segment by segment.
struct TranslatedText {
  SplitText source;                   // with its segments, cut ones among them
  std::vector<Translation> segments;  // the best of each
  std::vector<size_t> pieces;         // word pieces of each segment of the source, as it was read
  std::vector<std::string> said;      // of each segment: EncodedSegments::said
  SplitText::Joined joined;           // the whole translation
  /// Translations of the glossary's terms that each segment shall hold: Translation::missing counts in them.
  std::vector<std::vector<std::string>> required;
  std::vector<std::string> missing;  // those of all segments that it lacks all the same
  int64_t cut = 0;                   // sentences that were longer than the model takes, and so came in parts
};

/// The word pieces of each of `text`'s segments, after those that are longer than `translator.longest_source()` were
/// cut (SplitText::cut_longer), and how many those were. What a segment says of how it is translated
/// (Translator::said_by) is said of all those behind it, too, up to the next that says something.
struct EncodedSegments {
  std::vector<std::vector<int64_t>> pieces;  // of each segment as it is read (as_read), without begin and end
  std::vector<std::string> said;             // of each segment, beside what it says itself; mostly nothing
  int64_t cut = 0;                           // segments that were too long
};
/// Cuts `text` where it has to be.
EncodedSegments encode_segments(const Translator& translator, SplitText& text);

/// Translates texts of any length: sentences longer than `translator.longest_source()` are cut (SplitText::cut_longer),
/// all others decoded together, and the texts put together again. Where a sentence has a term of `glossary` (null:
/// none), its translation holds the term's (LineWishes::required).
std::vector<TranslatedText> translate_texts(const Translator& translator, std::vector<SplitText> texts,
                                            const Glossary* glossary = nullptr);

/// One text, of any number of lines and sentences.
TranslatedText translate_text(const Translator& translator, std::string text,
                              SentenceLanguage language = SentenceLanguage::any, const Glossary* glossary = nullptr);

}  // namespace transformer
