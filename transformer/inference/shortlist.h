#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "transformer/text/lexicon.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// Which pieces of the target's vocabulary an output may be written in, given its source: the projection is computed
/// for these alone. Outputs differ where the model would have written another one.
class Shortlist {
 public:
  /// How many pieces may be written.
  struct Options {
    int64_t frequent = 100;      // of the target's pieces, that are always among the candidates
    int64_t translations = 100;  // of each of the source's pieces, at most
    double least = 1e-4;         // probability of a translation, below which it is none
  };

  /// Of these, whatever made them: pieces that are always among the candidates, and translations of each of the
  /// source's pieces, as many as there are in its vocabulary. Throws std::out_of_range for padding, begin, and pieces
  /// beyond `target_size`.
  Shortlist(std::vector<int32_t> always, std::vector<std::vector<int32_t>> translations, int64_t target_size);
  /// From what parallel text says of the translations of pieces. A piece that both vocabularies have is a translation
  /// of itself, so that names can be copied.
  Shortlist(const Lexicon& lexicon, const Vocabularies& vocabularies, const Options& options);

  /// Reads a file that `write` has written. Throws Error where it is none, is damaged, or was made for other
  /// vocabularies.
  static Shortlist read(const std::filesystem::path& file, const Vocabularies& vocabularies);
  /// A safetensors file. Throws Failure where it cannot be written.
  void write(const std::filesystem::path& file) const;

  /// Pieces of the source's vocabulary that it has translations of.
  int64_t source_size() const { return static_cast<int64_t>(starts_.size()) - 1; }
  /// Pieces of the target's vocabulary.
  int64_t target_size() const { return target_size_; }

  /// What the output for a source (pieces and the end) may be written in, the end included: ascending ids, each once.
  /// Throws std::out_of_range for pieces beyond `source_size`.
  std::vector<int32_t> candidates(std::span<const int64_t> source) const;

  /// Of all source pieces.
  double mean_translations() const;

 private:
  Shortlist() = default;

  std::string source_checksum_, target_checksum_;  // of the vocabularies
  std::vector<int32_t> always_;
  std::vector<int64_t> starts_;  // of each source piece's translations; one more, of the end
  std::vector<int32_t> translations_;
  int64_t target_size_ = 0;
};

}  // namespace transformer
