#pragma once

#include <torch/types.h>

#include <cstdint>

namespace transformer {

/// Keys or values of the positions that decoding has computed, [N, H, t, width], in a tensor with room for more: a new
/// position is written beside them, where copying all of them would cost a step as much as reading them. For decoding
/// alone: no gradient passes (torch::NoGradGuard, InferenceMode). A copy writes into the same room: only one of the two
/// may go on.
class CachedPositions {
 public:
  /// With a `limit` the cache keeps so many of the newest positions, in no order; 0: all, in theirs.
  explicit CachedPositions(int64_t limit = 0) : limit_(limit) {}

  /// Adds the position `newest` [N, H, 1, width].
  void append(const torch::Tensor& newest);
  /// All that are kept, [N, H, t, width]: a view, which lasts until the next call. Undefined before the first.
  torch::Tensor positions() const;
  /// t.
  int64_t size() const { return size_; }
  /// The room's, used or not.
  int64_t bytes() const;

  /// Makes row i what row `rows[i]` (int64, on the cache's device) was. `spare` is a tensor that may be written into
  /// where it has the shape; what was given up lies there afterwards.
  void reorder(const torch::Tensor& rows, torch::Tensor& spare);

 private:
  int64_t limit_;
  torch::Tensor room_;  // [>= N, H, >= t, width]
  int64_t rows_ = 0, size_ = 0;
  int64_t next_ = 0;  // place of the next position
};

}  // namespace transformer
