#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "transformer/model/transformer.h"

namespace transformer {

/// Which of a stack's `deep` layers a stack of `shallow` begins with: evenly spread, the first and the last among them;
/// the first where there is room for one. From 0, ascending. Throws std::invalid_argument unless 1 <= shallow <= deep.
std::vector<int64_t> layers_kept(int64_t shallow, int64_t deep);

/// load_weights of a file that belongs to a model of the settings `theirs` (resolved), which may have more layers than
/// `model`, and self-attention where `model`'s decoder has recurrent units, which stay as they are; and differs from it
/// in nothing else that has weights: `model`'s layers are those that layers_kept names. Throws as load_weights does.
void load_layers(Transformer& model, const std::filesystem::path& file, const ModelSettings& theirs);

}  // namespace transformer
