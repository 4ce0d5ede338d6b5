#include "transformer/inference/text_translation.h"

#include <algorithm>
#include <utility>

namespace transformer {

EncodedSegments encode_segments(const Translator& translator, SplitText& text) {
  const auto longest = translator.longest_source();
  const auto& vocabulary = *translator.vocabularies().source;
  // A code is said to every segment, up to one that begins with another.
  const auto told = [&](std::string& code, std::string_view segment) {
    if (const auto own = vocabulary.code_of(segment); !own.empty()) {
      code = own;
      return std::string(segment);
    }
    return code.empty() ? std::string(segment) : code + std::string(segment);
  };
  const auto encoded = [&] {
    std::vector<std::string> segments;
    std::string code;
    for (size_t i = 0; i < text.segments().size(); ++i) segments.push_back(told(code, text.segment(i)));
    return translator.encode(segments);
  };
  EncodedSegments result{encoded()};
  const auto fits = [&](const auto& source) { return static_cast<int64_t>(source.size()) <= longest; };
  if (std::all_of(result.pieces.begin(), result.pieces.end(), fits)) return result;
  // A code, whichever it is, is one piece.
  const size_t code_pieces = std::any_of(text.segments().begin(), text.segments().end(), [&](const auto& segment) {
    return !vocabulary.code_of(segment.of(text.text())).empty();
  });
  result.cut = text.cut_longer(longest, [&](std::string_view part) {
    return static_cast<int64_t>(translator.encode({std::string(part)}).front().size() + code_pieces);
  });
  result.pieces = encoded();
  // A single character may have more pieces than a very small model takes.
  for (auto& source : result.pieces) source.resize(std::min(source.size(), static_cast<size_t>(longest)));
  return result;
}

std::vector<TranslatedText> translate_texts(const Translator& translator, std::vector<SplitText> texts,
                                            const Glossary* glossary) {
  std::vector<TranslatedText> results;
  std::vector<std::vector<int64_t>> sources;
  for (auto& text : texts) {
    auto& result = results.emplace_back(TranslatedText{std::move(text), {}, {}, {}, {}, {}, 0});
    auto found = encode_segments(translator, result.source);
    result.cut = found.cut;
    for (const auto& source : found.pieces) result.pieces.push_back(source.size());
    std::move(found.pieces.begin(), found.pieces.end(), std::back_inserter(sources));
  }
  std::vector<EncodedWishes> wishes;  // of each source
  for (auto& result : results) {
    result.required.resize(result.source.segments().size());
    for (size_t i = 0; glossary && i < result.required.size(); ++i) {
      result.required[i] = glossary->targets(result.source.segment(i));
      wishes.push_back(translator.encode_wishes({.required = result.required[i]}));
    }
  }
  auto translations = glossary ? translator.translate_encoded(sources, wishes) : translator.translate_encoded(sources);
  auto next = translations.begin();
  for (auto& result : results) {
    std::vector<std::string> outputs;
    for (size_t i = 0; i < result.source.segments().size(); ++i, ++next) {
      outputs.push_back(next->front().text);
      for (const size_t phrase : next->front().missing) {
        result.missing.push_back(result.required[i].at(phrase));
      }
      result.segments.push_back(std::move(next->front()));
    }
    result.joined = result.source.join(outputs);
  }
  return results;
}

TranslatedText translate_text(const Translator& translator, std::string text, SentenceLanguage language,
                              const Glossary* glossary) {
  std::vector<SplitText> texts;
  texts.emplace_back(std::move(text), language);
  return std::move(translate_texts(translator, std::move(texts), glossary).front());
}

}  // namespace transformer
