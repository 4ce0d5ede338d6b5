#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transformer/inference/decoding_settings.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// What a model that knows many languages is told beside a text: which it is in, and which its translation is
/// (Vocabulary::Languages). Other models are told nothing.
class ToldLanguages {
 public:
  /// Nothing.
  ToldLanguages() = default;
  /// Those that `search` names. Throws Error, as `decoding.target_language`, where the model knows many and has not
  /// this one, or where it knows none and one is named.
  ToldLanguages(const Vocabularies& vocabularies, const DecodingSettings& search);

  /// Whether there is anything to tell.
  bool any() const { return source_ != nullptr; }
  /// The piece that outputs begin with, where there is any.
  int64_t first_output() const { return target_piece_; }
  /// What an encoder reads for these pieces of a text: with its language and the end.
  std::vector<int64_t> source(std::vector<int64_t> pieces) const;
  /// An output of these pieces, without begin and end: behind its language.
  std::vector<int64_t> target(std::vector<int64_t> pieces) const;

 private:
  std::shared_ptr<const Vocabulary> source_;  // null: nothing is told
  int64_t source_piece_ = 0, target_piece_ = 0;
};

}  // namespace transformer
