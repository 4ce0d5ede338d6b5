#include "transformer/evaluation/statistics.h"

#include <fmt/format.h>

#include "transformer/base/error.h"

namespace transformer {

void check_parallel(const std::vector<std::string>& hypotheses,
                    const std::vector<std::vector<std::string>>& references) {
  if (references.empty()) throw Error("", "no reference to score against");
  for (const auto& reference : references) {
    if (reference.size() != hypotheses.size()) {
      throw Error("", fmt::format("{} hypotheses but {} reference sentences", hypotheses.size(), reference.size()),
                  "give one line of each for every sentence");
    }
  }
  if (hypotheses.empty()) throw Error("", "no sentences to score");
}

}  // namespace transformer
