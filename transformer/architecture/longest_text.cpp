#include "transformer/architecture/longest_text.h"

#include <algorithm>

namespace transformer {

int64_t longest_text(const ModelSettings& settings) {
  constexpr int64_t bound = 5000;
  if (settings.positions == ModelSettings::Positions::sinusoidal) return bound;
  return std::min(bound, settings.max_positions - 1);  // one is the end's, or the begin's
}

}  // namespace transformer
