#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace transformer {

/// Which of another system's pieces do what the four reserved ones do here (Vocabulary), by their ids there.
struct ReservedPieces {
  int64_t end = 0, unknown = 0;  // which every vocabulary has
  /// What fills batches there; without one a row of zeros does, that is never put out.
  std::optional<int64_t> padding = {};
  /// The piece whose embedding starts decoding; without one zeros do.
  std::optional<int64_t> start = {};
  /// Whether `start` serves for nothing else, and becomes our begin. Otherwise the begin is one more piece, with the
  /// embedding of `start`, and is never put out.
  bool start_is_begin = false;
};

/// Another system's vocabulary in the order that ours have: the reserved pieces come first, the others stay in order.
struct Renumbering {
  /// In `theirs`: a row of zeros, and no piece of theirs.
  static constexpr int64_t zeros = -1;

  std::vector<std::string> pieces;  ///< by our ids
  std::vector<int64_t> theirs;      ///< the id there of each of ours; `zeros` where there is none
  std::vector<bool> never_put_out;  ///< of our ids: what has no place among their outputs

  /// Ours, the reserved ones among them.
  int64_t size() const { return static_cast<int64_t>(theirs.size()); }

  /// The rows of an embedding [theirs, width], or of the projection, by our ids.
  std::vector<float> rows(std::span<const float> numbers, int64_t width) const;
  /// The biases of the projection by our ids, of theirs, or of zeros where `numbers` is empty.
  std::vector<float> biases(std::span<const float> numbers) const;
  /// Whether any output needs a bias of its own.
  bool needs_biases() const;
};

/// Renumbers the pieces `theirs`, which `where` (a file) names in messages: what is not theirs gets a name of its own,
/// "<pad>" or "<s>" where these are free. Throws Error where one piece should be two of the reserved ones, is there
/// twice, or is none that a vocabulary of ours may have.
Renumbering renumbered(const std::vector<std::string>& theirs, const ReservedPieces& reserved,
                       const std::string& where);

/// The id of `piece` among `pieces`. Throws Error naming `where` (a file) and the piece where there is none.
int64_t id_of_piece(const std::vector<std::string>& pieces, const std::string& piece, const std::string& where);

}  // namespace transformer
