#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/inference/text_translation.h"
#include "transformer/inference/translator.h"
#include "transformer/inference/word_alignment.h"

namespace transformer {

// What --output-format jsonl says of one line: an object as one line, its end included.

using TranslationLinks = std::vector<std::optional<std::vector<AlignmentLink>>>;

/// `links` of each translation, none where it was too long to align. `n_best`: whether all translations are listed,
/// beside the best. `required`: the phrases that were wished of the line (LineWishes::required).
std::string to_json(std::string_view source, const std::vector<Translation>& translations,
                    const TranslationLinks& links, const Vocabulary& vocabulary, bool n_best,
                    const std::vector<std::string>& required);
/// Of a line that could not be used, in whose place stands `text`.
std::string to_json(std::string_view text, std::string_view problem);
/// Of a text, of which `written` is the translation as it is written, with its sentences.
std::string to_json(std::string_view written, const TranslatedText& text, const TranslationLinks& links,
                    const Vocabulary& vocabulary);

}  // namespace transformer
