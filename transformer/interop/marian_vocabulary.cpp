#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "transformer/base/error.h"
#include "transformer/base/number.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/interop/marian_file.h"
#include "transformer/text/sentencepiece_model.h"

namespace transformer {
namespace {

/// The inside of a text in double quotes, with YAML's escapes; nothing where one of them is none.
std::optional<std::string> unescaped(std::string_view text) {
  constexpr std::string_view letters = "0abt\tnvfre\"/\\ N_LP";
  constexpr std::u32string_view meant(U"\0\a\b\t\t\n\v\f\r\x1b\"/\\ \x85\xa0\u2028\u2029", letters.size());
  std::string result;
  while (!text.empty()) {
    const char c = text.front();
    text.remove_prefix(1);
    if (c != '\\') {
      if (c == '"') return std::nullopt;
      result += c;
      continue;
    }
    if (text.empty()) return std::nullopt;
    const char kind = text.front();
    text.remove_prefix(1);
    if (const size_t found = letters.find(kind); found != std::string_view::npos) {
      append_utf8(meant[found], result);
      continue;
    }
    const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    uint32_t code = 0;
    const auto number = text.substr(0, digits);
    const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), code, 16);
    if (digits == 0 || number.size() != digits || problem != std::errc() || end != number.data() + number.size()) {
      return std::nullopt;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return std::nullopt;
    append_utf8(code, result);
    text.remove_prefix(digits);
  }
  return result;
}

/// A scalar as YAML spells it on one line.
std::optional<std::string> unquoted(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') return unescaped(text.substr(1, text.size() - 2));
  if (text.size() < 2 || text.front() != '\'' || text.back() != '\'') return std::string(text);
  std::string result;
  for (text = text.substr(1, text.size() - 2); !text.empty(); text.remove_prefix(1)) {
    if (text.front() == '\'') {
      if (!text.starts_with("''")) return std::nullopt;
      text.remove_prefix(1);
    }
    result += text.front();
  }
  return result;
}

}  // namespace

std::vector<std::string> marian_vocabulary(const std::filesystem::path& file) {
  const auto text = read_file(file, SentencePieceModel::most_bytes);
  std::vector<std::pair<std::string, size_t>> entries;
  std::optional<std::string_view> asked;  // after "? ": long pieces have lines of their own
  size_t line_number = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    ++line_number;
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto refuse = [&](const std::string& what) {
      throw Error(fmt::format("{}:{}", file.string(), line_number), what, "expected a piece and its id: 'word: 17'");
    };
    if (line.empty() || (entries.empty() && line == "---")) continue;
    std::string_view piece, id;
    if (asked) {
      if (!line.starts_with(": ")) refuse("is no id of the piece before it");
      piece = *asked;
      id = line.substr(2);
      asked.reset();
    } else if (line.starts_with("? ")) {
      asked = line.substr(2);
      continue;
    } else {
      const size_t colon = line.rfind(": ");
      if (colon == std::string_view::npos) refuse("is no piece of a vocabulary");
      piece = line.substr(0, colon);
      id = line.substr(colon + 2);
    }
    id = trim(id);
    const auto number = number_in<size_t>(id).value_or(SentencePieceModel::most_pieces);
    if (number >= SentencePieceModel::most_pieces) refuse(fmt::format("gives the id {}", in_quotes(id)));
    auto read = unquoted(piece);
    if (!read || read->empty() || find_broken_utf8(*read) != std::string::npos) refuse("holds no piece");
    if (entries.size() == SentencePieceModel::most_pieces) {
      refuse(fmt::format("is one piece more than {}", SentencePieceModel::most_pieces));
    }
    entries.emplace_back(std::move(*read), number);
  }
  std::vector<std::string> pieces(entries.size());
  for (auto& [piece, id] : entries) {
    if (id >= pieces.size() || !pieces[id].empty()) {
      throw Error(file.string(),
                  fmt::format("gives {} the id {}, {}", in_quotes(piece), id,
                              id < pieces.size() ? "as it does another" : "and leaves out others"),
                  "ids should be 0, 1, 2 and so on");
    }
    pieces[id] = std::move(piece);
  }
  return pieces;
}

}  // namespace transformer
