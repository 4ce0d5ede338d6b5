#pragma once

#include <vector>

#include "transformer/inference/translator.h"

namespace transformer {

/// How sure the model was of what it wrote: the geometric mean of the probabilities of its tokens, from 0 to 1. NaN
/// where it wrote none.
double confidence(const Translation& translation);

/// The same for each word of the translation's text (alignment_words), over the pieces that spell it; words that share
/// a piece share their confidence. `vocabulary` is the target's.
std::vector<double> word_confidences(const Translation& translation, const Vocabulary& vocabulary);

}  // namespace transformer
