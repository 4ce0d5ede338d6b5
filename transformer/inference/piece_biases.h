#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transformer/text/vocabulary.h"

namespace transformer {

/// What is to be added to the logits of word pieces (OutputControl::bias), by ascending ids, from the lines of `file`:
/// a piece of the target's `vocabulary`, a tab and a number from -100 to 100 each. Where the vocabulary's text is
/// normalised, accents of a piece may be composed or not. Throws Error naming file and line for anything else, for
/// padding and begin, which no output has, and for a piece that comes twice.
std::vector<std::pair<int64_t, double>> piece_biases(std::span<const std::string> lines, const std::string& file,
                                                     const Vocabulary& vocabulary);

}  // namespace transformer
