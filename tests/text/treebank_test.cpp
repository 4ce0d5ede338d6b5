#include "transformer/text/treebank.h"

#include <fmt/format.h>

#include <random>
#include <sstream>

#include "text_support.h"
#include "transformer/base/unicode.h"

using namespace transformer;

namespace {

using Words = std::vector<std::string>;

std::filesystem::path gum(const std::string& name) {
  return std::filesystem::path(TRANSFORMER_SOURCE_DIR) / "data" / "gum" / name;
}

/// All trees of a text, as they stand, one a line.
Words trees_in(const std::string& text) {
  test::TemporaryDirectory folder;
  test::write_file(folder / "trees.mrg", text);
  TreebankReader reader(folder / "trees.mrg");
  Words trees;
  for (Tree tree; reader.next(tree);) trees.push_back(to_string(tree));
  return trees;
}

std::string clean(const std::string& text) {
  return to_string(cleaned(read_tree(text, "test")));
}

/// The error's message without the folder.
std::string complaint(const std::string& text) {
  const std::string message = test::error_of([&] { trees_in(text); });
  return message.substr(message.find("trees.mrg"));
}

std::string repaired(const std::string& tokens, const Words& words) {
  const auto result = delinearize(tokens, words);
  CHECK_FALSE(result.well_formed);
  CHECK(words_of(result.tree) == words);
  return to_string(result.tree);
}

/// A cleaned tree as delinearize gives it: without tags.
Tree untagged(Tree tree) {
  if (tree.is_word()) tree.label = "XX";
  for (auto& child : tree.children) child = untagged(child);
  return tree;
}

}  // namespace

TEST_CASE("trees are read however they are laid out") {
  CHECK(trees_in("(ROOT (NP (NN dog)))") == Words{"(ROOT (NP (NN dog)))"});
  CHECK(trees_in("\n( (S \n    (NP (DT the)\n\t(NN dog))\r\n  (VP(VBZ barks)) )\n)\n\n(X (NN a)) (X (NN "
                 "b))\n(X\n(NN\nc)\n)") ==
        Words{"( (S (NP (DT the) (NN dog)) (VP (VBZ barks))))", "(X (NN a))", "(X (NN b))", "(X (NN c))"});
  CHECK(trees_in("((S (NN a)))") == Words{"( (S (NN a)))"});
  CHECK(trees_in("( (S (NN a)) (. .) )") == Words{"( (S (NN a)) (. .))"});
  CHECK(trees_in("(UH yes)") == Words{"(UH yes)"});
  CHECK(trees_in("(TOP (-LRB- -LRB-) ($ $) (. .) (`` ``) (NN Straße))") ==
        Words{"(TOP (-LRB- -LRB-) ($ $) (. .) (`` ``) (NN Straße))"});
  CHECK(trees_in("").empty());
  CHECK(trees_in("\n \n").empty());
  // No tree for a sentence.
  CHECK(trees_in("()\n(())\n( ( ) )\n(TOP)\n(ROOT )") == Words{"()", "()", "()", "(TOP)", "(ROOT)"});
}

TEST_CASE("compressed treebanks are read like plain ones") {
  test::TemporaryDirectory folder;
  test::write_file(folder / "trees.gz", test::gzip("(ROOT\n  (NP (NN dog)))\n"));
  const auto trees = read_treebank(folder / "trees.gz");
  REQUIRE(trees.size() == 1);
  CHECK(to_string(trees[0]) == "(TOP (NP (NN dog)))");
  CHECK_THAT(test::error_of([&] { read_treebank(folder / "none.mrg"); }), Contains("none.mrg: no such file"));
}

