#include "transformer/architecture/parameter_count.h"

#include <fmt/format.h>

#include "transformer/architecture/weights.h"
#include "transformer/base/checked.h"
#include "transformer/base/error.h"

namespace transformer {

std::map<std::string, int64_t> parameter_counts(const ModelSettings& s) {
  std::map<std::string, int64_t> counts;
  int64_t count = 0;
  for (const auto& [name, shape] : weight_shapes(s)) {
    const auto product = checked_product(shape);
    if (!product || *product > most_parameters || (count += *product) > most_parameters) {
      throw Error("model",
                  fmt::format("these settings make more than {} billion parameters (d_model {}, d_ff {}, heads {}, d_k "
                              "{}, d_v {}, layers {} and {}, vocabularies {} and {})",
                              most_parameters / 1'000'000'000, s.d_model, s.d_ff, s.heads, s.d_k, s.d_v,
                              s.encoder_layers, s.decoder_layers, s.source_vocabulary_size, s.target_vocabulary_size),
                  "make the model smaller");
    }
    counts[name.substr(0, name.find('.'))] += *product;
  }
  return counts;
}

int64_t parameter_count(const ModelSettings& settings) {
  int64_t count = 0;
  for (const auto& [part, parameters] : parameter_counts(settings)) count += parameters;
  return count;
}

}  // namespace transformer
