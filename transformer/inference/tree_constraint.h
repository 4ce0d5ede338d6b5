#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transformer/inference/output_constraint.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// Makes constraints that let a parser write linearized trees alone (text/treebank.h), each over exactly its sentence's
/// words: brackets match, no constituent is empty, words come in their order and in the pieces that the vocabulary
/// splits them into, or as many XX (the first word decides). The outermost constituent closes after the last word. What
/// a search under it ends with needs no repair by `delinearize`.
///
/// Labels are pieces that begin with a bracket, `(NP`. Where there are none, in vocabularies that split scripts
/// (VocabularySettings::split_scripts), they are a bracket and pieces of capital letters, 16 of them at most.
///
/// A model that has lost the thread would rather open constituents than write a word that it did not expect, so that at
/// most 6 may open without a word, and at most 3 of one label. Of GUM's trees 4 in 1,000 have more of one label.
class TreeConstraints {
 public:
  /// Finds the brackets among the vocabulary's pieces.
  explicit TreeConstraints(std::shared_ptr<const Vocabulary> vocabulary);

  /// Whether pieces open labelled constituents, as they do where trees were among what the vocabulary was learned from.
  bool has_labels() const;
  /// Whether trees can be written at all, in labels of one piece or of several: nothing else makes a vocabulary hold
  /// closing brackets that begin a word. (Text whose punctuation stands apart does, too; such a vocabulary is taken for
  /// a parser's. One that holds no such brackets is none.)
  bool can_write_trees() const;

  /// For a sentence's output, from its beginning. `words` are as in the input, escaped; there is at least one.
  std::shared_ptr<const OutputConstraint> over(const std::vector<std::string>& words) const;

 private:
  struct Pieces;
  class State;
  std::shared_ptr<const Pieces> pieces_;
};

}  // namespace transformer
