#include "transformer/text/split_text.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "transformer/base/ascii.h"
#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"

namespace transformer {

namespace {

/// Marks alone, as emoji have them, are no word.
bool has_word(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    if (is_letter_or_digit(next_code_point(text, position))) return true;
  }
  return false;
}

/// Whether a text's writing is unspaced where it begins and where it ends. Digits, symbols and the punctuation of
/// spaced writing tell nothing: quotation marks and numbers are the same in all.
struct UnspacedEnds {
  bool begin = false, end = false;
};

UnspacedEnds unspaced_ends(std::string_view text) {
  using enum CharacterKind;
  UnspacedEnds ends;
  bool told = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    const auto kind = kind_of(c);
    if (!is_unspaced(c) && kind != lower && kind != upper && kind != letter) continue;
    ends.end = is_unspaced(c);
    if (!told) ends.begin = ends.end;
    told = true;
  }
  return ends;
}

char32_t first_code_point(std::string_view text) {
  size_t position = 0;
  return next_code_point(text, position);
}

char32_t last_code_point(std::string_view text) {
  size_t position = step_back(text, text.size());
  return next_code_point(text, position);
}

/// Whether a translation begins as one of unspaced writing: a name in Chinese may begin an English sentence.
bool begins_unspaced(std::string_view text) {
  return unspaced_ends(text).begin && text.find(' ') == std::string_view::npos;
}

/// Whether a month's name begins there, before which a number is an ordinal in German.
bool begins_with_month(std::string_view text) {
  static constexpr std::array<std::string_view, 20> months = {
      "Januar", "Jänner", "Jan",       "Februar", "Feber",   "Feb", "März",     "April", "Mai",      "Juni",
      "Juli",   "August", "September", "Sept",    "Oktober", "Okt", "November", "Nov",   "Dezember", "Dez"};
  return std::any_of(months.begin(), months.end(), [&](std::string_view month) {
    size_t end = month.size();
    return text.starts_with(month) && (end == text.size() || !is_word_character(next_code_point(text, end)));
  });
}

// Marks of lists within lists that one line begins with, at most.
constexpr int most_marks = 4;

/// What a list has before the text of an item, at the beginning of `line`: its mark and the blanks behind it; 0 where
/// there is none, or nothing behind it.
size_t item_mark(std::string_view line) {
  size_t position = 0;
  const char32_t first = next_code_point(line, position);
  bool numbered = false;
  switch (first) {
    case U'-':
    case U'*':
    case U'+':
    case U'\u2022':  // •
    case U'\u2023':  // ‣
    case U'\u25E6':  // ◦
    case U'\u25AA':  // ▪
    case U'\u2013':  // –
      break;
    default: {
      const auto digits =
          static_cast<size_t>(std::find_if_not(line.begin(), line.end(), is_ascii_digit) - line.begin());
      const bool letter = first < 0x80 && kind_of(first) == CharacterKind::lower;
      if (digits > 3 || (digits == 0 && !letter)) return 0;
      position = std::max<size_t>(digits, 1);
      const bool closed = position < line.size() && line[position] == ')';
      numbered = digits > 0 && position < line.size() && line[position] == '.';
      if (!closed && !numbered) return 0;
      ++position;
    }
  }
  const size_t mark = position;
  for (size_t next = position; next < line.size(); position = next) {
    const char32_t c = next_code_point(line, next);
    if (!is_blank(c) || ends_line(c)) break;
  }
  if (position == mark || !has_word(line.substr(position))) return 0;
  return numbered && begins_with_month(line.substr(position)) ? 0 : position;
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

/// The indentation of a line and the marks of lists that it begins with.
size_t layout_of(std::string_view line) {
  size_t layout = 0;
  for (int marks = 0; marks <= most_marks; ++marks) {
    for (size_t next = layout; next < line.size(); layout = next) {
      if (!is_blank(next_code_point(line, next))) break;
    }
    const size_t mark = layout < line.size() && marks < most_marks ? item_mark(line.substr(layout)) : 0;
    if (mark == 0) break;
    layout += mark;
  }
  return layout;
}

}  // namespace

SplitText::SplitText(std::string text, SentenceLanguage language, std::span<const size_t> breaks)
    : text_(std::move(text)) {
  size_t begin = 0;
  const auto take = [&](size_t end) {
    begin += layout_of(std::string_view(text_).substr(begin, end - begin));
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
  // Whether there is no space between a segment and the one before because of the writing, and not within a word.
  const auto glued = [&](size_t i) {
    if (i == 0 || segments_[i].begin != segments_[i - 1].end) return false;
    const auto before = segment(i - 1);
    if (!segments_[i - 1].cut) return unspaced_ends(before).end;
    return is_unspaced(last_code_point(before)) || is_unspaced(first_code_point(segment(i)));
  };
  Joined joined;
  size_t end = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const auto& segment = segments_[i];
    if (glued(i) && !joined.text.empty() && !translations[i].empty() && !unspaced_ends(translations[i - 1]).end &&
        !begins_unspaced(translations[i])) {
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
