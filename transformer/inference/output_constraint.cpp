#include "transformer/inference/output_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "transformer/text/vocabulary.h"

namespace transformer {

std::vector<int64_t> allowed_tokens(const OutputConstraint& constraint, int64_t size) {
  auto tokens = constraint.allowed();
  if (tokens.empty()) throw std::out_of_range("an output constraint allows no token, not even the end");
  std::sort(tokens.begin(), tokens.end());
  for (const int64_t token : {tokens.front(), tokens.back()}) {
    if (!Vocabulary::is_written(token, size)) {
      throw std::out_of_range(fmt::format("an output constraint allows token {}; expected {} to {}", token,
                                          Vocabulary::first_written, size - 1));
    }
  }
  if (const auto twice = std::adjacent_find(tokens.begin(), tokens.end()); twice != tokens.end()) {
    throw std::out_of_range(fmt::format("an output constraint allows token {} twice", *twice));
  }
  return tokens;
}

std::shared_ptr<const OutputConstraint> state_after(const std::shared_ptr<const OutputConstraint>& constraint,
                                                    int64_t token) {
  if (constraint->free()) return constraint;
  auto state = constraint->after(token);
  if (!state) throw std::out_of_range(fmt::format("an output constraint has no state after token {}", token));
  return state;
}

}  // namespace transformer
