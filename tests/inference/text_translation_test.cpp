#include "transformer/inference/text_translation.h"

#include <string>
#include <vector>

#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/text/corpus.h"

namespace transformer::test {

namespace {

/// A model with positions for `positions` tokens, or any number of them (0), that learned texts with `tags`.
Translator tagged_translator(const TemporaryDirectory& folder, const std::string& tags, int64_t positions = 0) {
  write_tiny_model(folder.path(), {}, false, positions);
  const auto config = folder / "config.yaml";
  write_atomically(config, read_file(config) + "data:\n  train_tags: " + tags + "\n");
  return Translator(folder.path(), "cpu", InferenceOptions{.threads = 1});
}

}  // namespace

TEST_CASE("what a sentence says of how it is translated is said of all behind it") {
  const TemporaryDirectory folder;
  const auto translator = tagged_translator(folder, "[<a>, \"\", <b>, <a>]");
  CHECK(translator.said_by("<a> Ba.") == "<a>");
  CHECK(translator.said_by("<b>\u00A0Ba.") == "<b>");
  CHECK(translator.said_by("<a>") == "<a>");
  for (const char* text : {"", "Ba. <a>", "<a>Ba.", "<c> Ba.", " <a> Ba."}) CHECK(translator.said_by(text).empty());
  CHECK(as_read("", "Ba.") == "Ba.");
  CHECK(as_read("<a>", "Ba.") == "<a> Ba.");

  SplitText text("Ba do. <a> Ki lu. Ba do.\n<b> No ra. Ki lu.");
  const auto found = encode_segments(translator, text);
  CHECK(found.said == std::vector<std::string>{"", "", "<a>", "", "<b>"});
  CHECK(found.cut == 0);
  CHECK(found.pieces == translator.encode({"Ba do.", "<a> Ki lu.", "<a> Ba do.", "<b> No ra.", "<b> Ki lu."}));
}

TEST_CASE("parts of a sentence are told what it says, and fit with it") {
  const TemporaryDirectory folder;
  const auto translator = tagged_translator(folder, "[<ab>]", 24);
  const auto longest = static_cast<size_t>(translator.longest_source());
  SplitText text("<ab> " + std::string("Ba do, ki lu, no ra, si tu, vo ba, do ki, lu no, ra si, tu vo, ba do, ki lu."));
  const auto found = encode_segments(translator, text);
  CHECK(found.cut == 1);
  REQUIRE(found.pieces.size() > 2);
  const auto said = translator.encode({"<ab>"}).front();
  REQUIRE(said.size() > 1);
  for (size_t i = 0; i < found.pieces.size(); ++i) {
    CHECK(found.said[i] == (i == 0 ? "" : "<ab>"));
    CHECK(found.pieces[i].size() <= longest);
    CHECK(std::equal(said.begin(), said.end(), found.pieces[i].begin()));
    CHECK(found.pieces[i] == translator.encode({as_read(found.said[i], text.segment(i))}).front());
  }
}

TEST_CASE("a configuration without tags, or with what are none, says nothing") {
  const TemporaryDirectory folder;
  const auto tags_of = [&](const std::string& text) {
    write_file(folder / "config.yaml", text);
    return tags_of_model(folder / "config.yaml");
  };
  CHECK(tags_of("data:\n  train_tags: [<b>, \"\", <a>, <b>]\n") == std::vector<std::string>{"<a>", "<b>"});
  for (const char* text : {"model: {}\n", "data: {}\n", "data:\n", "data: 3\n", "data:\n  train_tags: 3\n",
                           "data:\n  train_tags: [[1], {a: b}]\n", "data:\n  other: {a: b}\n"}) {
    CHECK(tags_of(text).empty());
  }
}

}  // namespace transformer::test
