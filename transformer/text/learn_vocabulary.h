#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transformer/text/vocabulary.h"

namespace transformer {

/// Vocabulary::train for who wants to know how it goes and writes the file, whose contents this returns: `progressed`
/// is told how much of the text was read, from 0 to 1 where its size is known; 1 stands for all of it, and what
/// SentencePiece then makes of it takes longer. It must not throw. `symbols`, words without blanks and commas, become a
/// piece each, whether the text has them or not. Throws what check_symbols does.
std::string learn_vocabulary(const std::vector<std::filesystem::path>& files, int64_t size,
                             const VocabularySettings& settings, const std::vector<std::string>& symbols,
                             const std::function<void(std::optional<double> share)>& progressed);

/// Throws Error, which names `what`, for symbols that are pieces already: <s>, or <0x41> where bytes are spelled.
void check_symbols(const std::string& what, const std::vector<std::string>& symbols,
                   const VocabularySettings& settings);

}  // namespace transformer
