#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/inference/translator.h"
#include "transformer/inference/word_alignment.h"

namespace transformer {

/// What --output-format jsonl says of one line.
struct TranslatedLine {
  std::string_view source;
  std::string_view problem;  // why it could not be used; empty: it could
  const std::vector<Translation>& translations;
  /// Of each translation; none where it was too long to align.
  const std::vector<std::optional<std::vector<AlignmentLink>>>& links;
};

/// An object as one line, its end included. `n_best`: whether all translations are listed, beside the best.
std::string to_json(const TranslatedLine& line, const Vocabulary& vocabulary, bool n_best);

}  // namespace transformer
