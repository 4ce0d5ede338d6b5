#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace transformer {

/// What the output of a sentence may be, where not every sequence of tokens is one: the state after some of its tokens.
/// A search that knows it never leaves what can still become a whole output.
class OutputConstraint {
 public:
  virtual ~OutputConstraint() = default;

  /// The tokens that may come next, each once, the end token where the output may end here. Never none, but after the
  /// end.
  virtual std::vector<int64_t> allowed() const = 0;
  /// The state after one of them.
  virtual std::shared_ptr<const OutputConstraint> after(int64_t token) const = 0;
};

}  // namespace transformer
