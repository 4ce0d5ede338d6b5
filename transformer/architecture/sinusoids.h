#pragma once

#include <cstdint>
#include <vector>

namespace transformer {

/// The positional encodings of §3.5, [count, d_model], of the positions from `first` on: sin(pos / 10000^(2i/D)) in
/// dimension 2i, cos of the same in dimension 2i + 1.
std::vector<double> sinusoids(int64_t first, int64_t count, int64_t d_model);

}  // namespace transformer
