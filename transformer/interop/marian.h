#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transformer/architecture/settings.h"

namespace transformer {

// How Marian's models differ from ours in the order of their numbers.

/// The logit of what is never put out: far below any other, and near enough that a loss with label smoothing, which
/// gives every piece a share, still has a figure to show.
inline constexpr float never_put_out = -1e4F;

/// Which of Marian's dimensions each of ours is: there sines come first and cosines behind them, here (§3.5) they
/// alternate. Everything that reads or writes the model's width is permuted alike, which changes no result.
std::vector<int64_t> marian_width(int64_t d_model);
/// Which of ours each of Marian's is.
std::vector<int64_t> inverse(std::span<const int64_t> order);

/// Row i of the result is row order[i] of `numbers` [.., width].
std::vector<float> permuted_rows(std::span<const float> numbers, int64_t width, std::span<const int64_t> order);
/// Column i of the result is column order[i] of `numbers` [rows, ..].
std::vector<float> permuted_columns(std::span<const float> numbers, int64_t rows, std::span<const int64_t> order);

/// What becomes of a sub-layer, whichever way is converted, given what ours is called and what theirs.
struct SublayerConversion {
  /// Told of each sub-layer's weights by what begins their names.
  std::function<void(const std::string&ours, const std::string&theirs)> attention, norm, feed_forward;
};
/// Goes through the sub-layers of all layers.
void convert_marian_layers(const ModelSettings& settings, const SublayerConversion& conversion);

}  // namespace transformer
