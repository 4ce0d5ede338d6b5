#include "transformer/text/markup.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

#include "transformer/base/ascii.h"
#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"
#include "transformer/text/entities.h"
#include "transformer/text/placeholders.h"

namespace transformer {

namespace {

constexpr size_t none = std::string_view::npos;

bool is_ascii_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

template <size_t Count>
bool is_one_of(std::string_view name, const std::array<std::string_view, Count>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr auto breaking_elements = std::to_array<std::string_view>(
    {"address", "article", "aside",   "blockquote", "body",    "br",    "button",     "caption", "center",
     "dd",      "details", "dialog",  "div",        "dl",      "dt",    "figcaption", "figure",  "fieldset",
     "footer",  "form",    "h1",      "h2",         "h3",      "h4",    "h5",         "h6",      "head",
     "header",  "hr",      "html",    "legend",     "li",      "main",  "nav",        "ol",      "option",
     "p",       "pre",     "section", "select",     "summary", "table", "tbody",      "td",      "textarea",
     "tfoot",   "th",      "thead",   "title",      "tr",      "ul"});

/// Takes markup apart. Everything that looks ahead for an end remembers when there is none, so that time is linear.
class Parser {
 public:
  /// `open`: of a line of a page, what is unended before it, and then behind it. Null: of a text that is whole.
  Parser(std::string_view marked, const CarriedOver& carried, OpenMarkup* open)
      : marked_(marked), carried_(carried), open_markup_(open) {}

  MarkedText parse() {
    for (size_t position = go_on(); position < marked_.size();) {
      const char c = marked_[position];
      size_t end = none;
      if (carried_.tags && c == '<') end = tag_at(position);
      if (carried_.placeholders && end == none) end = placeholder_at(position);
      if (end != none) {
        position = end;
      } else if (carried_.tags && c == '&') {
        position = reference_at(position);
      } else {
        result_.text += c;
        ++position;
      }
    }
    result_.has_references = carried_.tags;
    return std::move(result_);
  }

 private:
  size_t placeholder_at(size_t position) {
    const size_t end = placeholder_end(marked_, position, carried_.tags);
    if (end == none) return none;
    add(position, end, false);
    result_.tags.back().placeholder = true;
    return end;
  }

  /// Takes up what goes on from the line before; returns what is behind it.
  size_t go_on() {
    if (!open_markup_ || open_markup_->kind == OpenMarkup::Kind::none) return 0;
    const size_t found = end_of_open(), end = std::min(found, marked_.size());
    if (found == none) ++open_markup_->lines;
    if (end > 0) add(0, end, false);
    return end;
  }

  /// Where what is open ends, after which nothing is; none where it goes on.
  size_t end_of_open() {
    auto& open = *open_markup_;
    size_t position = 0;
    if (open.kind == OpenMarkup::Kind::tag) {
      position = scan_tag(0, open);
      if (position == none) return none;
      const bool empty = position > 1 && marked_[position - 2] == '/';
      open.kind = open.name.empty() || empty ? OpenMarkup::Kind::none : OpenMarkup::Kind::element;
    }
    if (open.kind == OpenMarkup::Kind::element) {
      position = end_tag_of(open.name, position);
      if (position == none) return none;
      open.kind = OpenMarkup::Kind::other;
      open.ending = ">";
    }
    if (open.kind == OpenMarkup::Kind::other) {
      position = behind(open.ending, position);
      if (position == none) return none;
    }
    open = {};
    return position;
  }

  /// Takes up a line's rest from `position` on, which the next line goes on with; none where there is no next line.
  size_t left_open(size_t position, OpenMarkup open, bool breaks = false) {
    if (!open_markup_) return none;
    *open_markup_ = std::move(open);
    add(position, marked_.size(), breaks);
    return marked_.size();
  }

  /// The end of what begins at `position` and `ending` ends.
  size_t ended_by(const char* ending, size_t position, size_t from) {
    const size_t end = whole(position, behind(ending, from));
    return end != none ? end : left_open(position, {.kind = OpenMarkup::Kind::other, .ending = ending});
  }

  /// The end of the tag that begins at `position`, which is taken up; none where it is text.
  size_t tag_at(size_t position) {
    const auto rest = marked_.substr(position);
    if (rest.starts_with("<!--")) return ended_by("-->", position, position + 4);
    if (rest.starts_with("<![CDATA[")) return ended_by("]]>", position, position + 9);
    if (rest.starts_with("<?")) {
      // To HTML, which knows no such instruction, it ends with any ">".
      const size_t end = whole(position, behind("?>", position + 2));
      return end != none ? end : ended_by(">", position, position + 2);
    }
    if (rest.starts_with("<!")) {
      if (rest.size() <= 2 || !is_ascii_letter(rest[2])) return none;
      const size_t end = bracket_from(position + 2);  // XML's has declarations in brackets
      const bool declares = end != none && marked_[end] == '[';
      return ended_by(declares ? "]>" : ">", position, declares ? end : position + 2);
    }
    const bool closes = rest.starts_with("</");
    const size_t name_begin = position + (closes ? 2 : 1);
    if (name_begin >= marked_.size() || !is_ascii_letter(marked_[name_begin])) return none;
    OpenMarkup tag{.kind = OpenMarkup::Kind::tag};
    const size_t end = open_markup_ ? scan_tag(name_begin, tag) : end_of_tag(name_begin);
    if (end == none && !open_markup_) return none;
    std::string name;
    for (size_t i = name_begin;
         i < std::min(end, marked_.size()) && !is_ascii_blank(marked_[i]) && marked_[i] != '/' && marked_[i] != '>';
         ++i) {
      name += ascii_lower(marked_[i]);
    }
    const bool breaks = is_one_of(name, breaking_elements);
    const bool raw = !closes && (name == "script" || name == "style");
    if (end == none) {
      if (raw) tag.name = name;
      return left_open(position, std::move(tag), breaks);
    }
    const bool empty = marked_[end - 2] == '/';
    if (raw && !empty) {
      if (const size_t close = end_of_raw(name, end); close != none) return whole(position, close);
      if (open_markup_) {
        const bool closing = end_tag_of(name, end) != none;  // but for its last character
        return left_open(position, closing ? OpenMarkup{.kind = OpenMarkup::Kind::other, .ending = ">"}
                                           : OpenMarkup{.kind = OpenMarkup::Kind::element, .name = name});
      }
    }
    add(position, end, breaks);
    if (closes) {
      close(name);
    } else if (!empty) {
      open(name);
    }
    return end;
  }

  void add(size_t position, size_t end, bool breaks) {
    auto& tag = result_.tags.emplace_back();
    tag.markup = marked_.substr(position, end - position);
    tag.position = result_.text.size();
    tag.breaks = breaks;
  }

  size_t whole(size_t position, size_t end) {
    if (end != none) add(position, end, false);
    return end;
  }

  size_t behind(std::string_view what, size_t from) {
    const auto missing = missing_.find(what);
    if (missing != missing_.end() && from >= missing->second) return none;
    const size_t found = marked_.find(what, from);
    if (found == none) missing_[what] = from;
    return found == none ? none : found + what.size();
  }

  /// The first ">" or "[" from `from` on, which never goes back; none where there is none.
  size_t bracket_from(size_t from) {
    if (bracket_ < from) bracket_ = marked_.find_first_of(">[", from);
    return bracket_;
  }

  /// Behind the ">" of the tag whose name begins there: quoted values of attributes may have others.
  size_t end_of_tag(size_t from) {
    if (ends_.empty()) find_ends();
    size_t end = ends_[from];
    if (end == none) {  // a quote that never ends is none
      return behind(">", from);
    }
    return end + 1;
  }

  /// For every byte, as one within a tag: where the tag ends.
  void find_ends() {
    ends_.assign(marked_.size() + 1, none);
    size_t single = none, twice = none;  // from the next byte on, within quotes of either kind
    for (size_t i = marked_.size(); i-- > 0;) {
      const char c = marked_[i];
      const bool value = (c == '"' || c == '\'') && begins_value(i);
      const size_t outside = ends_[i + 1];
      ends_[i] = c == '>' ? i : !value ? outside : c == '"' ? twice : single;
      if (c == '"') twice = outside;
      if (c == '\'') single = outside;
    }
  }

  /// Behind the ">" of a tag that goes on at `from`; none where the text ends first. `tag` has how it goes on from
  /// there.
  size_t scan_tag(size_t from, OpenMarkup& tag) const {
    for (size_t i = from; i < marked_.size(); ++i) {
      const char c = marked_[i];
      if (tag.quote != 0) {
        if (c == tag.quote) tag.quote = 0;
        continue;
      }
      if (c == '>') return i + 1;
      if ((c == '"' || c == '\'') && tag.value) tag.quote = c;
      if (!is_ascii_blank(c)) tag.value = c == '=';
    }
    return none;
  }

  /// Whether a value of an attribute begins at `position`.
  bool begins_value(size_t position) const {
    while (position > 0 && is_ascii_blank(marked_[position - 1])) --position;
    return position > 0 && marked_[position - 1] == '=';
  }

  /// Behind the end tag of `name`, whose contents are no markup.
  size_t end_of_raw(const std::string& name, size_t from) {
    auto& missing = missing_raw_[name];
    if (missing) return none;
    const size_t tag = end_tag_of(name, from);
    const size_t end = tag == none ? none : behind(">", tag);
    missing = end == none;
    return end;
  }

  /// Behind the name in the next end tag of the element `name`.
  size_t end_tag_of(const std::string& name, size_t from) const {
    const std::string wanted = "</" + name;
    for (size_t at = marked_.find("</", from); at != none; at = marked_.find("</", at + 2)) {
      const auto found = marked_.substr(at, wanted.size());
      const size_t end = at + wanted.size();
      const auto ends = [&] {
        return end == marked_.size() || is_ascii_blank(marked_[end]) || marked_[end] == '/' || marked_[end] == '>';
      };
      if (found.size() == wanted.size() &&
          std::equal(found.begin(), found.end(), wanted.begin(), [](char a, char b) { return ascii_lower(a) == b; }) &&
          ends()) {
        return end;
      }
    }
    return none;
  }

  void open(const std::string& name) {
    open_.push_back({result_.tags.size() - 1, name});
    ++open_names_[name];
  }

  /// Ends the innermost open element of the name; those that are open within it have no end.
  void close(const std::string& name) {
    const auto known = open_names_.find(name);
    if (known == open_names_.end() || known->second == 0) return;
    while (true) {
      const auto innermost = std::move(open_.back());
      open_.pop_back();
      --open_names_[innermost.second];
      if (innermost.second != name) continue;
      const auto begin = static_cast<int64_t>(innermost.first), end = std::ssize(result_.tags) - 1;
      result_.tags[innermost.first].partner = end;
      result_.tags.back().partner = begin;
      return;
    }
  }

  /// Takes up the character that is referred to at `position`, what has another name, or the & itself; returns what is
  /// behind it.
  size_t reference_at(size_t position) {
    if (marked_.substr(position + 1).starts_with('#')) return number_at(position);
    const size_t end = name_end(position + 1);
    const auto name = marked_.substr(position + 1, end - position - 1);
    if (!name.empty() && end < marked_.size() && marked_[end] == ';') {
      if (const auto found = entity_of(name)) {
        append_utf8(found, result_.text);
      } else {
        // Before names without a semicolon: "&copyCmd;" is no "&copy" there.
        add(position, end + 1, false);
        result_.tags.back().placeholder = true;
      }
      return end + 1;
    }
    if (const size_t bare = bare_entity(name); bare > 0) {
      append_utf8(entity_of(name.substr(0, bare)), result_.text);
      return position + 1 + bare;
    }
    result_.text += '&';
    return position + 1;
  }

  /// Behind the name that begins at `position`, as XML has them; there where none does.
  size_t name_end(size_t position) const {
    const auto begins = [](char c) { return is_ascii_letter(c) || c == '_' || c == ':'; };
    if (position >= marked_.size() || !begins(marked_[position])) return position;
    const auto goes_on = [&](char c) { return begins(c) || is_ascii_digit(c) || c == '.' || c == '-'; };
    while (position < marked_.size() && goes_on(marked_[position])) ++position;
    return position;
  }

  size_t number_at(size_t position) {
    size_t at = position + 2;
    const bool hexadecimal = at < marked_.size() && ascii_lower(marked_[at]) == 'x';
    at += hexadecimal;
    const size_t first = at;
    char32_t value = 0;
    for (; at < marked_.size(); ++at) {
      const int digit = hexadecimal_digit(marked_[at]), base = hexadecimal ? 16 : 10;
      if (digit < 0 || digit >= base) break;
      // Too large stays too large.
      value = std::min<char32_t>(value * static_cast<char32_t>(base) + static_cast<char32_t>(digit), 0x110000);
    }
    if (at == first) {
      result_.text += '&';
      return position + 1;
    }
    append_referred(value);
    return at < marked_.size() && marked_[at] == ';' ? at + 1 : at;
  }

  void append_referred(char32_t value) {
    // What old pages mean by numbers that are controls (Windows' code page 1252).
    static constexpr std::array<char16_t, 32> windows = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                                         0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                                         0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                                         0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
    if (value >= 0x80 && value < 0xA0) value = windows[value - 0x80];
    if (value == 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) value = 0xFFFD;
    // A line of output stays one.
    if (is_blank(value) && value < 0x20) value = U' ';
    const bool control = value < 0x20 || (value >= 0x7F && value < 0xA0);
    const bool character = (value < 0xFDD0 || value > 0xFDEF) && (value & 0xFFFE) != 0xFFFE;
    if (!control && character) append_utf8(value, result_.text);
  }

  std::string_view marked_;
  CarriedOver carried_;
  OpenMarkup* open_markup_;
  MarkedText result_;
  std::vector<size_t> ends_;
  std::map<std::string_view, size_t> missing_;  // from where on
  size_t bracket_ = 0;                          // the latest that was looked for
  std::map<std::string, bool> missing_raw_;
  std::vector<std::pair<size_t, std::string>> open_;  // tags and their names
  std::unordered_map<std::string, int64_t> open_names_;
};

char32_t character_at(std::string_view text, size_t position) {
  return next_code_point(text, position);
}

char32_t last_of(std::string_view text) {
  return character_at(text, base_before(text, text.size()));
}

/// `text` up to its last letter or digit.
std::string_view up_to_letter(std::string_view text) {
  while (!text.empty() && !is_letter_or_digit(last_of(text))) text = text.substr(0, base_before(text, text.size()));
  return text;
}

bool has_any(std::string_view text, bool (*is)(char32_t)) {
  for (size_t position = 0; position < text.size();) {
    if (is(next_code_point(text, position))) return true;
  }
  return false;
}

/// Whether what is apart from a word before it goes without a blank before `c`.
bool is_glued(char32_t c) {
  const auto kind = kind_of(c);
  const bool in_addresses = c == U'&' || c == U'#' || c == U'@' || c == U'%' || c == U'/' || c == U'*' || c == U'\\';
  return (kind == CharacterKind::punctuation && !in_addresses) || kind == CharacterKind::closing;
}

/// Whether two characters are round what is between them alone.
bool encloses(char32_t left, char32_t right) {
  using enum CharacterKind;
  const auto one = kind_of(left), other = kind_of(right);
  if ((one == opening || one == quote) && (other == closing || other == quote)) return true;
  return left == right && (left == U'*' || left == U'_' || left == U'`' || left == U'~');
}

/// Gives placeholders what belongs to them alone: see MarkedText.
class Gatherer {
 public:
  explicit Gatherer(MarkedText&& source) : source_(std::move(source)), text_(source_.text), tags_(source_.tags) {
    result_.has_references = source_.has_references;
  }

  MarkedText gather() {
    std::vector<int64_t> places(tags_.size());  // among the result's
    for (size_t i = 0; i < tags_.size();) {
      places[i] = std::ssize(result_.tags);
      if (tags_[i].placeholder) {
        i = take_chunk(i);
        continue;
      }
      take_text(tags_[i].position);
      if (tags_[i].breaks) previous_ = 0;
      result_.tags.push_back(std::move(tags_[i++]));
      result_.tags.back().position = result_.text.size();
    }
    take_text(text_.size());
    for (auto& tag : result_.tags) {
      if (tag.partner >= 0) tag.partner = places[static_cast<size_t>(tag.partner)];
    }
    return std::move(result_);
  }

 private:
  void take_text(size_t end) {
    for (size_t position = taken_; position < end;) {
      const char32_t c = next_code_point(text_, position);
      if (ends_line(c)) {
        previous_ = 0;
      } else if (!is_blank(c) && kind_of(c) != CharacterKind::mark) {
        previous_ = c;
      }
    }
    if (taken_ < end) result_.text.append(text_.substr(taken_, end - taken_));
    taken_ = std::max(taken_, end);
  }

  /// Takes up the placeholders between whose characters no blank is, from the tag `first` on; returns the tag behind.
  size_t take_chunk(size_t first) {
    size_t last = first;
    while (last + 1 < tags_.size() && tags_[last + 1].placeholder && !has_any(between(last, last + 1), is_blank))
      ++last;
    const size_t lowest = std::max(taken_, first > 0 ? tags_[first - 1].position : 0);
    const size_t highest = last + 1 < tags_.size() ? tags_[last + 1].position : text_.size();
    size_t left = tags_[first].position, right = tags_[last].position;
    while (left > lowest && !is_blank(character_at(text_, step_back(text_, left)))) left = step_back(text_, left);
    while (right < highest && !is_blank(character_at(text_, right))) next_code_point(text_, right);
    if (has_any(text_.substr(left, right - left), is_letter_or_digit)) {
      for (size_t i = first; i <= last; ++i) take_unit(i, i, {tags_[i].position, tags_[i].position});
    } else {
      take_unit(first, last, widened(first, last, {left, right}));
    }
    return last + 1;
  }

  std::string_view between(size_t a, size_t b) const {
    return text_.substr(tags_[a].position, tags_[b].position - tags_[a].position);
  }

  /// What belongs to the placeholders `first` to `last`, which are all the words of `chunk`.
  TextSpan widened(size_t first, size_t last, const TextSpan& chunk) {
    using enum CharacterKind;
    take_text(chunk.begin);
    const bool clause_begins = previous_ == 0 || kind_of(previous_) == punctuation;
    TextSpan unit{tags_[first].position, tags_[last].position};
    const auto sign_before = [&](size_t position) {  // with its marks
      const auto part = text_.substr(chunk.begin, position - chunk.begin);
      return part.empty() ? position : chunk.begin + base_before(part, part.size());
    };
    size_t sign = sign_before(unit.begin);
    while (true) {
      const bool left = unit.begin > chunk.begin, right = unit.end < chunk.end;
      const char32_t previous = left ? character_at(text_, sign) : 0, next = right ? character_at(text_, unit.end) : 0;
      const bool both = left && right && encloses(previous, next);
      const auto kind = kind_of(previous), next_kind = kind_of(next);
      const bool ends_clause =
          clause_begins && next_kind == punctuation && !(is_comma(previous_) && ends_sentence(next));
      const bool more_right = right && (next_kind == symbol || next_kind == mark || next == U'%' || next == U'/' ||
                                        next == U'#' || next == U'&' || ends_clause);
      const bool more_left = left && (kind == symbol || kind == punctuation || kind == dash);
      if (both || more_right) next_code_point(text_, unit.end);
      if (both || (more_left && !more_right)) {
        unit.begin = sign;
        sign = sign_before(sign);
      }
      if (!both && !more_left && !more_right) return unit;
    }
  }

  void take_unit(size_t first, size_t last, const TextSpan& span) {
    take_text(span.begin);
    auto& text = result_.text;
    MarkedText::Tag unit;
    unit.placeholder = true;
    for (size_t i = first; i <= last; ++i) {
      unit.markup += take_written(tags_[i].position) + tags_[i].markup;
    }
    unit.markup += take_written(span.end);
    const bool more = taken_ < text_.size();
    const char32_t next = more ? character_at(text_, taken_) : U' ';
    const auto is_next_to_another = [&](size_t tag) {
      return tag < tags_.size() && tags_[tag].placeholder && tags_[tag].position == tags_[first].position;
    };
    unit.before = is_next_to_another(first - 1) ? MarkedText::Beside::word
                  : text.empty()                ? MarkedText::Beside::blank
                                                : beside(last_of(text));
    unit.behind = is_next_to_another(last + 1) ? MarkedText::Beside::word : beside(next);
    if (text.ends_with(' ') && more) {
      if (next == U' ') {
        ++taken_;
      } else if (is_glued(next) && text.size() > 1 && !is_blank(character_at(text, step_back(text, text.size() - 1)))) {
        text.pop_back();
        if (ends_sentence(next)) take_comma(unit);
        for (auto tag = result_.tags.rbegin(); tag != result_.tags.rend() && tag->position > text.size(); ++tag) {
          tag->position = text.size();
        }
      }
    }
    unit.position = text.size();
    result_.tags.push_back(std::move(unit));
  }

  /// "Hello, {name}! Welcome!" is "Hello! Welcome!" without.
  void take_comma(MarkedText::Tag& unit) {
    auto& text = result_.text;
    const bool alone = result_.tags.empty() || result_.tags.back().position < text.size();
    if (!alone || text.size() < 2 || !is_comma(static_cast<unsigned char>(text.back()))) return;
    if (!is_letter_or_digit(character_at(text, base_before(text, text.size() - 1)))) return;
    unit.markup = std::string(1, text.back()) + ' ' + unit.markup;
    unit.before = MarkedText::Beside::comma;
    text.pop_back();
  }

  static bool is_comma(char32_t c) { return c == U',' || c == U';' || c == U':'; }
  static bool ends_sentence(char32_t c) { return c == U'.' || c == U'!' || c == U'?' || c == 0x2026; }

  static MarkedText::Beside beside(char32_t c) {
    if (is_blank(c)) return MarkedText::Beside::blank;
    // Words without blanks between them are not part of what is beside them.
    return is_of_spaced_word(c) ? MarkedText::Beside::word : MarkedText::Beside::sign;
  }

  /// The text up to `end` as it is written between tags. A blank that was left out may be behind.
  std::string take_written(size_t end) {
    if (end <= taken_) return "";
    const auto part = text_.substr(taken_, end - taken_);
    taken_ = end;
    return source_.has_references ? escaped_text(part) : std::string(part);
  }

  MarkedText source_;
  std::string_view text_;
  std::vector<MarkedText::Tag>& tags_;
  MarkedText result_;
  size_t taken_ = 0;       // of the text
  char32_t previous_ = 0;  // character of the line but for blanks; 0: none
};

/// Bytes of the translation.
using Range = TextSpan;

struct Node {
  size_t tag = 0;
  size_t end_tag = none;  // of an element
  Range range;            // where it comes to stand
  std::vector<size_t> children;
};

struct Words {
  std::vector<TextSpan> spans;
  std::vector<size_t> segments;  // of each
};

Words words_of(std::string_view text, std::span<const AlignedSegment> segments, TextSpan AlignedSegment::*side) {
  Words words;
  for (size_t k = 0; k < segments.size(); ++k) {
    for (const auto word : split_words((segments[k].*side).of(text))) {
      const auto begin = static_cast<size_t>(word.data() - text.data());
      words.spans.push_back({begin, begin + word.size()});
      words.segments.push_back(k);
    }
  }
  return words;
}

class Placer {
 public:
  Placer(const MarkedText& source, std::string_view translation, std::span<const AlignedSegment> segments)
      : marked_(source), text_(source.text), translation_(translation), segments_(segments) {
    has_placeholders_ =
        std::any_of(source.tags.begin(), source.tags.end(), [](const auto& tag) { return tag.placeholder; });
    check();
    sources_ = words_of(text_, segments, &AlignedSegment::source);
    targets_ = words_of(translation_, segments, &AlignedSegment::target);
    link();
  }

  std::vector<PlacedTag> place() {
    build();
    std::vector<size_t> pending = {0};
    while (!pending.empty()) {
      const size_t node = pending.back();
      pending.pop_back();
      place_children(node);
      pending.insert(pending.end(), nodes_[node].children.begin(), nodes_[node].children.end());
    }
    return write();
  }

 private:
  void check() const {
    size_t source = 0, target = 0;
    for (const auto& segment : segments_) {
      if (segment.source.begin < source || segment.source.end < segment.source.begin ||
          segment.source.end > text_.size() || segment.target.begin < target ||
          segment.target.end < segment.target.begin || segment.target.end > translation_.size()) {
        throw std::invalid_argument("place_tags: segments are out of order");
      }
      source = segment.source.end;
      target = segment.target.end;
    }
  }

  void link() {
    source_of_.assign(targets_.spans.size(), none);
    std::vector<size_t> first_source(segments_.size() + 1), first_target(segments_.size() + 1);
    for (const size_t k : sources_.segments) ++first_source[k + 1];
    for (const size_t k : targets_.segments) ++first_target[k + 1];
    for (size_t k = 0; k < segments_.size(); ++k) {
      first_source[k + 1] += first_source[k];
      first_target[k + 1] += first_target[k];
      for (const auto& [from, to] : segments_[k].links) {
        const size_t word = first_source[k] + from, target = first_target[k] + to;
        if (word >= first_source[k + 1] || from > word || target >= first_target[k + 1] || to > target) continue;
        if (source_of_[target] == none) source_of_[target] = word;
      }
    }
    targets_of_.resize(sources_.spans.size());
    linked_before_.push_back(0);
    for (size_t target = 0; target < source_of_.size(); ++target) {
      const size_t word = source_of_[target];
      if (word != none) targets_of_[word].push_back(target);
      linked_before_.push_back(linked_before_.back() + (word != none));
    }
    // The nearest words with a link, on either side, within the segment.
    const size_t count = sources_.spans.size();
    linked_left_.assign(count, none);
    linked_right_.assign(count, none);
    for (size_t word = 0; word < count; ++word) {
      const bool goes_on = word > 0 && sources_.segments[word - 1] == sources_.segments[word];
      linked_left_[word] = !targets_of_[word].empty() ? word : goes_on ? linked_left_[word - 1] : none;
    }
    for (size_t word = count; word-- > 0;) {
      const bool goes_on = word + 1 < count && sources_.segments[word + 1] == sources_.segments[word];
      linked_right_[word] = !targets_of_[word].empty() ? word : goes_on ? linked_right_[word + 1] : none;
    }
    taken_by_.assign(targets_.spans.size(), none);
  }

  /// The elements as a tree below a root that is around all.
  void build() {
    nodes_.emplace_back();
    nodes_[0].range = {0, translation_.size()};
    std::vector<size_t> open = {0};
    for (size_t tag = 0; tag < marked_.tags.size(); ++tag) {
      const auto partner = marked_.tags[tag].partner;
      if (partner >= 0 && static_cast<size_t>(partner) < tag) {
        open.pop_back();
        continue;
      }
      nodes_[open.back()].children.push_back(nodes_.size());
      nodes_.push_back({tag, partner < 0 ? none : static_cast<size_t>(partner), {}, {}});
      if (partner >= 0) open.push_back(nodes_.size() - 1);
    }
  }

  size_t begin_of(const Node& node) const { return marked_.tags[node.tag].position; }
  size_t end_of(const Node& node) const {
    return node.end_tag == none ? begin_of(node) : marked_.tags[node.end_tag].position;
  }

  /// The source's words that are at least in part between two places.
  std::pair<size_t, size_t> words_between(size_t begin, size_t end) const {
    if (begin >= end) return {0, 0};
    const auto& spans = sources_.spans;
    const auto first =
        std::partition_point(spans.begin(), spans.end(), [&](const auto& span) { return span.end <= begin; });
    const auto last = std::partition_point(first, spans.end(), [&](const auto& span) { return span.begin < end; });
    return {static_cast<size_t>(first - spans.begin()), static_cast<size_t>(last - spans.begin())};
  }

  /// Where a place between segments is in the translation; none for one within a segment.
  size_t anchor_of(size_t position) const {
    const auto next = std::partition_point(segments_.begin(), segments_.end(),
                                           [&](const auto& segment) { return segment.source.end <= position; });
    if (next != segments_.end() && next->source.begin < position) return none;
    const bool first = next == segments_.begin(), last = next == segments_.end();
    const size_t source = first ? 0 : std::prev(next)->source.end, target = first ? 0 : std::prev(next)->target.end;
    const size_t end = last ? translation_.size() : next->target.begin;
    return std::min(target + (position - source), end);
  }

  void place_children(size_t parent) {
    const Range range = nodes_[parent].range;
    const auto children = nodes_[parent].children;
    std::vector<Range> taken;
    std::vector<size_t> others;
    size_t free_from = range.begin;
    // What is around whole segments or what is between them, or reaches from one into another.
    for (const size_t child : children) {
      auto& node = nodes_[child];
      if (begin_of(node) == end_of(node)) continue;
      const auto [first, last] = words_between(begin_of(node), end_of(node));
      const size_t from = anchor_of(begin_of(node)), to = anchor_of(end_of(node));
      if (from == none || to == none) {
        if (first == last) continue;
        if (sources_.segments[first] == sources_.segments[last - 1]) {
          others.push_back(child);
          continue;
        }
      }
      const Range free{std::min(free_from, range.end), range.end};
      const size_t begin = from != none ? from : beginning_in(sources_.segments[first], first, last, free);
      const size_t end = to != none ? to : end_in(sources_.segments[last - 1], first, last, free);
      node.range.begin = std::clamp(begin, free.begin, free.end);
      node.range.end = std::clamp(end, node.range.begin, free.end);
      free_from = node.range.end;
      take(parent, node.range, taken);
    }
    for (const size_t child : others) {
      auto& node = nodes_[child];
      const auto [first, last] = words_between(begin_of(node), end_of(node));
      node.range = longest_run(parent, first, last);
      if (node.range.begin < node.range.end) {
        trim_punctuation(node);
        take(parent, node.range, taken);
      }
    }
    std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    const auto [first, last] = words_between(begin_of_parent(parent), end_of_parent(parent));
    for (const size_t child : children) {
      auto& node = nodes_[child];
      if (node.range.begin < node.range.end) continue;
      node.range.begin = node.range.end = point_for(node, range, {first, last}, taken);
    }
    std::sort(nodes_[parent].children.begin(), nodes_[parent].children.end(), [&](size_t a, size_t b) {
      const auto key = [&](size_t child) {
        const auto& node = nodes_[child];
        return std::tuple(node.range.begin, node.range.end != node.range.begin, child);
      };
      return key(a) < key(b);
    });
  }

  size_t begin_of_parent(size_t node) const { return node == 0 ? 0 : begin_of(nodes_[node]); }
  size_t end_of_parent(size_t node) const { return node == 0 ? text_.size() : end_of(nodes_[node]); }

  /// Target words that are at least in part within a range.
  std::pair<size_t, size_t> targets_within(const Range& range) const {
    const auto& spans = targets_.spans;
    const auto first =
        std::partition_point(spans.begin(), spans.end(), [&](const auto& span) { return span.end <= range.begin; });
    const auto last =
        std::partition_point(first, spans.end(), [&](const auto& span) { return span.begin < range.end; });
    return {static_cast<size_t>(first - spans.begin()), static_cast<size_t>(last - spans.begin())};
  }

  void take(size_t parent, const Range& range, std::vector<Range>& taken) {
    if (range.begin == range.end) return;
    taken.push_back(range);
    const auto [first, last] = targets_within(range);
    std::fill(taken_by_.begin() + static_cast<std::ptrdiff_t>(first),
              taken_by_.begin() + static_cast<std::ptrdiff_t>(last), parent);
  }

  /// +1 for a target word that stands for one of the source's words [first, last), -1 for another's.
  int64_t worth(size_t target, size_t first, size_t last) const {
    const size_t word = source_of_[target];
    return word == none ? 0 : word >= first && word < last ? 1 : -1;
  }

  /// Where what goes on behind a segment begins within it: such that most of its own words are behind.
  size_t beginning_in(size_t segment, size_t first, size_t last, const Range& free) const {
    const auto [begin, end] = targets_within({segments_[segment].target.begin, segments_[segment].target.end});
    size_t best = segments_[segment].target.end;
    int64_t sum = 0, most = 0;
    for (size_t target = end; target-- > begin;) {
      if (targets_.spans[target].begin < free.begin) break;
      sum += worth(target, first, last);
      if (sum <= most) continue;
      most = sum;
      best = targets_.spans[target].begin;
    }
    return best;
  }

  size_t end_in(size_t segment, size_t first, size_t last, const Range& free) const {
    const auto [begin, end] = targets_within({segments_[segment].target.begin, segments_[segment].target.end});
    size_t best = segments_[segment].target.begin;
    int64_t sum = 0, most = 0;
    for (size_t target = begin; target < end; ++target) {
      if (targets_.spans[target].end > free.end) break;
      sum += worth(target, first, last);
      if (sum <= most) continue;
      most = sum;
      best = targets_.spans[target].end;
    }
    return best;
  }

  /// The longest run of words within the parent's range, and free, that stand for the source's [first, last); words
  /// that stand for none may be between.
  Range longest_run(size_t parent, size_t first, size_t last) const {
    const Range& range = nodes_[parent].range;
    std::vector<size_t> own;
    for (size_t word = first; word < last; ++word) {
      for (const size_t target : targets_of_[word]) {
        const auto& span = targets_.spans[target];
        if (span.begin < range.end && span.end > range.begin && taken_by_[target] != parent) own.push_back(target);
      }
    }
    std::sort(own.begin(), own.end());
    const auto joined = [&](size_t a, size_t b) {
      if (linked_before_[b] != linked_before_[a + 1]) return false;
      for (size_t target = a + 1; target < b; ++target) {
        if (taken_by_[target] == parent) return false;
      }
      return true;
    };
    Range best;
    size_t most = 0;
    for (size_t i = 0; i < own.size();) {
      size_t end = i + 1;
      while (end < own.size() && joined(own[end - 1], own[end])) ++end;
      if (end - i > most) {
        most = end - i;
        best = {std::max(range.begin, targets_.spans[own[i]].begin),
                std::min(range.end, targets_.spans[own[end - 1]].end)};
      }
      i = end;
    }
    return best.begin < best.end ? best : Range{0, 0};
  }

  /// Where an element's text begins or ends with a letter, its translation does, too.
  void trim_punctuation(Node& node) const {
    auto range = node.range;
    if (is_letter_or_digit(character_at(text_, base_before(text_, end_of(node))))) {
      range.end = range.begin + up_to_letter(range.of(translation_)).size();
    }
    if (is_letter_or_digit(character_at(text_, begin_of(node)))) {
      while (range.begin < range.end && !is_letter_or_digit(character_at(translation_, range.begin)))
        next_code_point(translation_, range.begin);
    }
    if (range.begin < range.end) node.range = range;
  }

  /// Where a tag goes that is around nothing.
  size_t point_for(const Node& node, const Range& parent, std::pair<size_t, size_t> words,
                   const std::vector<Range>& taken) const {
    const size_t place = begin_of(node);
    size_t position = beside_own_word(marked_.tags[node.tag]);
    if (position == none) position = anchor_of(place);
    if (position == none) position = beside_neighbour(place, parent, words);
    position = std::clamp(position, parent.begin, parent.end);
    // Not within a sibling.
    const auto behind =
        std::partition_point(taken.begin(), taken.end(), [&](const auto& range) { return range.begin < position; });
    if (behind != taken.begin() && std::prev(behind)->end > position) position = std::prev(behind)->end;
    return position;
  }

  /// Where a placeholder goes that is part of a word ("{count}MB"); none where it is not, or nothing stands for the
  /// word.
  size_t beside_own_word(const MarkedText::Tag& tag) const {
    const bool begins = tag.placeholder && tag.behind == MarkedText::Beside::word,
               ends = tag.placeholder && tag.before == MarkedText::Beside::word;
    if (begins == ends) return none;
    const auto& spans = sources_.spans;
    const auto found = std::partition_point(spans.begin(), spans.end(), [&](const auto& span) {
      return begins ? span.end <= tag.position : span.end < tag.position;
    });
    if (found == spans.end() || found->begin > tag.position) return none;
    const auto& targets = targets_of_[static_cast<size_t>(found - spans.begin())];
    if (targets.empty()) return none;
    if (begins) return targets_.spans[targets.front()].begin;
    return end_of_word(targets.back(), text_.substr(tag.position, found->end - tag.position));
  }

  size_t beside_neighbour(size_t place, const Range& parent, std::pair<size_t, size_t> words) const {
    const auto& spans = sources_.spans;
    const auto next =
        std::partition_point(spans.begin(), spans.end(), [&](const auto& span) { return span.end <= place; });
    const auto right = static_cast<size_t>(next - spans.begin());  // ends behind the place
    const size_t left = right < spans.size() && spans[right].begin < place ? right : right - 1;  // begins before it
    if (right >= words.second) return parent.end;
    if (right == 0 && left != right) return parent.begin;
    if (left < words.first) return parent.begin;
    const bool glued = spans[left].end >= place;
    const size_t after = linked_left_[left], before = linked_right_[right];
    const bool same = sources_.segments[left] == sources_.segments[right];
    if (after != none && (glued || before == none || !same)) {
      const bool within = place < spans[left].end;
      return end_of_word(targets_of_[after].back(),
                         within ? text_.substr(place, spans[left].end - place) : std::string_view());
    }
    if (before != none) return targets_.spans[targets_of_[before].front()].begin;
    return segments_[sources_.segments[right]].target.begin;
  }

  /// Behind a target word, or before its punctuation where placeholders are carried over and `rest`, of the source's
  /// word, is nothing else.
  size_t end_of_word(size_t target, std::string_view rest) const {
    const auto& span = targets_.spans[target];
    if (!has_placeholders_ || rest.empty() || has_any(rest, is_letter_or_digit)) return span.end;
    const auto word = span.of(translation_);
    if (word.ends_with(rest) && word.size() > rest.size()) return span.end - rest.size();
    const auto letters = up_to_letter(word);
    return letters.empty() ? span.end : span.begin + letters.size();
  }

  std::vector<PlacedTag> write() const {
    std::vector<PlacedTag> placed;
    struct Step {
      size_t node;
      size_t next = 0;  // child
    };
    std::vector<Step> steps = {{0}};
    while (!steps.empty()) {
      auto& step = steps.back();
      const auto& node = nodes_[step.node];
      if (step.next == 0 && step.node != 0) placed.push_back({node.tag, node.range.begin});
      if (step.next < node.children.size()) {
        const size_t child = node.children[step.next++];
        steps.push_back({child});
        continue;
      }
      if (node.end_tag != none) placed.push_back({node.end_tag, node.range.end});
      steps.pop_back();
    }
    return placed;
  }

  const MarkedText& marked_;
  std::string_view text_, translation_;
  std::span<const AlignedSegment> segments_;
  bool has_placeholders_ = false;
  Words sources_, targets_;
  std::vector<size_t> source_of_;                // of each target word: the word that it stands for, or none
  std::vector<std::vector<size_t>> targets_of_;  // of each source word, ascending
  std::vector<size_t> linked_before_;            // target words with a link, before each
  std::vector<size_t> linked_left_, linked_right_;
  std::vector<size_t> taken_by_;  // of each target word: the element within which one of its children has it
  std::vector<Node> nodes_;
};

/// Puts a translation and its tags together.
class Writer {
 public:
  explicit Writer(bool has_references) : has_references_(has_references) {}

  void add_text(std::string_view text) {
    if (text.empty()) return;
    const char32_t next = character_at(text, 0);
    if (placeholder_ && !begins_with_marks(text) && is_apart(placeholder_->behind, next)) add_blank();
    result_ += has_references_ ? escaped_text(text) : std::string(text);
    last_ = last_of(text);
    placeholder_ = nullptr;
    blank_place_ = result_.size();
  }

  void add_tag(const MarkedText::Tag& tag, bool begins_element) {
    if (tag.placeholder) {
      const bool apart =
          placeholder_ ? placeholder_->behind != MarkedText::Beside::word || tag.before != MarkedText::Beside::word
          : last_      ? kind_of(*last_) != CharacterKind::opening && is_apart(tag.before, *last_)
                       : false;
      if (apart && tag.before != MarkedText::Beside::comma) add_blank();
      placeholder_ = &tag;
    }
    result_ += tag.markup;
    if (!begins_element) blank_place_ = result_.size();
  }

  std::string take() { return std::move(result_); }

 private:
  /// Whether there are punctuation marks, which go without a blank before them, and then a blank or nothing more.
  static bool begins_with_marks(std::string_view text) {
    size_t position = 0;
    char32_t c = 0;
    do {
      c = next_code_point(text, position);
    } while (is_glued(c) && position < text.size());
    return is_glued(c) || is_blank(c);
  }

  /// Whether a blank is to be between a placeholder with this beside it in the source, and `c`: where one was, and
  /// before what would else become part of an address, or it of a word.
  static bool is_apart(MarkedText::Beside source, char32_t c) {
    if (is_blank(c)) return false;
    if (source == MarkedText::Beside::word) return !is_word_character(c);
    const auto kind = kind_of(c);
    return source == MarkedText::Beside::blank || (kind != CharacterKind::quote && kind != CharacterKind::dash);
  }

  void add_blank() {
    result_.insert(blank_place_, 1, ' ');
    blank_place_ = result_.size();
  }

  bool has_references_;
  std::string result_;
  size_t blank_place_ = 0;                        // before the beginnings of elements that are last
  std::optional<char32_t> last_;                  // character of the text
  const MarkedText::Tag* placeholder_ = nullptr;  // that is behind it
};

}  // namespace

std::vector<size_t> MarkedText::breaks() const {
  std::vector<size_t> places;
  for (const auto& tag : tags) {
    if (tag.breaks) places.push_back(tag.position);
  }
  return places;
}

namespace {

MarkedText parsed(std::string_view marked, const CarriedOver& carried, OpenMarkup* open) {
  auto text = Parser(marked, carried, open).parse();
  const bool placeholders =
      std::any_of(text.tags.begin(), text.tags.end(), [](const auto& tag) { return tag.placeholder; });
  return placeholders ? Gatherer(std::move(text)).gather() : text;
}

}  // namespace

MarkedText parse_markup(std::string_view marked, const CarriedOver& carried) {
  return parsed(marked, carried, nullptr);
}

MarkedText parse_markup(std::string_view marked, const CarriedOver& carried, OpenMarkup& open) {
  return parsed(marked, carried, &open);
}

std::string escaped_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::vector<PlacedTag> place_tags(const MarkedText& source, std::string_view translation,
                                  std::span<const AlignedSegment> segments) {
  return Placer(source, translation, segments).place();
}

std::string with_tags(const MarkedText& source, std::string_view translation, std::span<const PlacedTag> placed) {
  Writer writer(source.has_references);
  size_t position = 0;
  for (const auto& [tag, place] : placed) {
    writer.add_text(translation.substr(position, place - position));
    writer.add_tag(source.tags[tag], source.tags[tag].partner > static_cast<int64_t>(tag));
    position = place;
  }
  writer.add_text(translation.substr(position));
  return writer.take();
}

}  // namespace transformer
