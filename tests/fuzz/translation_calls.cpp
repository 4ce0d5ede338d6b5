// Bodies of requests for translations, as JSON and as forms.

#include "fuzz/fuzz.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/request_error.h"
#include "transformer/serving/translation_call.h"

using namespace transformer;

namespace {

constexpr size_t most_texts = 20;

void check(const std::vector<std::string>& texts) {
  fuzz::require(texts.size() <= most_texts, "no more texts than a request may hold");
  for (const auto& text : texts) fuzz::require(find_broken_utf8(text) == std::string::npos, "texts are UTF-8");
}

void check(const TranslationCall& call) {
  check(call.texts);
  fuzz::require(call.is_list || call.texts.size() == 1, "one text by itself");
  fuzz::require(call.alternatives >= 0, "alternatives are a number of them");
}

void check(const ScoreCall& call) {
  check(call.texts);
  check(call.translations);
  fuzz::require(call.texts.size() == call.translations.size(), "a translation for each text");
}

template <class Call>
void read(Call (*parse)(std::string_view, size_t), std::string_view body) {
  try {
    check(parse(body, most_texts));
  } catch (const RequestError& error) {
    fuzz::require(error.status() == 400 || error.status() == 413, "the client's mistake");
    const std::string sentence = error.what();
    fuzz::require(!sentence.empty() && sentence.find('\n') == std::string::npos, "one sentence");
    fuzz::require(find_broken_utf8(sentence) == std::string::npos, "sentences are UTF-8");
  }
}

const fuzz::Target target("translation_calls", [](std::string_view input) {
  read(parse_libretranslate_json, input);
  read(parse_libretranslate_form, input);
  read(parse_translation, input);
  read(parse_score, input);
});

}  // namespace
