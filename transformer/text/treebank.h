#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

/// A constituent over its children, or a word under its part-of-speech tag.
struct Tree {
  std::string label;      // of the constituent, or the word's tag; empty: none, as many treebanks' topmost node has
  std::string word = {};  // empty: this is a constituent
  std::vector<Tree> children = {};  // in the order of their words

  /// Whether it is a leaf, a word under its tag.
  bool is_word() const { return !word.empty(); }
  bool operator==(const Tree&) const = default;
};

/// The words from left to right.
std::vector<std::string> words_of(const Tree& tree);
/// Penn Treebank brackets on one line: `(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks))))`. Words and labels are
/// escaped (`escaped_word`), so that TreebankReader reads whatever is written.
std::string to_string(const Tree& tree);
/// For people to read, a node a line, the topmost node left out where it has one child:
///
///     S
///     ├─ NP
///     │  ├─ The
///     │  └─ dog
///     └─ VP
///        └─ barks
///
/// Tags are left out; every line ends with "\n".
std::string drawing(const Tree& tree);

/// Whether `label` is that of a tree's topmost node, which stands for no constituent: none, TOP, ROOT, S1 or VROOT.
bool is_top(std::string_view label);

/// The tree that parsers learn and evaluations count, its topmost node called TOP in every treebank:
///
/// - traces (-NONE-) are gone, and so are constituents that hold nothing else;
/// - what is labelled like a topmost node is none: what it holds is its parent's;
/// - labels are without function tags and indices: NP-SBJ-1 and NP=2 become NP, and ADVP|PRT becomes ADVP; labels that
///   begin with a hyphen (-LRB-) stay.
Tree cleaned(const Tree& tree);

/// Reads trees in Penn Treebank brackets as treebanks have them: over any number of lines, with or without a topmost
/// label, `()` or `(TOP)` for a sentence without a tree (a node without children). Blanks of ASCII separate; others are
/// part of a word, which comes out escaped (`escaped_word`). Nodes may be nested 1,000 deep.
class TreebankReader {
 public:
  /// Of a file, plain or .gz. Throws Error as LineReader does.
  explicit TreebankReader(const std::filesystem::path& file);
  /// Of lines that `next_line` gives until it returns false; `name` stands for the file in messages.
  TreebankReader(std::function<bool(std::string&)> next_line, const std::string& name);
  ~TreebankReader();
  TreebankReader(TreebankReader&&) noexcept;

  /// The next tree as it stands; false at the end. Throws Error naming file and line, and what was expected there, for
  /// anything but a well-formed tree.
  bool next(Tree& tree);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// All trees of a file, cleaned.
std::vector<Tree> read_treebank(const std::filesystem::path& file);
/// The one tree that `line` holds, as it stands; a node without children when the line is blank. Throws Error naming
/// `where` when it is malformed or holds several.
Tree read_tree(std::string_view line, const std::string& where);

/// A word as trees hold it, and a label: ( and ) become -LRB- and -RRB-, a blank (base/unicode.h) becomes _. What
/// `split_words` makes of a line of such words is these words. Escaped again, they stay as they are.
std::string escaped_word(std::string_view word);

/// In which words trees are written.
struct LinearizeOptions {
  bool copy_words = false;  // words stand for themselves; otherwise each is XX
};

/// A cleaned tree as a sequence of tokens to be learned (Vinyals et al. 2015), its topmost node and the tags left out:
/// `(S (NP XX XX )NP (VP XX )VP )S`; with copy_words `(S (NP The dog )NP (VP barks )VP )S`. Tokens are separated by one
/// space.
std::string linearize(const Tree& tree, const LinearizeOptions& options = {});

/// A tree, and whether it was one.
struct Delinearized {
  Tree tree;                // TOP over constituents over words, whose tags are XX
  bool well_formed = true;  // nothing had to be put right
};

/// The tree over exactly `words` that `tokens`, a model's output, describes. Whatever the output, the result is a tree,
/// always the same one; where the output is what `linearize` makes of a cleaned tree over these words, it is that tree.
/// Otherwise
///
/// - a closing bracket closes the innermost open constituent of its label, and with it those that were opened inside it
///   since; where none is open it is passed over. One without a label closes the innermost. What is open at the end is
///   closed there;
/// - all else stands for words. Tokens XX take the words one after the other. Where there are others, copied words, all
///   take the words with which the fewest are misspelt, missing or too many (edit distance, from left to right; in
///   order where words times tokens exceed 33 million). Tokens for which no word is left are passed over;
/// - words that no token takes stand behind the word before them, in the same constituent; in the beginning before the
///   first word taken; in the end, as the last of the topmost constituent;
/// - constituents without words are left out, and so are those that open without a label, with a topmost node's, or
///   nested deeper than TreebankReader reads. Labels lose function tags, as in `cleaned`; else they are taken as they
///   come, known or not.
Delinearized delinearize(std::string_view tokens, const std::vector<std::string>& words);

}  // namespace transformer
