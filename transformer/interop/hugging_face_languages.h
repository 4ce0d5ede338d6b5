#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace transformer {

/// How texts of many languages become ids: what the files of such a model's tokenizer say.
struct MultilingualText {
  std::filesystem::path file;                    // SentencePiece's model
  std::vector<std::string> pieces;               // by their ids, as many as the model has rows
  std::vector<std::string> languages, controls;  // of these, what names a language and what no text has
  bool behind_end = false;                       // where a source names its language: behind its end, or before it
  std::string source_language, target_language;  // codes; empty where they are not said
};

/// What a model's own library says of its languages.
enum class LanguageList {
  folder,   // nothing: the folder lists them, as NLLB's, and ids are fairseq's
  m2m_100,  // M2M100's hundred, as "__fr__"
  mbart_50  // the fifty of mBART-50, as "fr_XX"
};

/// Reads the files of `folder`: sentencepiece.bpe.model; vocab.json, where there is one, for M2M100's ids, and else ids
/// are fairseq's: <s> 0, <pad> 1, </s> 2, <unk> 3, what SentencePiece has after its own first three, languages,
/// <mask>. tokenizer_config.json, special_tokens_map.json and tokenizer.json say which languages there are, where the
/// list does not. Ids from there to `count`, the rows of the model's embeddings, stand for nothing. Throws Error for
/// what is missing, damaged, or splits texts in ways that are not known here.
MultilingualText read_multilingual_text(const std::filesystem::path& folder, LanguageList list, int64_t count);

/// The positions that M2M100 adds, from `first` on, [count, d_model]: sines, then cosines, of wavelengths that end
/// where the paper's (§3.5) end only in the limit, as tensor2tensor has them.
std::vector<float> m2m_100_positions(int64_t first, int64_t count, int64_t d_model);

}  // namespace transformer
