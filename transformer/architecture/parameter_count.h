#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "transformer/architecture/settings.h"

namespace transformer {

/// Models with more parameters are refused: 400 GB as float32.
inline constexpr int64_t most_parameters = 100'000'000'000;

/// How many parameters a model of `settings`, which are resolved, has, without making any of them. Throws Error where
/// they are more than `most_parameters`.
int64_t parameter_count(const ModelSettings& settings);

/// The same for each of its parts, by the names that weights begin with: "encoder", "decoder", its embeddings.
std::map<std::string, int64_t> parameter_counts(const ModelSettings& settings);

}  // namespace transformer
