#include "transformer/kernels/training_kernels.h"

#include <algorithm>

namespace transformer {

// As training_attention.inc takes it.
int64_t attention_scratch(int64_t queries, int64_t keys, int64_t d_k, int64_t d_v) {
  const auto padded_to_vectors = [](int64_t count) { return (count + 15) / 16 * 16; };
  const int64_t width = padded_to_vectors(keys), key_width = padded_to_vectors(d_k),
                value_width = padded_to_vectors(d_v);
  return queries * (key_width + 3 * width + value_width) + keys * (key_width + value_width) + (d_k + d_v + 1) * width +
         std::max(queries, keys) * std::max(key_width, value_width);
}

}  // namespace transformer
