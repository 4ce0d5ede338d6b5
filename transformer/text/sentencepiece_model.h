#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/text/normalization.h"

namespace transformer {

/// What a SentencePiece model's file says, so far as it is needed here (sentencepiece_model.proto).
struct SentencePieceModel {
  /// What a piece is for, by the numbers of the file.
  enum class Type {
    normal = 1,        // put into texts
    unknown = 2,       // stands for what no piece spells
    control = 3,       // of no text, such as </s>
    user_defined = 4,  // kept whole wherever a text has it
    unused = 5,        // takes up an id and stands for nothing
    byte = 6           // one byte, "<0xC3>"
  };
  /// A piece as the file has it.
  struct Piece {
    std::string_view text;     // "▁" for a space
    float score = 0;           // the higher, the sooner it is chosen
    Type type = Type::normal;  // `normal` where the file says nothing
  };

  /// Of a file; far above any vocabulary's.
  static constexpr size_t most_bytes = size_t{64} << 20;
  /// Of a model, and of a table.
  static constexpr size_t most_pieces = 4'000'000;
  static constexpr size_t longest_piece = 512;  // bytes

  std::vector<Piece> pieces;                          // texts point into the bytes that were read
  Normalization normalization = Normalization::none;  // of texts before SentencePiece sees them
  bool has_charsmap = false;                          // SentencePiece itself normalises them, by a table
  /// Where ids are not the places of `pieces` but of a list of its own, as Marian's are: what each id stands for,
  /// beginning with the four reserved ones (Vocabulary). Empty elsewhere.
  std::vector<std::string_view> table;
  /// Where a source names its language.
  enum class LanguagePlace {
    nowhere,      // nobody is told
    before_text,  // its piece is the first
    behind_end    // its piece comes last, behind the end
  };
  /// Of a table whose vocabulary has many languages: those of its pieces that name one, and those that stand for
  /// nothing in a text, such as a mask; the reserved ones are neither.
  std::vector<std::string_view> languages, controls;
  LanguagePlace language_place = LanguagePlace::nowhere;  // nowhere but with `languages`

  /// Reads `bytes`, of which nothing is believed: SentencePiece itself reads and writes beyond its arrays, or ends the
  /// process, for files that nobody has learned. What comes out of here it loads and applies without that.
  ///
  /// Pieces, and those of the table, are distinct, UTF-8, not empty and not overlong; their scores are finite, exactly
  /// one is unknown, and there are all 256 bytes or none. What names a language is a piece of the table. Tables of
  /// SentencePiece's own normalisation (precompiled_charsmap) are followed through every text that they can be applied
  /// to: nothing in them may lead out of the table. Fields that are not known are skipped. Throws Error naming `file`,
  /// what is wrong, and the byte where it stands.
  static SentencePieceModel read(std::string_view bytes, const std::string& file);

  /// The field of the file that makes readers apply `normalization` first; SentencePiece passes over it.
  static std::string normalization_field(Normalization normalization);
  /// The fields of the file that give it a table, of pieces that `read` accepts: SentencePiece passes over them, and
  /// versions that know nothing of tables refuse the file.
  static std::string table_fields(const std::vector<std::string>& table);
  /// The same of a vocabulary of many languages, which names a source's at `place`.
  static std::string table_fields(const std::vector<std::string>& table, const std::vector<std::string>& languages,
                                  const std::vector<std::string>& controls, LanguagePlace place);
  /// `bytes` of the model that `file` names without the fields that are ours. Throws as `read` does.
  static std::string without_own_fields(std::string_view bytes, const std::string& file);
};

}  // namespace transformer
