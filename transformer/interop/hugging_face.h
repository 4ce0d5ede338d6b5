#pragma once

#include <filesystem>

#include "transformer/architecture/settings.h"

namespace transformer {

/// Makes the model directory `output` from `folder`, a MarianMT model as Hugging Face's `transformers` keeps it:
/// config.json, generation_config.json where there is one, the weights as model.safetensors or pytorch_model.bin, whole
/// or in shards with an index, in any floating-point type, and the text's source.spm, target.spm, vocab.json,
/// target_vocab.json, tokenizer_config.json, special_tokens_map.json. Of a README.md the licence is kept.
///
/// M2M100, NLLB-200 and mBART-50 come in, too: their text is in sentencepiece.bpe.model, which has to be there, and
/// vocab.json where ids come from there. Their vocabulary names languages (Vocabulary::Languages); sinusoids that are
/// not the paper's become a table of as many positions as `max_position_embeddings` says. mBART of 25 languages, whose
/// decoder starts with a language, is refused.
///
/// The model computes what `transformers` computes, in float32. Its width is permuted, so that Marian's sinusoids,
/// sines first, are the paper's; ids are renumbered, so that the reserved ones are ours: padding is theirs, the begin
/// what their decoder starts with, in a row of its own where theirs serves for something else, too. Text becomes the
/// pieces that MarianTokenizer makes of it with `split_special_tokens`: a text's own "</s>" ends nothing. Where no
/// piece of the vocabulary names a language, what begins a text like such a name (">>fra<<") is text, too, of which
/// that tokenizer makes one unknown piece.
///
/// The folder appears whole or not at all. Throws Error naming the file, and the key where there is one, for what is
/// missing, damaged or cannot be represented, and when `output` exists.
void import_hugging_face(const std::filesystem::path& folder, const std::filesystem::path& output);

/// Throws Error naming the first setting of a model that MarianMT has not, or that the exporter knows nothing of.
void check_hugging_face(const ModelSettings& settings);

/// Writes the model of the model directory `model` as a folder that MarianMTModel and MarianTokenizer load
/// (`from_pretrained`), in float32. Ids stay: padding 0, the begin 1, which starts decoding, the end 2, unknown 3;
/// generation bans the first two. Whoever makes text into pieces puts it into its normal form first where the
/// vocabulary does (Vocabulary::normalization).
///
/// The folder appears whole or not at all. Throws Error where the model directory is damaged, where its vocabulary
/// names languages that a model is told, where `check_hugging_face` does, and when `output` exists; with `force` an
/// exported model there is replaced, unless somebody has written a README.md, generation_config.json or
/// tokenizer_config.json of their own there.
void export_hugging_face(const std::filesystem::path& model, const std::filesystem::path& output, bool force = false);

}  // namespace transformer
