#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "transformer/architecture/weights.h"

namespace transformer {

/// The tensors of a state dict that torch.save wrote: a zip archive whose pickle names tensors and whose other files
/// are their numbers, or the older form, a row of pickles with the numbers behind them. Nothing in the file is
/// executed: of the pickle's instructions those are followed that a dictionary of tensors needs, everything else is
/// refused. Tensors are read from the file, some rows at a time, as long as one of them is there. Throws Error naming
/// the file and what is wrong.
StoredWeights torch_weights(const std::filesystem::path& file);

/// The same of a file's bytes, which `owner` keeps; `name` names them.
StoredWeights torch_weights(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& name);

}  // namespace transformer
