// A treebank. What is read survives being written, and the way to tokens and back.

#include "transformer/text/treebank.h"

#include "fuzz/fuzz.h"
#include "transformer/base/error.h"

using namespace transformer;

namespace {

// What delinearize gives back: tags are XX.
Tree untagged(Tree tree) {
  if (tree.is_word()) tree.label = "XX";
  for (auto& child : tree.children) child = untagged(std::move(child));
  return tree;
}

const fuzz::Target target("treebank", [](std::string_view input) {
  TreebankReader reader(fuzz::write_scratch("given.mrg", input));
  for (Tree tree; reader.next(tree);) {
    fuzz::require(read_tree(to_string(tree), "the tree") == tree, "a tree is written as it was read");
    const auto clean = cleaned(tree);
    fuzz::require(cleaned(clean) == clean, "what is clean stays as it is");
    drawing(clean);
    const auto words = words_of(clean);
    for (const bool copy_words : {false, true}) {
      const auto back = delinearize(linearize(clean, {.copy_words = copy_words}), words);
      fuzz::require(words_of(back.tree) == words, "the words are those given");
      if (!copy_words) fuzz::require(back.tree == untagged(clean), "tokens become the tree that they were made of");
    }
  }
});

}  // namespace
