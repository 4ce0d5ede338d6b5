#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/text/vocabulary.h"

namespace transformer {

/// The bytes that each piece of a vocabulary puts into a text, before a space at its beginning is dropped: a space for
/// "▁", one byte for "<0xC3>", for the unknown piece what decoding writes in its place. Other reserved pieces put
/// nothing in.
class PieceTexts {
 public:
  /// Copies what it needs of `vocabulary`.
  explicit PieceTexts(const Vocabulary& vocabulary);

  /// Pieces of the vocabulary, those without a text among them.
  int64_t size() const { return static_cast<int64_t>(texts_.size()); }
  /// What `piece` puts in, which must be one of the vocabulary's.
  const std::string& of(int64_t piece) const { return texts_[static_cast<size_t>(piece)]; }
  /// What pieces put in one after the other.
  std::string of(std::span<const int64_t> pieces) const;

  /// Whether the text of `pieces` begins with a letter or a digit of writing that sets words apart, so that it goes on
  /// with a word that it is right behind; false for none.
  bool begin_in_word(std::span<const int64_t> pieces) const;
  /// Whether it ends with one, so that a word goes on with what is right behind it.
  bool end_in_word(std::span<const int64_t> pieces) const;

  /// The pieces whose text begins with `beginning`, which is not empty. "<0x20>" is never among them, nor is the
  /// unknown piece; nor below.
  std::span<const int64_t> beginning_with(std::string_view beginning) const;
  /// The pieces whose text is `text`.
  std::span<const int64_t> equal_to(std::string_view text) const;

 private:
  std::vector<std::string> texts_;
  std::vector<int64_t> order_;  // pieces that spell a text, by text
};

}  // namespace transformer
