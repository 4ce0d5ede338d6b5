#include "transformer/text/split_text.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"

namespace transformer {

namespace {

bool ends_line(char32_t c) {
  return c == U'\n' || c == U'\r' || c == 0x2028 || c == 0x2029;
}

bool has_word(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    if (is_word_character(next_code_point(text, position))) return true;
  }
  return false;
}

bool has_unspaced(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    if (is_unspaced(next_code_point(text, position))) return true;
  }
  return false;
}

/// A place to cut a text at: the left part's end and the right one's beginning.
struct Cut {
  size_t end, begin;
  int strength;
};

/// How good a place is behind `before` and in front of `next`.
int strength_of(char32_t before, char32_t next, bool blank) {
  switch (before) {
    case U';':
    case U':':
    case 0x2014:  // —
    case 0x2013:  // –
    case 0x061B:  // Arabic
      if (blank) return 5;
      break;
    case U',':
    case 0x060C:
      if (blank) return 4;
      break;
    case 0xFF1B:  // Chinese and Japanese, without a blank
    case 0xFF1A:
    case 0x3002:
    case 0xFF01:
    case 0xFF1F:
      return 5;
    case 0xFF0C:
    case 0x3001:
      return 4;
    default:
      break;
  }
  if (blank &&
      (is_unspaced(before) || kind_of(next) == CharacterKind::opening || kind_of(before) == CharacterKind::closing ||
       kind_of(next) == CharacterKind::dash || kind_of(before) == CharacterKind::punctuation)) {
    return 3;
  }
  if (blank) return 2;
  return kind_of(next) == CharacterKind::mark ? 0 : 1;
}

/// The best place within `text`, which is trimmed and has several characters.
Cut best_cut(std::string_view text) {
  const size_t middle = text.size() / 2, margin = text.size() / 4;
  Cut best{0, 0, -1};
  const auto distance = [&](const Cut& cut) { return cut.end > middle ? cut.end - middle : middle - cut.end; };
  // Far from the middle a place between words is still better than one within, and no more than that.
  const auto rank = [&](const Cut& cut) { return distance(cut) <= margin ? cut.strength : std::min(cut.strength, 2); };
  size_t position = 0;
  char32_t before = next_code_point(text, position);
  while (position < text.size()) {
    const size_t end = position;
    char32_t next = next_code_point(text, position);
    bool blank = false;
    size_t begin = end;
    while (is_blank(next)) {  // the text does not end with one
      blank = true;
      begin = position;
      next = next_code_point(text, position);
    }
    const Cut cut{end, begin, strength_of(before, next, blank)};
    const bool better =
        best.strength < 0 || rank(cut) > rank(best) || (rank(cut) == rank(best) && distance(cut) < distance(best));
    if (better) best = cut;
    before = next;
  }
  return best;
}

}  // namespace

SplitText::SplitText(std::string text, SentenceLanguage language, std::span<const size_t> breaks)
    : text_(std::move(text)) {
  size_t begin = 0;
  const auto take = [&](size_t end) {
    for (const auto& sentence : split_sentences(std::string_view(text_).substr(begin, end - begin), language)) {
      const TextSpan span{begin + sentence.begin, begin + sentence.end};
      if (has_word(span.of(text_))) segments_.push_back({span});
    }
    begin = end;
  };
  auto next_break = breaks.begin();
  for (size_t position = 0; position < text_.size();) {
    while (next_break != breaks.end() && *next_break <= position) {
      take(std::max(begin, *next_break++));
    }
    if (ends_line(next_code_point(text_, position))) take(position);
  }
  take(text_.size());
}

SplitText SplitText::whole(std::string text) {
  SplitText result;
  result.text_ = std::move(text);
  const std::string_view all = result.text_, inner = trim(all);
  if (!inner.empty()) {
    const auto begin = static_cast<size_t>(inner.data() - all.data());
    result.segments_.push_back({{begin, begin + inner.size()}});
  }
  return result;
}

int64_t SplitText::cut_longer(int64_t longest, const std::function<int64_t(std::string_view)>& length) {
  int64_t count = 0;
  std::vector<Segment> parts;
  for (const auto& segment : segments_) {
    std::vector<Segment> pending = {segment};  // the leftmost last
    const size_t before = parts.size();
    while (!pending.empty()) {
      const Segment part = pending.back();
      pending.pop_back();
      const auto text = part.of(text_);
      size_t first = 0;
      if (!text.empty()) next_code_point(text, first);
      const bool single = first == text.size();
      const auto cut = single || length(text) <= longest ? Cut{0, 0, -1} : best_cut(text);
      if (cut.strength < 0) {
        parts.push_back(part);
        continue;
      }
      pending.push_back({{part.begin + cut.begin, part.end}, part.cut});
      pending.push_back({{part.begin, part.begin + cut.end}, true});
    }
    count += parts.size() > before + 1;
  }
  segments_ = std::move(parts);
  return count;
}

SplitText::Joined SplitText::join(std::span<const std::string> translations) const {
  if (translations.size() != segments_.size()) {
    throw std::invalid_argument("SplitText: as many translations as segments");
  }
  Joined joined;
  size_t end = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const auto& segment = segments_[i];
    const bool glued = i > 0 && segment.begin == end && !segments_[i - 1].cut;
    if (glued && !joined.text.empty() && !translations[i].empty() && has_unspaced(segments_[i - 1].of(text_)) &&
        !has_unspaced(translations[i - 1])) {
      joined.text += ' ';
    }
    joined.text.append(text_, end, segment.begin - end);
    const size_t begin = joined.text.size();
    joined.text += translations[i];
    joined.segments.push_back({begin, joined.text.size()});
    end = segment.end;
  }
  joined.text.append(text_, end, std::string::npos);
  return joined;
}

}  // namespace transformer
