#include "transformer/text/glossary.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"
#include "transformer/text/lines.h"
#include "transformer/text/normalization.h"

namespace transformer {

namespace {

char32_t small(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

/// The letter that all are looked up as which are capitalised alike: small ones, and σ for ς, which ends words.
char32_t folded(char32_t code_point) {
  const char32_t c = small(code_point);
  return c == U'ς' ? U'σ' : c;
}

bool has_capital(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    if (small(c) != c) return true;
  }
  return false;
}

/// Whether what is before `position` ends there, joiners aside.
bool ends_at(std::string_view text, size_t position, WordKind before) {
  while (before != WordKind::apart && position < text.size()) {
    const char32_t next = next_code_point(text, position);
    if (!is_joiner(next)) return !goes_on(before, next);
  }
  return true;
}

constexpr size_t no_term = std::string_view::npos;

}  // namespace

struct Glossary::Implementation {
  struct Node {
    std::map<char32_t, size_t> next;
    size_t any_case = no_term;       // term without a capital that ends here
    std::vector<size_t> as_written;  // terms with one
  };
  std::vector<Term> terms;
  std::vector<Node> nodes = {{}};  // folded letters of all terms as a tree

  using Where = std::function<std::string(size_t term)>;

  Implementation(std::vector<Term> given, const Where& where) : terms(std::move(given)) {
    for (size_t i = 0; i < terms.size(); ++i) add(i, where);
  }

  void add(size_t index, const Where& where) {
    auto& term = terms[index];
    if (std::max(term.source.size(), term.target.size()) > longest) {
      throw Error(where(index), fmt::format("a term of more than {} bytes", longest), "give words and phrases");
    }
    term.source = normalized(term.source);
    term.target = normalized(term.target);
    if (term.source.empty() || term.target.empty()) {
      throw Error(where(index), fmt::format("there is no {}", term.source.empty() ? "term" : "translation"),
                  "give a term, a tab and its translation");
    }
    size_t node = 0;
    for (size_t position = 0; position < term.source.size();) {
      const auto [place, fresh] =
          nodes[node].next.try_emplace(folded(next_code_point(term.source, position)), nodes.size());
      node = place->second;
      if (fresh) nodes.emplace_back();
    }
    auto& end = nodes[node];
    const bool as_written = has_capital(term.source);
    const bool known = as_written ? std::any_of(end.as_written.begin(), end.as_written.end(),
                                                [&](size_t other) { return terms[other].source == term.source; })
                                  : end.any_case != no_term;
    if (known) throw Error(where(index), fmt::format("{} came before", in_quotes(term.source)), "give each term once");
    if (as_written) {
      end.as_written.push_back(index);
    } else {
      end.any_case = index;
    }
  }

  /// The longest term that stands at `begin`.
  Match longest_at(std::string_view text, size_t begin) const {
    Match best{{begin, begin}, no_term};
    size_t node = 0;
    auto kind = WordKind::apart;
    for (size_t position = begin; position < text.size();) {
      const char32_t c = next_code_point(text, position);
      const auto next = nodes[node].next.find(folded(c));
      if (next == nodes[node].next.end()) break;
      node = next->second;
      kind = word_kind(kind, c);
      size_t found = nodes[node].any_case;
      for (const size_t term : nodes[node].as_written) {
        if (terms[term].source == text.substr(begin, position - begin)) found = term;
      }
      if (found != no_term && ends_at(text, position, kind)) best = {{begin, position}, found};
    }
    return best;
  }
};

Glossary::Glossary(std::vector<Term> terms)
    : implementation_(std::make_unique<Implementation>(
          std::move(terms), [](size_t term) { return fmt::format("term {} of the glossary", term + 1); })) {}

Glossary Glossary::read(const std::filesystem::path& file) {
  std::vector<Term> terms;
  std::vector<int64_t> lines;  // of each term
  LineReader reader(file);
  const auto where = [&](int64_t line) { return fmt::format("{}:{}", file.string(), line); };
  for (std::string line; reader.next(line);) {
    if (trim(line).empty()) continue;
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || line.find('\t', tab + 1) != std::string::npos) {
      throw Error(where(reader.count()),
                  fmt::format("expected a term, a tab and its translation, found {}", in_quotes(line)),
                  "give one term a line");
    }
    terms.push_back({line.substr(0, tab), line.substr(tab + 1)});
    lines.push_back(reader.count());
  }
  if (terms.empty()) throw Error(file.string(), "has no terms", "give a term, a tab and its translation a line");
  Glossary glossary(std::vector<Term>{});
  glossary.implementation_ =
      std::make_unique<Implementation>(std::move(terms), [&](size_t term) { return where(lines[term]); });
  return glossary;
}

Glossary::~Glossary() = default;
Glossary::Glossary(Glossary&&) noexcept = default;
Glossary& Glossary::operator=(Glossary&&) noexcept = default;

const std::vector<Glossary::Term>& Glossary::terms() const {
  return implementation_->terms;
}

std::vector<Glossary::Match> Glossary::find(std::string_view normal) const {
  std::vector<Match> matches;
  auto before = WordKind::apart;
  for (size_t position = 0; position < normal.size();) {
    size_t behind = position;
    const char32_t c = next_code_point(normal, behind);
    if (!goes_on(before, c)) {
      const auto match = implementation_->longest_at(normal, position);
      if (match.term != no_term) {
        matches.push_back(match);
        before = WordKind::apart;
        while (position < match.end) before = word_kind(before, next_code_point(normal, position));
        continue;
      }
    }
    before = word_kind(before, c);
    position = behind;
  }
  return matches;
}

std::vector<std::string> Glossary::targets(std::string_view text) const {
  std::vector<std::string> targets;
  std::unordered_set<std::string_view> there;
  for (const auto& match : find(normalized(text))) {
    const auto& target = terms()[match.term].target;
    if (there.insert(target).second) targets.push_back(target);
  }
  return targets;
}

}  // namespace transformer
