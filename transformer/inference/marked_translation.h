#pragma once

#include <span>
#include <string>
#include <vector>

#include "transformer/inference/text_translation.h"
#include "transformer/inference/word_alignment.h"
#include "transformer/text/markup.h"

namespace transformer {

/// How texts with tags are taken apart.
struct MarkupOptions {
  /// Whether a text is split into sentences, which end at paragraphs, list items and their like in any case. Else it is
  /// one sentence, which is cut where it is longer than the model takes, and whose translation has no blanks at its
  /// ends.
  bool sentences = true;
  SentenceLanguage language = SentenceLanguage::any;  // whose abbreviations and ordinals are known
  const Glossary* glossary = nullptr;                 // as of translate_texts
  CarriedOver carried = {};                           // what is not translated; without tags the text is plain
};

/// A text with tags, taken apart, translated and put together.
struct MarkedTranslation {
  std::string text;           // with the source's tags
  MarkedText source;          // with the tags' places
  TranslatedText translated;  // without
};

/// Makes `text` of each from `source` and `translated`, however it was translated: its tags come back where the words
/// that they were around went, by `aligner`. What is too long to be aligned keeps its tags at its ends.
void put_tags_back(const WordAligner& aligner, std::span<MarkedTranslation> translations);

/// Translates HTML or XML, or text with placeholders: what stands between the tags, which put_tags_back puts back. Any
/// text is taken: see parse_markup. `open`: where texts are lines of pages, what each goes on with (see OpenMarkup);
/// empty: they are whole.
std::vector<MarkedTranslation> translate_marked(const Translator& translator, const WordAligner& aligner,
                                                const std::vector<std::string>& texts,
                                                const MarkupOptions& options = {}, std::vector<OpenMarkup> open = {});

}  // namespace transformer
