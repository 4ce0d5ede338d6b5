#include "transformer/architecture/longest_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "transformer/base/error.h"

namespace transformer {

int64_t most_tokens(const ModelSettings& settings) {
  if (settings.positions == ModelSettings::Positions::sinusoidal) return std::numeric_limits<int64_t>::max();
  return settings.max_positions - 1;
}

int64_t longest_text(const ModelSettings& settings) {
  constexpr int64_t bound = 5000;
  return std::min(bound, most_tokens(settings));
}

void check_positions(int64_t tokens, int64_t learned) {
  if (tokens <= learned) return;
  throw Error(
      "model.max_positions",
      fmt::format("a sequence of {} tokens is longer than the {} positions this model learned", tokens, learned),
      "split the line, or train with more positions or with sinusoidal ones");
}

}  // namespace transformer
