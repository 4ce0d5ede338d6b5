#include "transformer/text/piece_texts.h"

#include <algorithm>
#include <charconv>

#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"
#include "transformer/text/text_end.h"

namespace transformer {

namespace {

constexpr std::string_view space = "▁";  // how pieces spell one

std::string text_of(std::string_view piece) {
  if (piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>')) {
    unsigned byte = 0;
    const char* end = piece.data() + 5;
    if (std::from_chars(piece.data() + 3, end, byte, 16).ptr == end) return {static_cast<char>(byte)};
  }
  std::string text;
  while (!piece.empty()) {
    if (piece.starts_with(space)) {
      text += ' ';
      piece.remove_prefix(space.size());
    } else {
      text += piece.front();
      piece.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace

PieceTexts::PieceTexts(const Vocabulary& vocabulary) {
  texts_.resize(static_cast<size_t>(vocabulary.size()));
  texts_[static_cast<size_t>(Vocabulary::unknown)] = vocabulary.decode({Vocabulary::unknown});
  for (int64_t id = Vocabulary::unknown + 1; id < vocabulary.size(); ++id) {
    if (vocabulary.is_control(id)) continue;
    texts_[static_cast<size_t>(id)] = text_of(vocabulary.piece(id));
    // A space that a byte spells is not dropped at the beginning of a text.
    if (!of(id).empty() && vocabulary.piece(id) != "<0x20>") order_.push_back(id);
  }
  std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) { return of(a) < of(b); });
}

std::string PieceTexts::of(std::span<const int64_t> pieces) const {
  std::string text;
  for (const int64_t piece : pieces) text += of(piece);
  return text;
}

bool PieceTexts::begin_in_word(std::span<const int64_t> pieces) const {
  return TextEnd(WordKind::word).continued_by(of(pieces));
}

bool PieceTexts::end_in_word(std::span<const int64_t> pieces) const {
  TextEnd end;
  end.append(of(pieces));
  return end.in_word();
}

std::span<const int64_t> PieceTexts::beginning_with(std::string_view beginning) const {
  const auto start = [&](int64_t piece) { return std::string_view(of(piece)).substr(0, beginning.size()); };
  const auto first =
      std::partition_point(order_.begin(), order_.end(), [&](int64_t piece) { return start(piece) < beginning; });
  const auto last = std::partition_point(first, order_.end(), [&](int64_t piece) { return start(piece) == beginning; });
  return {first, last};
}

std::span<const int64_t> PieceTexts::equal_to(std::string_view text) const {
  const auto all = beginning_with(text);
  const auto longer =
      std::find_if(all.begin(), all.end(), [&](int64_t piece) { return of(piece).size() > text.size(); });
  return {all.begin(), longer};
}

}  // namespace transformer
