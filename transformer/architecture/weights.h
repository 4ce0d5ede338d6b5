#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transformer/architecture/settings.h"
#include "transformer/base/tensor_file.h"

namespace transformer {

/// The names and shapes of the weights of a model of `settings`, which are resolved. Linear layers are [outputs,
/// inputs]; an attention's projections of queries, keys and values are the rows of one matrix, in this order, and so
/// are a recurrent unit's of what it forgets and what it takes up.
std::map<std::string, std::vector<int64_t>> weight_shapes(const ModelSettings& settings);

/// A weight where it is kept, read some rows at a time, so that a model that is packed is never in memory twice.
struct StoredWeight {
  ElementType type = ElementType::float32;  // that it is stored in
  std::vector<int64_t> shape;               // as in weight_shapes
  /// `count` rows (along the first dimension) from `first` on, as float32, into numbers. For floating-point types only.
  std::function<void(int64_t first, int64_t count, float* numbers)> rows;
};

/// A model's weights by their names.
using StoredWeights = std::map<std::string, StoredWeight>;

/// In the metadata of a file of weights that were packed for decoding: their precision.
inline constexpr const char* packed_weights_key = "packed";

/// Those of a safetensors file, which stays open as long as one of them is there. Throws as TensorReader does, and
/// Error for weights that were packed, which nothing but decoding can use.
StoredWeights stored_weights(const std::filesystem::path& file);

/// Throws Error, with `origin` (a file) in front, unless `weights` have the names and shapes of a model's: naming the
/// first that is missing, of another shape, of integers, or that such a model has not.
void check_weights(const StoredWeights& weights, const std::map<std::string, std::vector<int64_t>>& shapes,
                   const std::string& origin);

/// All of a weight's numbers. Throws Error where one is not finite.
std::vector<float> read_weight(const StoredWeight& weight, const std::string& name, const std::string& origin);

}  // namespace transformer
