#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

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
/// itself; where a source names its language behind its end, as NLLB's first models have it, it gets pieces, the end
/// and the language. The vocabularies lie beside them as they are in the model directory: whoever makes text into
/// pieces by them puts it into its normal form first where the vocabulary does (Vocabulary::normalization). CTranslate2
/// knows nothing of either.
///
/// The folder appears whole or not at all. Throws Error where the model cannot be read, where
/// `check_ctranslate2` does, and when `output` exists; with `force` an exported model there is replaced. Throws Failure
/// when it cannot be written.
void export_ctranslate2(const std::filesystem::path& model, const std::filesystem::path& output, bool force = false);

/// Makes the model directory `output` from `folder`, a Transformer with encoder and decoder that CTranslate2 4 loads:
/// what `export_ctranslate2` wrote (but of models whose sources name their language behind the end), or what
/// CTranslate2's own converters made of MarianMT, Marian's or another model that is represented here. Weights may be
/// float32, float16, bfloat16, or int8 and int16 with their scales, from which they become what they stand for.
/// Positions are sinusoids where the table holds these, in either order, and learned otherwise.
///
/// `sentencepiece` names the models that make text into pieces, one for both languages or one each; where it is empty
/// they lie in the folder (source.spm and target.spm, or under the names of a model directory). Ids are renumbered, so
/// that the reserved ones are ours.
///
/// The folder appears whole or not at all. Throws Error naming the file, and the variable or key where there is one,
/// for what is missing, damaged or cannot be represented, and when `output` exists.
void import_ctranslate2(const std::filesystem::path& folder, const std::filesystem::path& output,
                        const std::vector<std::filesystem::path>& sentencepiece = {});

}  // namespace transformer
