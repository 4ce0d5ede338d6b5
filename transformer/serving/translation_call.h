#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/base/settings.h"

namespace transformer {

/// What a client asks for, as its body says it; nothing of it is known to be possible yet.
struct TranslationCall {
  std::vector<std::string> texts;                              // in the order of the answers
  bool is_list = false;                                        // one text by itself is answered by itself
  std::string source, target, model, api_key;                  // empty where they are not said
  int64_t alternatives = 0;                                    // besides the best
  std::vector<SettingOverride> decoding;                       // settings of the search that are not the model's
  std::vector<std::string> not_given;                          // such settings whose value is null
  bool is_html = false;                                        // tags stay, text between them is translated
  bool alignments = false, attention = false, stream = false;  // /v1/translate alone
  std::optional<bool> document;                                // likewise: whether lines are split into sentences
};

/// What a client wants judged: how probable a model finds each of `translations` for the text of its index.
struct ScoreCall {
  std::vector<std::string> texts, translations;  // as many of one as of the other
  std::string source, target, model, api_key;    // empty where they are not said
};

/// A body that another program wrote, of which nothing is believed. Every mistake throws RequestError saying what was
/// expected: 400, or 413 for more than `most_texts` texts.
///
/// As LibreTranslate has it: q (a text or a list), source, target, format, alternatives, api_key.
TranslationCall parse_libretranslate_json(std::string_view body, size_t most_texts);
/// The same as a form, in which q may come several times.
TranslationCall parse_libretranslate_form(std::string_view body, size_t most_texts);
/// As this server has it: text (one or a list), source, target, model, format, decoding, alignments, attention,
/// stream, document, api_key.
TranslationCall parse_translation(std::string_view body, size_t most_texts);
/// text and translation (one of each, or a list of each of one length), source, target, model, api_key.
ScoreCall parse_score(std::string_view body, size_t most_texts);

/// The fields of a form (application/x-www-form-urlencoded), in their order. Throws RequestError for bytes that are no
/// such thing, or no UTF-8.
std::vector<std::pair<std::string, std::string>> parse_form(std::string_view body);

}  // namespace transformer
