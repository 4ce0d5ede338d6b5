#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace transformer {

/// What the output of a sentence may be, where not every sequence of tokens is one: the state after some of its tokens.
/// A search that knows it never leaves what can still become a whole output.
class OutputConstraint {
 public:
  virtual ~OutputConstraint() = default;

  /// The tokens that may come next, each once, the end token where the output may end here; padding and begin never
  /// may. Never none, but after the end.
  virtual std::vector<int64_t> allowed() const = 0;
  /// Whether what may come next, a single token, is told and not chosen: its log-probability counts as 0.
  virtual bool told() const { return false; }
  /// Anything may come from here on: nothing else is asked any more.
  virtual bool free() const { return false; }
  /// All tokens that it asks for before it is free, so that a search in part of a vocabulary alone (Shortlist) has
  /// them; none where it may ask for any: such an output is written in the whole vocabulary.
  virtual std::optional<std::vector<int64_t>> asked_for() const { return {}; }
  /// The state after one of them; never null.
  virtual std::shared_ptr<const OutputConstraint> after(int64_t token) const = 0;
};

/// What every search asks a constraint by, which may be anybody's: `constraint.allowed()`, checked. Throws
/// std::out_of_range for a token that is not one of a vocabulary's `size` or that no output holds, for one given twice,
/// and for none at all.
std::vector<int64_t> allowed_tokens(const OutputConstraint& constraint, int64_t size);
/// `constraint->after(token)`, or the constraint itself where it is free; throws std::out_of_range where there is none.
std::shared_ptr<const OutputConstraint> state_after(const std::shared_ptr<const OutputConstraint>& constraint,
                                                    int64_t token);

}  // namespace transformer
