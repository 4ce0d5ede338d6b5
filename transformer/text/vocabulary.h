#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/base/settings.h"
#include "transformer/text/normalization.h"

namespace transformer {

/// How a vocabulary is learned (settings section `vocabulary`).
struct VocabularySettings {
  /// Byte-pair encoding, or a unigram language model.
  enum class Algorithm {
    bpe,     // merges of the most frequent pairs (Sennrich et al. 2016)
    unigram  // pieces by their probability (Kudo 2018)
  };
  Algorithm algorithm = Algorithm::bpe;
  bool joint = true;                   // one vocabulary for both languages
  double character_coverage = 1.0;     // share of characters that become symbols; the rest is spelled in bytes
  int64_t sample_sentences = 2000000;  // sentences that SentencePiece learns from, drawn from all
  bool byte_fallback = true;
  Normalization normalization = Normalization::nfc;  // of all text before it becomes pieces, now and ever after
  bool split_scripts = true;  // no piece holds characters of two scripts, punctuation and digits counting as one each
  static void describe(Fields<VocabularySettings>& field);
};

/// Word pieces and their ids (§5.1), learned and applied by SentencePiece. Safe to share between threads.
///
/// A vocabulary that was learned from normalised text (VocabularySettings::normalization) says so in its file, and
/// splits the normal form of whatever it is given.
///
/// A vocabulary that comes from another system may number its pieces by a table of its own (SentencePieceModel::table),
/// as Marian does: pieces that the table has not are unknown, and a text that begins with the name of a language,
/// ">>fra<<", keeps it as one piece. What a text says is never taken for a reserved piece, whatever the words. Where
/// the table has languages, no text names one: they stand beside it (Languages).
class Vocabulary {
 public:
  /// The languages that texts may be in, where the model has to be told: a piece of its own stands before a source's
  /// text, or behind its end, and is the first that a target begins with.
  struct Languages {
    std::map<std::string, int64_t> pieces = {};  // by their codes
    bool behind_end = false;                     // where a source names its language; else it stands before the text

    /// Whether nobody has to be told.
    bool empty() const { return pieces.empty(); }
    /// The piece of `code`, which `setting` gives. Throws Error naming the nearest where there is none.
    int64_t piece(const std::string& code, const std::string& setting) const;
    /// The source with its language and its end.
    std::vector<int64_t> source(std::vector<int64_t> text, int64_t language) const;
  };

  /// Ids reserved in every vocabulary, the same for all.
  static constexpr int64_t padding = 0, begin = 1, end = 2, unknown = 3;
  /// The first token that an output may hold: padding and begin are never written.
  static constexpr int64_t first_written = end;
  /// Whether an output may hold this token, of a vocabulary of `size` pieces.
  static constexpr bool is_written(int64_t token, int64_t size) { return token >= first_written && token < size; }

  /// Learns a vocabulary of exactly `size` pieces from the lines of `files` (plain or .gz) and writes it to `model`.
  /// Throws Error when the text is too small for `size` (naming the largest size it allows), or a file is unreadable.
  static void train(const std::vector<std::filesystem::path>& files, int64_t size, const VocabularySettings& settings,
                    const std::filesystem::path& model);

  /// Reads a SentencePiece model, of which nothing is believed (SentencePieceModel::read). Throws Error if the file is
  /// missing, damaged, or reserves other ids than ours.
  explicit Vocabulary(const std::filesystem::path& model);

  /// The bytes of a SentencePiece model, which `file` names, with ids by `table`, which has no others of its own yet:
  /// to be written as a vocabulary. Throws Error for a model or a table that cannot be used.
  static std::string with_table(std::string_view model, const std::vector<std::string>& table, const std::string& file);
  /// The same with languages, each a piece of the table, by whose text they are called, but for underscores around it;
  /// `controls` are pieces that no text has and no text is made of.
  static std::string with_languages(std::string_view model, const std::vector<std::string>& table,
                                    const std::vector<std::string>& languages, const std::vector<std::string>& controls,
                                    bool behind_end, const std::string& file);
  ~Vocabulary();
  Vocabulary(Vocabulary&&) noexcept;
  Vocabulary& operator=(Vocabulary&&) noexcept;

  /// Pieces, reserved ones among them: ids go from 0 to size() - 1.
  int64_t size() const;
  /// Of the model file's bytes (XXH3): the same for vocabularies that encode alike.
  const std::string& checksum() const;

  /// What is done to a text before it becomes pieces.
  Normalization normalization() const;
  /// Whether SentencePiece normalises texts by a table in its file (precompiled_charsmap), as models of other systems
  /// have it: pieces may then have other blanks than the text.
  bool has_charsmap() const;
  /// Whether ids are those of a table of its own.
  bool has_table() const;
  /// What a language is called whose piece this is: "fr" of "__fr__", and "fra_Latn" as it is.
  static std::string language_code(std::string_view piece);
  /// Empty for most vocabularies, of one or two languages.
  const Languages& languages() const;
  /// What a text begins with that says which language it is to become, as MarianMT's models have it: ">>fra<<". Empty
  /// where it has none, and for vocabularies without such pieces. One that is none of the pieces is unknown.
  std::string_view code_of(std::string_view text) const;
  /// Whether a piece is reserved, names a language or is another control: it is no part of any text.
  bool is_control(int64_t id) const;

  /// Ids of a sentence's pieces, without begin and end.
  std::vector<int64_t> encode(std::string_view text) const;
  /// The same of a line, as training reads it: without the white space at its ends, of which a model may see pieces
  /// where the vocabulary leaves texts as they are. None of a blank one.
  std::vector<int64_t> encode_line(std::string_view line) const;
  /// For each of these pieces, which of the words of `text` (base/unicode.h) it was made of, from 0, whatever blanks
  /// SentencePiece's normalisation makes or takes out; of several the last. White space is of the word behind it, and
  /// -1 where none is.
  std::vector<int64_t> words_of_pieces(std::string_view text) const;
  /// Ids of other pieces that spell the same sentence, drawn at random: of a BPE vocabulary every merge is left out
  /// with probability `alpha` (BPE-dropout, Provilkov et al. 2020), of a unigram one segmentations are drawn with their
  /// probability to the power of `alpha` (Kudo 2018). Draws from SentencePiece's generator of the calling thread, which
  /// seeds itself when it is first used there: see sample_pieces for draws that can be repeated.
  std::vector<int64_t> sample(std::string_view text, double alpha) const;
  /// The text of `ids`; reserved ids other than unknown are left out, and of a vocabulary with a table unknown ones
  /// and controls, too.
  std::string decode(const std::vector<int64_t>& ids) const;
  /// Pieces as text, for attention maps and debugging.
  std::vector<std::string> pieces(std::string_view text) const;
  /// The text of a piece. Throws std::out_of_range for an id that there is none of.
  const std::string& piece(int64_t id) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// The vocabularies of a model; both are the same object where it is joint.
struct Vocabularies {
  std::shared_ptr<const Vocabulary> source, target;  // never null

  /// Of a model directory: vocabulary.model, or source.model and target.model. Throws Error where they are missing,
  /// damaged, or of other sizes than the model's embeddings.
  static Vocabularies load(const std::filesystem::path& directory, int64_t source_size, int64_t target_size);
};

}  // namespace transformer
