#pragma once

#include <cstdint>
#include <filesystem>

#include "transformer/architecture/settings.h"

namespace transformer {

/// Throws Error naming the first setting of a model that CTranslate2 cannot compute, or that this exporter knows
/// nothing of. Whatever passes gives the same outputs there, up to the rounding of float32.
void check_ctranslate2(const ModelSettings& settings);

/// Positions that an exported model with sinusoids has: CTranslate2's own sinusoids differ from the paper's, so theirs
/// are written as a table. It cuts sources at 1,024 tokens and outputs at 256 unless asked for others; a sentence with
/// more positions than the table is an error there.
inline constexpr int64_t ctranslate2_positions = 2048;

/// Writes the model of the model directory `model` as a folder that CTranslate2 4 loads: `model.bin` (its binary format
/// 6, Transformer specification 7; float32), `config.json`, and the word pieces as `shared_vocabulary.json`, or
/// `source_vocabulary.json` and `target_vocabulary.json`. A translator gets pieces without begin and end, and adds them
/// itself. Whoever makes them puts text into its normal form first where the vocabulary does
/// (Vocabulary::normalization): CTranslate2 knows nothing of it.
///
/// The folder appears whole or not at all. Throws Error where `load_transformer` and `check_ctranslate2` do, and when
/// `output` exists; with `force` an exported model there is replaced. Throws Failure when it cannot be written.
void export_ctranslate2(const std::filesystem::path& model, const std::filesystem::path& output, bool force = false);

}  // namespace transformer
