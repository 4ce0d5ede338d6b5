#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/inference/output_constraint.h"
#include "transformer/text/piece_texts.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// Outputs that begin with `tokens`; anything may follow.
std::shared_ptr<const OutputConstraint> begins_with(std::vector<int64_t> tokens);

/// Outputs that begin with a token that is told (OutputConstraint::told) and go on as `then` allows; null: with
/// anything.
std::shared_ptr<const OutputConstraint> begins_with_told(int64_t token, std::shared_ptr<const OutputConstraint> then);

/// Outputs whose text begins with `text`, which is not blank. Its last word may go on, in whatever pieces: those of the
/// text but the last word's come first, and then any that spell the rest, or more than the rest. Blanks at the end of
/// the text end the word. Throws Error where the vocabulary cannot spell it.
struct OutputPrefix {
  std::shared_ptr<const OutputConstraint> constraint;  // never null
  int64_t tokens = 0;                                  // that it takes, at most
  std::string text = {};                               // that it begins with, as PieceTexts has it
};
/// `pieces` are the vocabulary's.
OutputPrefix begins_with(std::string_view text, const Vocabulary& vocabulary, std::shared_ptr<const PieceTexts> pieces);

}  // namespace transformer
