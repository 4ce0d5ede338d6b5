#include "transformer/inference/text_translation.h"

#include <algorithm>
#include <utility>

namespace transformer {

EncodedSegments encode_segments(const Translator& translator, SplitText& text) {
  const auto longest = translator.longest_source();
  EncodedSegments result;
  const auto encode = [&] {
    std::vector<std::string> segments;
    std::string_view said;
    result.said.clear();
    for (size_t i = 0; i < text.segments().size(); ++i) {
      const auto segment = text.segment(i);
      const auto own = translator.said_by(segment);
      if (!own.empty()) said = own;
      result.said.emplace_back(own.empty() ? said : "");
      segments.push_back(as_read(result.said.back(), segment));
    }
    result.pieces = translator.encode(segments);
  };
  encode();
  const auto fits = [&](const auto& source) { return static_cast<int64_t>(source.size()) <= longest; };
  if (std::all_of(result.pieces.begin(), result.pieces.end(), fits)) return result;
  std::vector<std::string> all_said;
  for (size_t i = 0; i < text.segments().size(); ++i) all_said.emplace_back(translator.said_by(text.segment(i)));
  size_t said_pieces = 0;
  for (const auto& said : translator.encode(all_said)) said_pieces = std::max(said_pieces, said.size());
  result.cut = text.cut_longer(longest, [&](std::string_view part) {
    return static_cast<int64_t>(translator.encode({std::string(part)}).front().size() + said_pieces);
  });
  encode();
  // A single character may have more pieces than a very small model takes.
  for (auto& source : result.pieces) source.resize(std::min(source.size(), static_cast<size_t>(longest)));
  return result;
}

std::vector<TranslatedText> translate_texts(const Translator& translator, std::vector<SplitText> texts,
                                            const Glossary* glossary) {
  std::vector<TranslatedText> results;
  std::vector<std::vector<int64_t>> sources;
  for (auto& text : texts) {
    auto& result = results.emplace_back(TranslatedText{std::move(text), {}, {}, {}, {}, {}, {}, 0});
    auto found = encode_segments(translator, result.source);
    result.cut = found.cut;
    result.said = std::move(found.said);
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
