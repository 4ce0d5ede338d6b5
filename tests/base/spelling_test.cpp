#include "transformer/base/spelling.h"

#include "catch.h"

using namespace transformer;

TEST_CASE("words are as far apart as the slips that lead from one to the other") {
  CHECK(edit_distance("heads", "heads") == 0);
  CHECK(edit_distance("", "heads") == 5);
  CHECK(edit_distance("haeds", "heads") == 1);  // neighbours swapped
  CHECK(edit_distance("hads", "heads") == 1);
  CHECK(edit_distance("headss", "heads") == 1);
  CHECK(edit_distance("heats", "heads") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("sitting", "kitten") == 3);
}

TEST_CASE("the nearest word is one that a slip can have made") {
  const std::vector<std::string> known = {"heads", "d_model", "dropout", "drop"};
  CHECK(nearest_word("haeds", known) == "heads");
  CHECK(nearest_word("dmodle", known) == "d_model");
  CHECK(nearest_word("dropot", known) == "dropout");
  CHECK(nearest_word("drip", known) == "drop");
  CHECK(nearest_word("dxyp", known).empty());  // two letters of four are another word
  CHECK(nearest_word("width", known).empty());
  CHECK(nearest_word("heads", {}).empty());
  CHECK(nearest_word("--ref", {"--reference", "--remainder"}) == "--reference");
  CHECK(nearest_word("--re", {"--reference", "--remainder"}).empty());  // the beginning of two
  CHECK(nearest_word("--source", {"--source-language", "--sources"}) == "--sources");
  CHECK(nearest_word("no", {"no_repeat_ngram"}).empty());
  const std::string longest(longest_word, 'x');
  CHECK(nearest_word(longest, {longest + "y"}) == longest + "y");
  CHECK(nearest_word(longest + "z", {longest + "y"}).empty());
}

TEST_CASE("a remedy names what is near, or what there is") {
  CHECK(did_you_mean("heads") == "did you mean 'heads'?");
  CHECK(did_you_mean("heads", "there are: heads") == "did you mean 'heads'?");
  CHECK(did_you_mean("", "there are: heads") == "there are: heads");
  CHECK(did_you_mean("").empty());
}
