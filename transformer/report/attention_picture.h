#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transformer/report/attention_report.h"

namespace transformer {

/// Attention as SVG files of their own, light or dark as the reader prefers. Every head has its colour, the same in all
/// pictures; from the ninth on colours return with dashes of their own. Words of languages written from right to left
/// are set so; what is too long ends with an ellipsis and shows whole while the mouse is over it.

struct AttentionLinesOptions {
  size_t layer = 0;                 // index into the view's layers
  std::vector<size_t> picked = {};  // indices of queries whose attention alone is shown; none: of all
};

/// The form of the paper's Figures 3 to 5: queries on the left, keys on the right, and a line from one to the other in
/// its head's colour, as opaque as its weight is great; weights below 0.02 are left out. Where queries are picked, the
/// squares beside the keys show how much each head gives them, the mean over the picked. A tree is drawn beside the
/// source.
std::string attention_lines(const AttentionReport& report, const AttentionView& view,
                            const AttentionLinesOptions& options = {});

/// A heat map for each layer and head of the view, a row of them for each layer: queries downwards, keys across.
std::string attention_heat_maps(const AttentionView& view);

}  // namespace transformer
