#include "transformer/inference/marked_translation.h"

#include <algorithm>
#include <utility>

namespace transformer {

namespace {

/// Whether a tag stands within a segment, or a placeholder is part of a word at its ends, so that words decide where it
/// goes.
bool has_tag_within(const MarkedText& marked, const TextSpan& segment) {
  const auto first = std::partition_point(marked.tags.begin(), marked.tags.end(),
                                          [&](const auto& tag) { return tag.position < segment.begin; });
  const auto behind =
      std::partition_point(first, marked.tags.end(), [&](const auto& tag) { return tag.position <= segment.end; });
  return std::any_of(first, behind, [&](const auto& tag) {
    const bool is_part = tag.before == MarkedText::Beside::word || tag.behind == MarkedText::Beside::word;
    return (tag.position > segment.begin && tag.position < segment.end) || is_part;
  });
}

/// The blanks before and behind all segments, as where a line is translated.
void leave_out_ends(SplitText::Joined& joined) {
  const size_t begin = joined.segments.empty() ? 0 : joined.segments.front().begin;
  const size_t end = joined.segments.empty() ? 0 : joined.segments.back().end;
  joined.text = joined.text.substr(begin, end - begin);
  for (auto& segment : joined.segments) segment = {segment.begin - begin, segment.end - begin};
}

}  // namespace

void put_tags_back(const WordAligner& aligner, std::span<MarkedTranslation> translations) {
  std::vector<std::vector<AlignedSegment>> segments(translations.size());
  std::vector<std::pair<size_t, size_t>> places;  // of the segments that are aligned
  std::vector<std::string> from, said;
  std::vector<size_t> pieces;
  std::vector<const Translation*> to;
  for (size_t i = 0; i < translations.size(); ++i) {
    const auto& text = translations[i].translated;
    for (size_t k = 0; k < text.segments.size(); ++k) {
      segments[i].push_back({text.source.segments()[k], text.joined.segments[k]});
      if (!has_tag_within(translations[i].source, segments[i].back().source)) continue;
      places.emplace_back(i, k);
      from.emplace_back(text.source.segment(k));
      said.push_back(text.said[k]);
      pieces.push_back(text.pieces[k]);
      to.push_back(&text.segments[k]);
    }
  }
  const auto links = aligner.align_what_fits(from, pieces, to, said);
  for (size_t n = 0; n < places.size(); ++n) {
    if (!links[n]) continue;
    auto& segment = segments[places[n].first][places[n].second];
    for (const auto& link : *links[n]) {
      segment.links.emplace_back(static_cast<size_t>(link.source), static_cast<size_t>(link.target));
    }
  }
  for (size_t i = 0; i < translations.size(); ++i) {
    auto& result = translations[i];
    const auto& output = result.translated.joined.text;
    result.text = with_tags(result.source, output, place_tags(result.source, output, segments[i]));
  }
}

std::vector<MarkedTranslation> translate_marked(const Translator& translator, const WordAligner& aligner,
                                                const std::vector<std::string>& texts, const MarkupOptions& options,
                                                std::vector<OpenMarkup> open) {
  std::vector<MarkedTranslation> results(texts.size());
  std::vector<SplitText> split;
  for (size_t i = 0; i < texts.size(); ++i) {
    auto& marked = results[i].source =
        open.empty() ? parse_markup(texts[i], options.carried) : parse_markup(texts[i], options.carried, open[i]);
    split.push_back(options.sentences ? SplitText(marked.text, options.language, marked.breaks())
                                      : SplitText::whole(marked.text));
  }
  auto translated = translate_texts(translator, std::move(split), options.glossary);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!options.sentences) leave_out_ends(translated[i].joined);
    results[i].translated = std::move(translated[i]);
  }
  put_tags_back(aligner, results);
  return results;
}

}  // namespace transformer
