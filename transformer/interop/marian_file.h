#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace transformer {

/// Where the text's side of a model lies that its own files do not name.
struct TextFiles {
  /// Marian's vocabularies, .yml or .spm: of both languages, or of the source and of the target. Empty: those that
  /// decoder.yml names.
  std::vector<std::filesystem::path> vocabularies;
  /// SentencePiece models that make text into pieces: of both languages, or of the source and of the target. Empty:
  /// those that lie beside the model.
  std::vector<std::filesystem::path> sentencepiece;
};

/// Makes the model directory `output` from `model`, a transformer that Marian trained: its .npz file, or a folder whose
/// decoder.yml names one. The file holds weights as float32, or another floating-point type, and its options
/// (special:model.yml); beside it lie the vocabularies and SentencePiece's models (TextFiles).
///
/// It is read as CTranslate2 and `transformers` read Marian's models, and computes what they compute; decoders with
/// recurrent units (SSRU), which neither knows, compute Marian's own formulas. Both take the paper's sinusoids (§3.5),
/// whose slowest wave is a little faster than that of Marian's, and add 1e-5 to variances where Marian adds 1e-6.
/// Decoding starts from a zero embedding, padding is zeros, and neither is ever put out. A shortlist that decoder.yml
/// names is left out: any piece may come.
///
/// The folder appears whole or not at all. Throws Error naming the file, and the option where there is one, for what is
/// missing, damaged or cannot be represented, and when `output` exists.
void import_marian(const std::filesystem::path& model, const std::filesystem::path& output, const TextFiles& text = {});

/// The pieces of a Marian vocabulary's file (vocab.yml) by their ids: a line each, "piece: id", quoted where need be.
/// Throws Error naming the file, and the line, for anything else, and unless the ids are 0, 1, 2 and so on.
std::vector<std::string> marian_vocabulary(const std::filesystem::path& file);

}  // namespace transformer
