#include "transformer/inference/told_languages.h"

#include <utility>

namespace transformer {

ToldLanguages::ToldLanguages(const Vocabularies& vocabularies, const DecodingSettings& search) {
  const auto& targets = vocabularies.target->languages();
  if (targets.empty() && search.source_language.empty() && search.target_language.empty()) return;
  if (!search.target_language.empty() || !targets.empty()) {
    target_piece_ = targets.piece(search.target_language, "decoding.target_language");
  }
  source_piece_ = vocabularies.source->languages().piece(search.source_language, "decoding.source_language");
  source_ = vocabularies.source;
}

std::vector<int64_t> ToldLanguages::source(std::vector<int64_t> pieces) const {
  if (any()) return source_->languages().source(std::move(pieces), source_piece_);
  pieces.push_back(Vocabulary::end);
  return pieces;
}

std::vector<int64_t> ToldLanguages::target(std::vector<int64_t> pieces) const {
  if (any()) pieces.insert(pieces.begin(), target_piece_);
  return pieces;
}

}  // namespace transformer
