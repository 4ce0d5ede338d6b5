#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "transformer/interop/renumbering.h"

namespace transformer {

/// The vocabularies' files of a model directory (ImportedModel::vocabularies): SentencePiece models with the pieces of
/// `source` and `target` as their table, or one "vocabulary.model" where both are the same and a SentencePiece model
/// numbers them already as they are.
///
/// `given` names the SentencePiece models, one of both languages or one each; where it is empty, they are looked for in
/// `folder`: source.spm and target.spm, source.model and target.model, or vocabulary.model, or sentencepiece.model.
/// Throws Error where there are none, or one is damaged.
std::map<std::string, std::string> vocabulary_files(const std::filesystem::path& folder,
                                                    const std::vector<std::filesystem::path>& given,
                                                    const Renumbering& source, const Renumbering& target);

}  // namespace transformer
