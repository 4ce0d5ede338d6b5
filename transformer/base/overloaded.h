#pragma once

namespace transformer {

/// Functions for each alternative of a variant, for std::visit.
template <class... Cases>
struct Overloaded : Cases... {
  /// Overload resolution chooses the case.
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // C++20 implies it, and clang 14 wants it said

}  // namespace transformer
