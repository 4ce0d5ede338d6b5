#include "transformer/text/sentences.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"

namespace transformer {

namespace {

constexpr unsigned english = 1, german = 2, any = 4;

/// In which languages a word is one.
struct Abbreviation {
  unsigned anywhere = 0;
  unsigned before_numbers = 0;  // and nowhere else
};

// Those that mostly stand within a sentence. What often ends one (etc., usw., Inc.) is left to what follows.
const std::unordered_map<std::string_view, Abbreviation>& abbreviations() {
  // Never destroyed: threads may be at a text while the process ends.
  static const auto& table = *new auto([] {
    std::unordered_map<std::string_view, Abbreviation> all;
    const auto add = [&](unsigned languages, bool numbers, std::initializer_list<const char*> words) {
      for (const char* word : words) (numbers ? all[word].before_numbers : all[word].anywhere) |= languages;
    };
    add(english | german | any, false, {"dr", "prof", "st", "vs", "mr", "mrs", "ms", "mme", "al", "ph", "dipl", "ca"});
    add(english | any, false, {"messrs", "mx",  "rev", "fr",     "gen",  "col",  "capt", "cpt",  "lt",   "sgt",  "maj",
                               "cmdr",   "adm", "rep", "sen",    "gov",  "pres", "supt", "hon",  "insp", "mt",   "viz",
                               "cf",     "eg",  "ie",  "approx", "dept", "est",  "esp",  "incl", "univ", "assoc"});
    add(german | any, false,
        {"hr",   "hrn",  "frl",  "bzw",    "bspw",  "beisp",   "evtl", "ggf",   "gegebenenf", "inkl",  "exkl",   "sog",
         "geb",  "gest", "verh", "vgl",    "ing",   "med",     "jur",  "rer",   "nat",        "habil", "hl",     "mio",
         "mrd",  "tsd",  "insb", "insbes", "allg",  "einschl", "zzgl", "abzgl", "urspr",      "eigtl", "entspr", "lt",
         "ehem", "zw",   "dt",   "engl",   "franz", "lat",     "bes",  "aufl",  "hrsg",       "übers"});
    // Words or names of English, which end its sentences.
    add(german, false, {"fr", "max", "min", "art", "mind", "gem", "phil"});
    add(english | any, true,
        {"no",  "nos", "fig", "figs", "p",   "pp",  "vol", "vols", "ch",   "chap", "sec", "eq", "eqs",
         "jan", "feb", "mar", "apr",  "jun", "jul", "aug", "sep",  "sept", "oct",  "nov", "dec"});
    add(german | any, true,
        {"nr", "nrn", "abb", "tab", "kap", "bd", "abs", "art", "ziff", "anm", "zif", "okt", "dez", "mrz", "jän"});
    return all;
  }());
  return table;
}

bool is_full_stop(char32_t c) {
  return c == U'.' || c == 0xFF0E;
}

/// Marks that end sentences of scripts with no blanks between them.
bool is_unspaced_end(char32_t c) {
  return c == 0x3002 || c == 0xFF01 || c == 0xFF1F || c == 0xFF0E || c == 0xFF61;
}

bool is_end(char32_t c) {
  switch (c) {
    case U'.':
    case U'!':
    case U'?':
    case 0x2026:  // …
    case 0x203C:
    case 0x2047:
    case 0x2048:
    case 0x2049:
    case 0x0589:  // Armenian
    case 0x061F:  // Arabic
    case 0x06D4:
    case 0x0964:  // Devanagari and its neighbours
    case 0x0965:
    case 0x104A:  // Burmese
    case 0x104B:
    case 0x1362:  // Ethiopic
    case 0x1367:
    case 0x1368:
    case 0x17D4:  // Khmer
    case 0x17D5:
      return true;
    default:
      return is_unspaced_end(c);
  }
}

/// Whether `c` closes a sentence behind its marks. “ and its likes do in German, and open the next in Chinese.
bool closes(char32_t c, bool unspaced) {
  if (unspaced && (c == 0x2018 || c == 0x201C || c == 0xAB || c == 0x2039)) return false;
  const auto kind = kind_of(c);
  return kind == CharacterKind::closing || kind == CharacterKind::quote;
}

bool opens(char32_t c) {
  using enum CharacterKind;
  const auto kind = kind_of(c);
  return kind == opening || kind == quote || kind == dash || c == U'*' || c == 0x2022;  // •
}

/// How many brackets and quotation marks a sentence begins with at most.
constexpr int most_openings = 8;
// No abbreviation is as long, in bytes.
constexpr size_t longest_abbreviation = 40;

class Splitter {
 public:
  Splitter(std::string_view line, SentenceLanguage language)
      : line_(line),
        bits_(language == SentenceLanguage::english  ? english
              : language == SentenceLanguage::german ? german
                                                     : any) {}

