#pragma once

#include <filesystem>

#include "transformer/inference/precision.h"

namespace transformer {

/// Writes the model of the model directory `model` as another whose weights are rounded to `precision` and packed, as
/// decoding on a CPU reads them: it is smaller, loads at once, and gives what the other gives in that precision, to the
/// last bit. It is good for decoding alone. Its file is mapped by who decodes (PackedIn::file): a folder that is in use
/// is replaced by renaming, never by writing into its files.
///
/// The folder appears whole or not at all. Throws Error for a `model` that is none or is packed already, and when
/// `output` exists; with `force` a packed model there is replaced, if the folder holds nothing else. Throws Failure
/// when it cannot be written.
void export_packed(const std::filesystem::path& model, const std::filesystem::path& output, Precision precision,
                   bool force = false);

}  // namespace transformer
