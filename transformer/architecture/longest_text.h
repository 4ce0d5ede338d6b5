#pragma once

#include <cstdint>

#include "transformer/architecture/settings.h"

namespace transformer {

/// Word pieces of the longest text, on either side, that a model of these settings reads, begin and end not counted: as
/// many as it has learned positions for, and at most 5,000, which is far beyond any sentence and still computed in
/// bounded memory.
int64_t longest_text(const ModelSettings& settings);

}  // namespace transformer