  std::vector<TextSpan> split() {
    size_t position = skip_blanks(0);
    begin_ = position;
    while (position < line_.size()) {
      const size_t at = position;
      const char32_t c = next_code_point(line_, position);
      if (!is_end(c)) continue;
      size_t marks = 1;
      bool unspaced = is_unspaced_end(c);
      for (size_t next = position; next < line_.size(); position = next, ++marks) {
        const char32_t mark = next_code_point(line_, next);
        if (!is_end(mark)) break;
        unspaced = unspaced || is_unspaced_end(mark);
      }
      const size_t end_of_marks = position;
      for (size_t next = position; next < line_.size(); position = next) {
        if (!closes(next_code_point(line_, next), unspaced)) break;
      }
      const size_t behind = skip_blanks(position);
      if (behind == line_.size()) break;
      if (behind == position && !(unspaced && splits_unspaced(position))) continue;
      if (behind > position && !begins_sentence(behind, unspaced)) continue;
      if (marks == 1 && is_full_stop(c) && end_of_marks == position && belongs_to_word(at, behind)) continue;
      sentences_.push_back({begin_, position});
      position = begin_ = behind;
    }
    const auto rest = trim_end(line_.substr(begin_));
    if (!rest.empty()) sentences_.push_back({begin_, begin_ + rest.size()});
    return std::move(sentences_);
  }

 private:
  size_t skip_blanks(size_t position) const {
    for (size_t next = position; next < line_.size(); position = next) {
      if (!is_blank(next_code_point(line_, next))) break;
    }
    return position;
  }

  char32_t at(size_t position) const { return next_code_point(line_, position); }

  /// Whether a sentence may begin at `position` with no blank before it.
  bool splits_unspaced(size_t position) const {
    const auto kind = kind_of(at(position));
    return kind != CharacterKind::punctuation && kind != CharacterKind::mark;
  }

  bool begins_sentence(size_t position, bool unspaced) const {
    using enum CharacterKind;
    for (int openings = 0; position < line_.size() && openings <= most_openings; ++openings) {
      const char32_t c = next_code_point(line_, position);
      if (opens(c)) {
        position = skip_blanks(position);
        continue;
      }
      const auto kind = kind_of(c);
      return kind == upper || kind == letter || kind == digit || kind == symbol || (unspaced && kind == lower);
    }
    return false;
  }

  /// Whether the full stop at `stop` belongs to the word before it rather than to the sentence, whose next word begins
  /// at `behind`.
  bool belongs_to_word(size_t stop, size_t behind) const {
    size_t next = stop;
    const bool full_width = next_code_point(line_, next) != U'.';
    const bool before_digit = behind == next && kind_of(at(behind)) == CharacterKind::digit;
    size_t begin = stop;
    bool glued = false;
    while (begin > begin_) {
      const size_t before = step_back(line_, begin);
      const char32_t c = at(before);
      if (is_blank(c) || (!is_word_character(c) && !is_full_stop(c))) break;
      // A full-width number or initial may stand right behind Chinese or Japanese, and an abbreviation of any width.
      glued = is_unspaced(c) && kind_of(c) == CharacterKind::letter;
      if (glued) break;
      begin = before;
      if (stop - begin > longest_abbreviation) return false;
    }
    const auto word = line_.substr(begin, stop - begin);
    if (word.empty()) return false;
    const bool first = begin == begin_;
    size_t length = 0;        // characters
    size_t longest_part = 0;  // between full stops
    size_t part = 0;
    bool digits = true, cased = true, ends_with_digit = false;
    std::string lower;
    for (size_t position = 0; position < word.size();) {
      const size_t from = position;
      const char32_t c = next_code_point(word, position);
      const auto kind = kind_of(c);
      ++length;
      part = is_full_stop(c) ? 0 : part + 1;
      longest_part = std::max(longest_part, part);
      ends_with_digit = kind == CharacterKind::digit;
      digits = digits && ends_with_digit;
      cased = cased && (kind == CharacterKind::lower || kind == CharacterKind::upper || is_full_stop(c));
      // ASCII and the umlauts, which are all that abbreviations above have.
      if (c >= U'A' && c <= U'Z') {
        lower += static_cast<char>(c + 32);
      } else if (c == 0xC4 || c == 0xD6 || c == 0xDC) {
        append_utf8(c + 32, lower);
      } else {
        lower.append(word.substr(from, position - from));
      }
    }
    if (ends_with_digit && before_digit) return true;
    if (glued && !full_width && (digits || longest_part == 1)) return false;
    if (digits) return first || (!full_width && bits_ != english && length <= 2);
    if (cased && longest_part == 1) {
      // Initials, z.B., U.S.; but 5 p.m. ends what a capital follows.
      return lower != "a.m" && lower != "p.m";
    }
    const auto known = abbreviations().find(lower);
    if (known == abbreviations().end()) return false;
    const auto& [anywhere, before_numbers] = known->second;
    return (anywhere & bits_) != 0 || ((before_numbers & bits_) != 0 && kind_of(at(behind)) == CharacterKind::digit);
  }

  std::string_view line_;
  unsigned bits_;
  size_t begin_ = 0;  // of the sentence
  std::vector<TextSpan> sentences_;
};

}  // namespace

std::vector<TextSpan> split_sentences(std::string_view line, SentenceLanguage language) {
  return Splitter(line, language).split();
}

}  // namespace transformer
