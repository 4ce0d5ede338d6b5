#include "transformer/base/document.h"

#include "error_of.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/base/settings.h"

using namespace transformer;
using transformer::test::error_of;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;

namespace {

struct Sizes {
  int64_t width = 8, encoder_layers = 6, decoder_layers = 6;
  double rate = 0.5;
  std::string name = "a b";
  std::vector<std::string> files = {"x, y", "z"};
  bool bias = false;
  static void describe(Fields<Sizes>& field) {
    field("width", &Sizes::width, "", at_least(1));
    field.pair("layers", {"encoder_layers", "decoder_layers"}, "");
    field("encoder_layers", &Sizes::encoder_layers, "");
    field("decoder_layers", &Sizes::decoder_layers, "");
    field("rate", &Sizes::rate, "");
    field("name", &Sizes::name, "");
    field("files", &Sizes::files, "");
    field("bias", &Sizes::bias, "");
  }
};

struct BoundSizes {
  Sizes sizes;
  Settings settings;
  BoundSizes() { settings.section("net", sizes, ""); }
  BoundSizes(const BoundSizes&) = delete;
};

}  // namespace

TEST_CASE("a document knows its parts and where they stand") {
  TemporaryDirectory directory;
  const auto file = directory / "grid.yaml";
  write_file(file, "title: a b\nrows:\n  - {name: x, seeds: [1, 2]}\n  - name: y\n    empty:\n");
  const auto document = Document::read(file);
  REQUIRE(document.kind() == Document::Kind::mapping);
  const auto entries = document.entries("a grid", {"title", "rows"});
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].key == "title");
  CHECK(entries[0].value.text() == "a b");
  CHECK_THAT(entries[1].where, EndsWith("grid.yaml:2"));
  const auto rows = entries[1].value.elements();
  REQUIRE(rows.size() == 2);
  CHECK_THAT(rows[0].where(), EndsWith("grid.yaml:3"));
  const auto first = rows[0].entries("a row");
  CHECK(first[1].value.kind() == Document::Kind::list);
  CHECK(first[1].value.override_value() == R"(["1", "2"])");
  const auto second = rows[1].entries("a row");
  CHECK_THAT(second[1].where, EndsWith("grid.yaml:5"));
  CHECK(second[1].value.kind() == Document::Kind::nothing);
  CHECK(second[1].value.found() == "nothing");
  CHECK_THAT(second[1].value.where(), EndsWith("grid.yaml:5"));
}

TEST_CASE("a document names unknown keys, repeated ones and what else was found") {
  TemporaryDirectory directory;
  const auto file = directory / "grid.yaml";
  const auto error = [&](const std::string& text) {
    write_file(file, text);
    return error_of([&] { Document::read(file).entries("a grid", {"title", "rows"}); });
  };
  CHECK_THAT(error("title: x\nrow: []\n"), EndsWith("grid.yaml:2: a grid has no key 'row'; did you mean 'rows'?"));
  CHECK_THAT(error("banana: x\n"), EndsWith("its keys are: title, rows"));
  CHECK_THAT(error("title: x\ntitle: y\n"), Contains("grid.yaml:2") && Contains("given twice"));
  CHECK_THAT(error("[1, 2]\n"), EndsWith("grid.yaml:1: a grid was expected, found a list"));
  CHECK_THAT(error("{a: b\n"), Contains("not valid YAML"));
  CHECK_THAT(error(""), Contains("the file is empty"));
  CHECK_THAT(error_of([&] { Document::read(directory / "none.yaml"); }), Contains("no such file; check the path"));
}

TEST_CASE("settings are overridden from a document, with its lines in what goes wrong") {
  BoundSizes bound;
  bound.settings.override_with({{"net.width", "16", "grid.yaml:3"}, {"net.files", "[\"p, q\", r]", "grid.yaml:4"}});
  CHECK(bound.sizes.width == 16);
  CHECK(bound.sizes.files == std::vector<std::string>{"p, q", "r"});
  const auto error = [](const SettingOverride& setting) {
    BoundSizes other;
    return error_of([&] { other.settings.override_with({setting}); });
  };
  CHECK_THAT(error({"net.widht", "3", "grid.yaml:7"}),
             Equals("grid.yaml:7: unknown setting 'net.widht'; did you mean 'net.width'?"));
  CHECK_THAT(error({"net.width", "0", "grid.yaml:7"}), Contains("grid.yaml:7: net.width is out of range: 0"));
  CHECK_THAT(error({"net.files", "[a", "grid.yaml:8"}), Contains("grid.yaml:8") && Contains("not valid YAML"));
  CHECK_THAT(error({"width", "0", "grid.yaml:7"}), Contains("names no section"));
  // One call is one source, and several override each other.
  bound.settings.override_with({{"net.encoder_layers", "3", ""}});
  bound.settings.override_with({{"net.layers", "2", ""}});
  CHECK(bound.sizes.encoder_layers == 2);
}

TEST_CASE("the values of settings, set again, give the same settings") {
  BoundSizes bound;
  bound.sizes = {.width = 3,
                 .encoder_layers = 1,
                 .decoder_layers = 2,
                 .rate = 1.0 / 3,
                 .name = "\"quoted\" [x]",
                 .files = {"a, b", "[c]", ""},
                 .bias = true};
  std::vector<std::string> overrides;
  for (const auto& [name, value] : bound.settings.values()) overrides.push_back(fmt::format("{}={}", name, value));
  CHECK(overrides.size() == 7);
  BoundSizes other;
  other.settings.set(overrides);
  CHECK(other.settings.yaml() == bound.settings.yaml());
}
