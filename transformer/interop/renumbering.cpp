#include "transformer/interop/renumbering.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_set>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/interop/marian.h"
#include "transformer/text/sentencepiece_model.h"
#include "transformer/text/vocabulary.h"

namespace transformer {
namespace {

/// What a table of pieces may not hold (SentencePieceModel::read) is a fault of the file that it comes from.
void check_pieces(const std::vector<std::string>& pieces, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    throw Error(where, what, "such a vocabulary cannot be imported");
  };
  std::unordered_set<std::string_view> taken;
  for (size_t id = 0; id < pieces.size(); ++id) {
    const std::string_view piece = pieces[id];
    if (piece.empty()) refuse(fmt::format("has an empty piece (id {})", id));
    if (piece.size() > SentencePieceModel::longest_piece) {
      refuse(fmt::format("has a piece of {} bytes, more than {} (id {})", piece.size(),
                         SentencePieceModel::longest_piece, id));
    }
    if (find_broken_utf8(piece) != std::string_view::npos || piece.find('\0') != std::string_view::npos) {
      refuse(fmt::format("has the piece {}, which is no text (id {})", in_quotes(piece), id));
    }
    if (!taken.insert(piece).second) refuse(fmt::format("has the piece {} twice (id {})", in_quotes(piece), id));
  }
}

}  // namespace

std::vector<float> Renumbering::rows(std::span<const float> numbers, int64_t width) const {
  std::vector<float> result;
  result.reserve(theirs.size() * static_cast<size_t>(width));
  for (const int64_t row : theirs) {
    if (row == zeros) {
      result.insert(result.end(), static_cast<size_t>(width), 0.0F);
      continue;
    }
    const auto from = numbers.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
    result.insert(result.end(), from.begin(), from.end());
  }
  return result;
}

std::vector<float> Renumbering::biases(std::span<const float> numbers) const {
  std::vector<float> result = numbers.empty() ? std::vector<float>(theirs.size()) : rows(numbers, 1);
  for (size_t id = 0; id < theirs.size(); ++id) {
    if (never_put_out[id]) result[id] = transformer::never_put_out;
  }
  return result;
}

bool Renumbering::needs_biases() const {
  return std::find(never_put_out.begin(), never_put_out.end(), true) != never_put_out.end();
}

Renumbering renumbered(const std::vector<std::string>& theirs, const ReservedPieces& reserved,
                       const std::string& where) {
  check_pieces(theirs, where);
  std::set<int64_t> first = {reserved.end, reserved.unknown};
  size_t expected = 2;
  if (reserved.padding) first.insert(*reserved.padding), ++expected;
  if (reserved.start_is_begin) first.insert(reserved.start.value()), ++expected;
  if (first.size() != expected) {
    throw Error(where, "has one piece for two of padding, begin, end and unknown", "such a model cannot be imported");
  }
  Renumbering result;
  result.theirs = {reserved.padding.value_or(Renumbering::zeros), reserved.start.value_or(Renumbering::zeros),
                   reserved.end, reserved.unknown};
  for (int64_t id = 0; id < static_cast<int64_t>(theirs.size()); ++id) {
    if (!first.contains(id)) result.theirs.push_back(id);
  }
  for (const int64_t id : result.theirs) {
    result.pieces.push_back(id == Renumbering::zeros ? "" : theirs[static_cast<size_t>(id)]);
  }
  result.never_put_out.resize(result.theirs.size());
  const auto invent = [&](int64_t id, std::string name) {
    while (std::find(theirs.begin(), theirs.end(), name) != theirs.end()) name = fmt::format("<{}>", name);
    result.pieces[static_cast<size_t>(id)] = name;
    result.never_put_out[static_cast<size_t>(id)] = true;
  };
  if (!reserved.padding) invent(Vocabulary::padding, "<pad>");
  if (!reserved.start_is_begin) invent(Vocabulary::begin, "<s>");
  return result;
}

int64_t id_of_piece(const std::vector<std::string>& pieces, const std::string& piece, const std::string& where) {
  const auto found = std::find(pieces.begin(), pieces.end(), piece);
  if (found == pieces.end()) throw Error(where, fmt::format("lacks the piece {}", in_quotes(piece)));
  return found - pieces.begin();
}

}  // namespace transformer
