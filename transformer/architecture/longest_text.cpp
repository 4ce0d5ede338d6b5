#include "transformer/architecture/longest_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

void check_sentence(const ModelSettings& settings, std::span<const int64_t> source, int64_t max_length) {
  if (source.empty()) throw Error("source", "is empty", "give its pieces and the end");
  for (const int64_t token : source) {
    if (token >= 0 && token < settings.source_vocabulary_size) continue;
    throw Error(fmt::format("word piece {}", token),
                fmt::format("is not one of the vocabulary's {} pieces", settings.source_vocabulary_size));
  }
  if (settings.positions == ModelSettings::Positions::sinusoidal) return;
  check_positions(std::ssize(source), settings.max_positions);
  check_positions(max_length + 1, settings.max_positions);  // what is read, begin included
}

}  // namespace transformer
