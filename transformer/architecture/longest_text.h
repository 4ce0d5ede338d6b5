#pragma once

#include <cstdint>
#include <span>

#include "transformer/architecture/settings.h"

namespace transformer {

/// Tokens of the longest sequence that a model of these settings has positions for, its end, or the begin, not counted;
/// sinusoids go on without end.
int64_t most_tokens(const ModelSettings& settings);

/// Word pieces of the longest text, on either side, that a model of these settings reads, begin and end not counted: as
/// many as it has learned positions for, and at most 5,000, which is far beyond any sentence and still computed in
/// bounded memory.
int64_t longest_text(const ModelSettings& settings);

/// Throws Error where a sequence of `tokens` needs more positions than the `learned` ones of a model.
void check_positions(int64_t tokens, int64_t learned);

/// Throws Error unless a model of these settings (resolved) has all that it takes to translate `source`, which ends in
/// the end: where that is empty or holds an id that is none of the vocabulary's, and where it or an output of
/// `max_length` tokens needs more positions than are learned.
void check_sentence(const ModelSettings& settings, std::span<const int64_t> source, int64_t max_length);

}  // namespace transformer
