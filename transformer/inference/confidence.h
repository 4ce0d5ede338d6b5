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

/// How open the choice was of what it wrote: the mean of its token_entropies, in nats, from 0 for one that had no
/// alternative to the logarithm of the vocabulary's size. NaN where they are not known.
double entropy(const Translation& translation);

/// The same for each word, as word_confidences has them; none where they are not known.
std::vector<double> word_entropies(const Translation& translation, const Vocabulary& vocabulary);

}  // namespace transformer