TEST_CASE("malformed trees are named by file and line, with what was expected") {
  CHECK(complaint("(X (NN a))\ndog") == "trees.mrg:2: expected '(' at the beginning of a tree, found 'dog'");
  CHECK(complaint("(X (NN a)))") == "trees.mrg:1: expected '(' at the beginning of a tree, found ')'");
  CHECK(complaint("(X\n(NN a b))") ==
        "trees.mrg:2: expected ')' after the word 'a', found 'b'; the tree begins in line 1");
  CHECK(complaint("(X (NN a (NP (NN b))))") == "trees.mrg:1: expected ')' after the word 'a', found '('");
  CHECK(complaint("(X (NN a) b)") == "trees.mrg:1: expected '(' or ')' within the constituent X, found 'b'");
  CHECK(complaint("(X (NP ))") == "trees.mrg:1: expected a word or constituents after '(NP', found ')'");
  CHECK(complaint("(NP)") == "trees.mrg:1: expected a word or constituents after '(NP', found ')'");
  CHECK(complaint("(X ())") == "trees.mrg:1: expected a label after '(', found ')'");
  CHECK(complaint("(X ((NN a)))") == "trees.mrg:1: expected a label after '(', found '('");
  CHECK_THAT(complaint("(X (NN a))\n\n(X (NP (NN b)\n\n"),
             StartsWith("trees.mrg:3: the tree that begins here is not complete; expected 2 more ')'"));
  CHECK(
      complaint("(ROOT (NP\n (NN a))\n(ROOT (NN b))") ==
      "trees.mrg:3: expected 1 more ')' before the next tree, which begins here with '(ROOT'; the tree begins in line "
      "1");
  CHECK_THAT(complaint("(X (NN \xff))"), StartsWith("trees.mrg:1: not UTF-8"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "(X ";
  CHECK_THAT(complaint(deep), Contains("nested deeper than 1000"));
  CHECK(test::error_of([] { read_tree("(X (NN a)) (X (NN b))", "line 7"); }) == "line 7: expected one tree, found 2");
}

TEST_CASE("cleaning takes away what evaluations do not count") {
  CHECK(clean("(ROOT (S (NP-SBJ (PRP$ its)) (VP=2 (VBZ is)) (ADVP|PRT (RB so)) (S-TPC-1 (NN x)) (. .)))") ==
        "(TOP (S (NP (PRP$ its)) (VP (VBZ is)) (ADVP (RB so)) (S (NN x)) (. .)))");
  CHECK(clean("( (NP (-LRB- -LRB-) (NN a-b=c) (-RRB- -RRB-)))") == "(TOP (NP (-LRB- -LRB-) (NN a-b=c) (-RRB- -RRB-)))");
  // Traces, and what holds nothing else, however deep.
  CHECK(clean("( (S (NP-SBJ (-NONE- *)) (VP (VB go) (SBAR (-NONE- 0) (S (-NONE- *T*-1))) (NP (NN x) (-NONE- *)))))") ==
        "(TOP (S (VP (VB go) (NP (NN x)))))");
  CHECK(clean("( (NP (-NONE- *)))") == "(TOP)");
  // -NONE- is a trace by its tag, not by its word.
  CHECK(clean("(NP (NN -NONE-))") == "(TOP (NP (NN -NONE-)))");
  CHECK(clean("(NP (NN a))") == "(TOP (NP (NN a)))");
  CHECK(clean("(UH yes)") == "(TOP (UH yes))");
  CHECK(clean("(ROOT (NP (NN a)) (. .))") == "(TOP (NP (NN a)) (. .))");
  CHECK(clean("( (ROOT-1 (S (TOP-2 (NN a)) (S1-x (VROOT=3 (VB b)))) (. .)))") == "(TOP (S (NN a) (VB b)) (. .))");
  CHECK(clean("(TOP a)") == "(TOP (TOP a))");  // a word's tag
  CHECK(clean(clean("( (S-1 (NP (NN a))))")) == clean("( (S-1 (NP (NN a))))"));
}

TEST_CASE("trees become tokens") {
  const Tree tree = cleaned(read_tree("(ROOT (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))", "test"));
  CHECK(linearize(tree) == "(S (NP XX XX )NP (VP XX )VP XX )S");
  CHECK(linearize(tree, {.copy_words = true}) == "(S (NP The dog )NP (VP barks )VP . )S");
  CHECK(linearize(cleaned(read_tree("(ROOT (NP (NN a)) (. .))", "test"))) == "(NP XX )NP XX");
  CHECK(linearize(Tree{"TOP"}).empty());
  CHECK(words_of(tree) == Words{"The", "dog", "barks", "."});
  CHECK(escaped_word("f(x)") == "f-LRB-x-RRB-");
}

TEST_CASE("a whole treebank comes back from its tokens") {
  int64_t trees = 0;
  for (const char* file : {"train.mrg.gz", "dev.mrg.gz"}) {
    for (const auto& tree : read_treebank(gum(file))) {
      ++trees;
      const auto words = words_of(tree);
      for (const bool copy_words : {false, true}) {
        const auto tokens = linearize(tree, {.copy_words = copy_words});
        const auto result = delinearize(tokens, words);
        if (!result.well_formed || result.tree != untagged(tree)) FAIL(tokens);
      }
      if (cleaned(read_tree(to_string(tree), "test")) != tree) FAIL(to_string(tree));
    }
  }
  CHECK(trees == 2691);
}

TEST_CASE("broken output becomes a tree over the words") {
  const Words abc = {"a", "b", "c"};
  // Nothing at all.
  CHECK(repaired("", abc) == "(TOP (XX a) (XX b) (XX c))");
  CHECK(repaired("  ", {"a"}) == "(TOP (XX a))");
  // Brackets without words.
  CHECK(repaired("(S (NP )NP )S", abc) == "(TOP (XX a) (XX b) (XX c))");
  CHECK(repaired(") )S ( (", abc) == "(TOP (XX a) (XX b) (XX c))");
  // Left open at the end.
  CHECK(repaired("(S (NP XX XX )NP (VP XX", abc) == "(TOP (S (NP (XX a) (XX b)) (VP (XX c))))");
  // Closed but never opened: passed over.
  CHECK(repaired("(S (NP XX )VP XX )NP XX )S )S", abc) == "(TOP (S (NP (XX a) (XX b)) (XX c)))");
  // Closed across: )S closes the NP as well.
  CHECK(repaired("(S (NP XX XX )S XX", abc) == "(TOP (S (NP (XX a) (XX b))) (XX c))");
  // Brackets without a label.
  CHECK(repaired("(S ( XX XX ) XX", abc) == "(TOP (S (XX a) (XX b)) (XX c))");
  // Too few words: the rest comes last in the topmost constituent.
  CHECK(repaired("(S (NP XX )NP )S", abc) == "(TOP (S (NP (XX a)) (XX b) (XX c)))");
  CHECK(repaired("(S XX )S (NP )NP", abc) == "(TOP (S (XX a) (XX b) (XX c)))");
  // Too many: passed over, and what then is empty.
  CHECK(repaired("(S (NP XX XX )NP (VP XX XX (NP XX )NP )VP )S", abc) == "(TOP (S (NP (XX a) (XX b)) (VP (XX c))))");
  // Spaces lost between tokens.
  CHECK(to_string(delinearize("(S(NP XX)NP XX XX)S", abc).tree) == "(TOP (S (NP (XX a)) (XX b) (XX c)))");
  // Labels are taken as they come, even of brackets.
  CHECK(to_string(delinearize("(qqq XX XX XX )qqq", abc).tree) == "(TOP (qqq (XX a) (XX b) (XX c)))");
  CHECK(repaired("(S-TMP (NP-2 XX )NP-SBJ XX XX )S", abc) == "(TOP (S (NP (XX a)) (XX b) (XX c)))");
  CHECK(repaired("(TOP (S XX (ROOT XX XX )ROOT )S )TOP", abc) == "(TOP (S (XX a) (XX b) (XX c)))");
  // No words: no constituents.
  CHECK(repaired("(S XX )S", {}) == "(TOP)");
  CHECK(delinearize("", {}).well_formed);
}

TEST_CASE("copied words find their place") {
  const Words words = {"the", "old", "man", "saw", "it"};
  // Misspelt.
  CHECK(repaired("(S (NP the odl man )NP (VP saw it )VP )S", words) ==
        "(TOP (S (NP (XX the) (XX old) (XX man)) (VP (XX saw) (XX it))))");
  // Left out: behind the word before it, in the same constituent.
  CHECK(repaired("(S (NP the man )NP (VP saw it )VP )S", words) ==
        "(TOP (S (NP (XX the) (XX old) (XX man)) (VP (XX saw) (XX it))))");
  CHECK(repaired("(S (NP the old )NP (VP saw it )VP )S", words) ==
        "(TOP (S (NP (XX the) (XX old) (XX man)) (VP (XX saw) (XX it))))");
  // The first and the last.
  CHECK(repaired("(S (NP old man )NP (VP saw )VP )S", words) ==
        "(TOP (S (NP (XX the) (XX old) (XX man)) (VP (XX saw)) (XX it)))");
  // Said twice.
  CHECK(repaired("(S (NP the old old man )NP (VP saw (NP it )NP (NP it )NP )VP )S", words) ==
        "(TOP (S (NP (XX the) (XX old) (XX man)) (VP (XX saw) (NP (XX it)))))");
  // Other words altogether.
  CHECK(repaired("(S (NP x y )NP z )S", {"a", "b", "c"}) == "(TOP (S (NP (XX a) (XX b)) (XX c)))");
}

TEST_CASE("any output gives the same tree each time, over exactly the words") {
  std::mt19937 random(3);
  const auto choose = [&](size_t count) { return random() % count; };
  const Words tokens = {"(S", "(NP", "(VP", ")S", ")NP", ")VP",  "XX",    "XX",   "XX", "XX",
                        "(",  ")",   "a",   "b",  "((",  "(TOP", "(NP-X", ")x)y", "⁇",  "(ü"};
  int64_t well_formed = 0;
  for (int i = 0; i < 5000; ++i) {
    Words words(choose(8));
    for (auto& word : words) word = Words{"a", "b", "c", "XX"}[choose(4)];
    std::string output;
    for (size_t k = choose(16); k > 0; --k) output += tokens[choose(tokens.size())] + (choose(9) == 0 ? "" : " ");
    INFO(output);
    const auto result = delinearize(output, words);
    REQUIRE(words_of(result.tree) == words);
    REQUIRE(result.tree == delinearize(output, words).tree);
    // It is a tree like any other: read, cleaned and linearized again it is itself.
    REQUIRE(cleaned(read_tree(to_string(result.tree), "test")) == result.tree);
    const auto again = delinearize(linearize(result.tree), words);
    REQUIRE(again.tree == result.tree);
    REQUIRE(again.well_formed);
    if (result.well_formed) ++well_formed;
  }
  CHECK(well_formed > 10);
  CHECK(well_formed < 2500);
}

TEST_CASE("deep and long output is repaired, too") {
  CHECK(to_string(delinearize("(S", {}).tree) == "(TOP)");
  std::string deep, longest;
  for (int i = 0; i < 5000; ++i) {
    deep += "(NP ";
    longest += "word ";
  }
  const Tree nested = delinearize(deep + "XX", {"a"}).tree;
  CHECK(words_of(nested) == Words{"a"});
  CHECK(read_tree(to_string(nested), "test") == nested);
  CHECK(words_of(delinearize(longest, Words(4000, "other")).tree).size() == 4000);
  CHECK(words_of(delinearize(longest + longest, Words(4000, "other")).tree).size() == 4000);
}

TEST_CASE("trees are drawn") {
  const Tree tree = read_tree("(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks) (ADVP (RB now))) (. .)))", "test");
  CHECK(drawing(tree) ==
        "S\n"
        "├─ NP\n"
        "│  ├─ The\n"
        "│  └─ dog\n"
        "├─ VP\n"
        "│  ├─ barks\n"
        "│  └─ ADVP\n"
        "│     └─ now\n"
        "└─ .\n");
  CHECK(drawing(read_tree("(TOP (NP (NN a)) (. .))", "test")) == "TOP\n├─ NP\n│  └─ a\n└─ .\n");
}

TEST_CASE("whatever words are made of, the tree over them is read as it was written") {
  CHECK(escaped_word("a(b)c") == "a-LRB-b-RRB-c");
  CHECK(escaped_word("foo\vbar\u00A0\u3000") == "foo_bar__");
  std::mt19937 random(3);
  const std::vector<std::string> parts = {
      "a", "\u00E9", "e\u0301", "(",    ")",      "\v",     "\t",   "\r",
      " ", "\u00A0", "\u2028",  "\x1C", "\u3000", "\u0085", "\x01", std::string(1, '\0'),
      "_", "-LRB-",  "\uFEFF",  "\"",   "\\",     "\xFF",   "XX",   "\U0001F600"};
  for (int trial = 0; trial < 3000; ++trial) {
    Tree inner{"NP"};
    std::string line;
    for (size_t count = 1 + random() % 4; count > 0; --count) {
      std::string word = "x";
      for (size_t i = random() % 6; i > 0; --i) word += parts[random() % parts.size()];
      // Half of them as `parse` has them from a line, half as a library's user may give them.
      if (!line.empty()) line.push_back(' ');
      line.append(escaped_word(word));
      inner.children.push_back({"XX", random() % 2 ? word : escaped_word(word)});
    }
    const Tree tree{"TOP", "", {inner}};
    const auto read = read_tree(to_string(tree), "a tree");
    std::vector<std::string> words;
    for (const auto& word : words_of(tree)) words.push_back(escaped_word(word));
    REQUIRE(words_of(read) == words);
    REQUIRE(to_string(read) == to_string(tree));
    const auto split = split_words(line);
    REQUIRE(std::vector<std::string>(split.begin(), split.end()) == words);
    const auto rebuilt = delinearize(linearize(read, {.copy_words = true}), words);
    REQUIRE(words_of(rebuilt.tree) == words);
  }
}

TEST_CASE("blanks inside the words of a treebank stay inside") {
  const auto tree = read_tree("(TOP (NP (CD 10\u00A0000) (NN\u2009X men\u0085)))", "a tree");
  CHECK(words_of(tree) == std::vector<std::string>{"10_000", "men_"});
  CHECK(to_string(tree) == "(TOP (NP (CD 10_000) (NN_X men_)))");
}

TEST_CASE("tokens survive a vocabulary") {
  test::TemporaryDirectory folder;
  std::string words, trees, copied;
  for (const auto& tree : read_treebank(gum("dev.mrg.gz"))) {
    words += fmt::format("{}\n", fmt::join(words_of(tree), " "));
    trees += linearize(tree) + "\n";
    copied += linearize(tree, {.copy_words = true}) + "\n";
  }
  test::write_file(folder / "words", words);
  test::write_file(folder / "trees", trees);
  test::write_file(folder / "copied", copied);
  const auto comes_back = [&](const Vocabulary& vocabulary, const std::string& text) {
    std::istringstream lines(text);
    int64_t changed = 0;
    for (std::string line; std::getline(lines, line);) {
      if (vocabulary.decode(vocabulary.encode(line)) != line) ++changed;
    }
    return changed == 0;
  };
  const auto learn = [&](const std::vector<std::filesystem::path>& files, int64_t size,
                         VocabularySettings::Algorithm algorithm) {
    Vocabulary::train(files, size, {.algorithm = algorithm}, folder / "vocabulary.model");
    return Vocabulary(folder / "vocabulary.model");
  };
  for (const auto algorithm : {VocabularySettings::Algorithm::bpe, VocabularySettings::Algorithm::unigram}) {
    CHECK(comes_back(learn({folder / "trees"}, 290, algorithm), trees));
    const auto joint = learn({folder / "words", folder / "copied"}, 1500, algorithm);
    CHECK(comes_back(joint, words));
    CHECK(comes_back(joint, copied));
    // Brackets never seen are spelled, and come back, too.
    CHECK(comes_back(joint, "(WHADJP XX )WHADJP (ZÜ (-X- ) )\n"));
  }
}
