#include "transformer/sweep/grid.h"

#include <functional>
#include <set>

#include "support.h"
#include "sweep_support.h"
#include "transformer/base/error.h"
#include "transformer/sweep/plan.h"

using namespace transformer;
using namespace transformer::test;

namespace {

struct GridFile {
  TemporaryDirectory directory;
  GridFile() { write_file(directory / "base.yaml", "model: {d_model: 64, heads: 4}\ntraining: {steps: 100}\n"); }

  Grid read(const std::string& text) const {
    write_file(directory / "grid.yaml", text);
    return read_grid(directory / "grid.yaml", {"model", "training", "data"});
  }
  Plan plan(const std::string& text, const PlanOptions& options = {}) const {
    return make_plan(read(text), options, toy_reader());
  }
  /// What is wrong, with the folder's name cut off.
  std::string error(const std::string& text, const PlanOptions& options = {}) const {
    try {
      plan(text, options);
    } catch (const Error& error) {
      std::string message = error.what();
      const auto folder = directory.path().string() + "/";
      for (size_t at; (at = message.find(folder)) != std::string::npos;) message.erase(at, folder.size());
      return message;
    }
    return "no Error";
  }
};

}  // namespace

TEST_CASE("a grid's rows are deltas of its base") {
  const GridFile file;
  const auto grid = file.read(
      "title: A study\nbase: base.yaml\noutput: runs/here\nseeds: [1, 2]\nset: {training: {steps: 50}}\n"
      "rows:\n  - {name: base, seeds: [1, 2, 3], paper: {perplexity: 4.92, bleu: 25.8, parameters: 65}}\n"
      "  - {name: A-h1, group: A, model: {heads: 1, d_k: 64}, paper: {bleu: 24.9}}\n");
  CHECK(grid.title == "A study");
  CHECK(grid.base == file.directory / "base.yaml");
  CHECK(grid.output == "runs/here");
  CHECK(grid.base_row == "base");
  REQUIRE(grid.rows.size() == 2);
  CHECK(grid.rows[0].seeds == std::vector<uint64_t>{1, 2, 3});
  CHECK(grid.rows[0].paper->perplexity == 4.92);
  CHECK(grid.rows[0].paper->parameters_millions == 65.);
  CHECK(grid.rows[1].seeds == std::vector<uint64_t>{1, 2});
  CHECK(grid.rows[1].group == "A");
  CHECK(grid.rows[1].changes == "heads 1, d_k 64");
  CHECK_FALSE(grid.rows[1].paper->perplexity);
  CHECK(grid.rows[1].paper->bleu == 24.9);
}

TEST_CASE("a product has a row for every combination") {
  const GridFile file;
  const auto grid = file.read(
      "base: base.yaml\nproducts:\n  - name: h{model.heads}-d{model.d_model}\n"
      "    model: {heads: [1, 2, 4], dropout: 0.3, d_model: [64, 128]}\n");
  std::vector<std::string> names;
  std::set<std::string> changes;
  for (const auto& row : grid.rows) {
    names.push_back(row.name);
    changes.insert(row.changes);
  }
  CHECK(names == std::vector<std::string>{"h1-d64", "h1-d128", "h2-d64", "h2-d128", "h4-d64", "h4-d128"});
  CHECK(changes.size() == 6);
  CHECK(changes.contains("heads 4, dropout 0.3, d_model 128"));
  CHECK(grid.title == "grid");
  CHECK(grid.output == "runs/grid");
  CHECK(grid.base_row.empty());
}

TEST_CASE("a plan has a run for every row and seed, complete and in layers") {
  const GridFile file;
  const std::string text =
      "base: base.yaml\noutput: out\nset: {model: {encoder_layers: 3}, training: {steps: 50}}\n"
      "rows:\n  - {name: base, seeds: [1, 7]}\n  - {name: small, model: {layers: 2, dropout: 0.25}}\n";
  const auto plan =
      file.plan(text, {.output = "", .seeds = {}, .overrides = {{"training.steps", "9", "--set"}}, .device = ""});
  REQUIRE(plan.runs.size() == 3);
  CHECK(plan.runs[0].name == "base/seed-1");
  CHECK(plan.runs[1].name == "small/seed-1");  // every row's first seed first
  CHECK(plan.runs[2].name == "base/seed-7");
  CHECK(plan.runs[2].folder == "out/base/seed-7");
  CHECK(plan.runs[2].log == "out/base/seed-7.log");
  const auto& small = plan.runs[1].configuration.values;
  CHECK(small.at("model.encoder_layers") == "2");  // the row's `layers` is stronger than the grid's encoder_layers
  CHECK(small.at("model.decoder_layers") == "2");
  CHECK(plan.runs[1].steps() == 9);
  CHECK(small.at("data.cache") == "out/corpus");
  // What train is given makes the same settings from the base.
  ToyRecipe recipe;
  recipe.settings.load(file.directory / "base.yaml");
  recipe.settings.set(plan.runs[1].overrides);
  CHECK(recipe.settings.values() == small);
  CHECK(plan.runs_of({"base"}) == std::vector<size_t>{0, 2});
  CHECK(plan.find("base/seed-7") == 2);
  CHECK_THROWS_WITH(plan.runs_of({"smal"}), Contains("did you mean 'small'?"));
  CHECK_THROWS_WITH(plan.find("base/seed-3"), Contains("there is no run 'base/seed-3'"));
  const auto seeds = file.plan(text, {.output = "other", .seeds = {5}, .overrides = {}, .device = "cuda"});
  REQUIRE(seeds.runs.size() == 2);
  CHECK(seeds.runs[0].folder == "other/base/seed-5");
  CHECK(seeds.runs[0].configuration.values.at("training.device") == "cuda");
  CHECK_THROWS_WITH(file.plan(text, {.output = "", .seeds = {5, 1, 5}, .overrides = {}, .device = ""}),
                    Contains("--seeds: the seed 5 is given twice"));
}

TEST_CASE("a row is called what --set leaves of it") {
  const GridFile file;
  const std::string text =
      "base: base.yaml\nrows:\n  - {name: base}\n"
      "  - {name: a, model: {heads: 2, layers: 3, dropout: 0.2}, training: {steps: 7}}\n";
  const auto changes = [&](const std::vector<SettingOverride>& overrides) {
    return file.plan(text, {.output = "", .seeds = {}, .overrides = overrides, .device = ""}).grid.rows[1].changes;
  };
  CHECK(changes({}) == "heads 2, layers 3, dropout 0.2, steps 7");
  CHECK(changes({{"training.threads", "2", "--set"}}) == "heads 2, layers 3, dropout 0.2, steps 7");
  CHECK(changes({{"training.steps", "20", "--set"}}) == "heads 2, layers 3, dropout 0.2, steps 20");
  CHECK(changes({{"model.layers", "1", "--set"}}) ==
        "heads 2, decoder_layers 1, encoder_layers 1, dropout 0.2, steps 7");
  CHECK(changes({{"model.encoder_layers", "5", "--set"}}) ==
        "heads 2, decoder_layers 3, encoder_layers 5, dropout 0.2, steps 7");
  const std::string twice =
      "base: base.yaml\nrows:\n  - {name: base}\n  - {name: a, model: {layers: 3, encoder_layers: 5}}\n";
  const PlanOptions options{.output = "", .seeds = {}, .overrides = {{"model.layers", "1", "--set"}}, .device = ""};
  CHECK(file.plan(twice, options).grid.rows[1].changes == "decoder_layers 1, encoder_layers 1");
}

TEST_CASE("a grid's mistakes are named with file, line and key") {
  const GridFile file;
  const std::string head = "base: base.yaml\nrows:\n";
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"bsae: base.yaml\n", "grid.yaml:1: a grid has no key 'bsae'; did you mean 'base'?"},
      {"base: none.yaml\nrows: [{name: a}]\n", "grid.yaml:1: base: there is no file none.yaml"},
      {"base: " + std::string(300, 'a') + "\nrows: [{name: a}]\n", "grid.yaml:1: base: there is no file aaa"},
      {"rows: [{name: a}]\n", "grid.yaml: the grid has no base"},
      {"base: base.yaml\n", "grid.yaml: the grid has no rows"},
      {"base: base.yaml\nrows: 3\n", "grid.yaml:2: rows takes a list, found '3'"},
      {"base: base.yaml\nseeds: [1, x]\nrows: [{name: a}]\n", "grid.yaml:2: seeds takes integers of at least 0"},
      {"base: base.yaml\nseeds: [1, 1]\nrows: [{name: a}]\n", "the seed 1 is given twice"},
      {"base: base.yaml\nseeds: []\nrows: [{name: a}]\n", "seeds is an empty list"},
      {"base: base.yaml\nbase_row: bas\nrows: [{name: base}]\n", "there is no row 'bas'; did you mean 'base'?"},
      {head + "  - model: {heads: 1}\n", "grid.yaml:3: a row has no name"},
      {head + "  - {name: a, modle: {heads: 1}}\n", "grid.yaml:3: a row has no key 'modle'; did you mean 'model'?"},
      {head + "  - {name: a, model: 3}\n", "grid.yaml:3: a section of settings was expected, found '3'"},
      {head + "  - name: a\n    model:\n", "grid.yaml:4: a section of settings was expected, found nothing"},
      {"base: base.yaml\nset:\nrows: [{name: a}]\n", "grid.yaml:2: a set of settings was expected, found nothing"},
      {"base: base.yaml\nset: {modle: {heads: 1}}\nrows: [{name: a}]\n",
       "grid.yaml:2: a set of settings has no key 'modle'; did you mean 'model'?"},
      {head + "  - {name: a, paper: 3}\n", "grid.yaml:3: a row of the paper was expected, found '3'"},
      {"base: base.yaml\nseeds: [1, -1]\nrows: [{name: a}]\n", "found '-1'"},
      {"base: base.yaml\nseeds: [[1]]\nrows: [{name: a}]\n", "found a list"},
      {"base: base.yaml\nseeds: [1000, 1e3]\nrows: [{name: a}]\n", "the seed 1000 is given twice"},
      {"base: base.yaml\nseeds: [9007199254740993]\nrows: [{name: a}]\n", "training.seed is out of range"},
      {head + "  - {name: a}\n  - {name: a}\n", "grid.yaml:4: two rows are called 'a' (the first at grid.yaml:3)"},
      {head + "  - {name: a/b}\n", "'a/b' cannot be a row's name"},
      {head + "  - {name: ..}\n", "'..' cannot be a row's name"},
      {head + "  - {name: corpus}\n", "'corpus'"},
      {head + "  - {name: report.md}\n", "a 'report.md' of its own"},
      {head + "  - {name: sweep.sbatch.answer}\n", "a 'sweep.sbatch.answer' of its own"},
      {head + "  - {name: sweep.json}\n", "a 'sweep.json' of its own"},
      {head + "  - {name: a, paper: {blue: 3}}\n", "paper has no key 'blue'; did you mean 'bleu'?"},
      {head + "  - {name: a, paper: {bleu: many}}\n", "grid.yaml:3: bleu takes a number, found 'many'"},
      {head + "  - {name: a, training: {seed: 3}}\n", "grid.yaml:3: training.seed belongs to the sweep"},
      {head + "  - {name: a, training: {output: x}}\n", "training.output belongs to the sweep"},
      {head + "  - name: a\n    model:\n      head: 1\n",
       "grid.yaml:5: unknown setting 'model.head'; did you mean 'model.heads'?"},
      {head + "  - name: a\n    model:\n      heads: many\n", "grid.yaml:5: model.heads takes an integer"},
      {head + "  - name: a\n    model: {heads: {x: 1}}\n", "a value or a list of values was expected"},
      {head + "  - name: a\n    model: {heads: 5}\n",
       "grid.yaml:3: the row 'a': model.heads: 5 does not divide d_model 64"},
      {"base: base.yaml\nproducts: [{name: 'h{model.head}', model: {heads: [1, 2]}}]\n", "did you mean 'model.heads'?"},
      {"base: base.yaml\nproducts: [{name: h, model: {heads: [1, 2]}}]\n", "two rows are called 'h'"},
      {"base: base.yaml\nproducts: [{name: 'h{model.heads', model: {heads: [1, 2]}}]\n", "without a '}'"},
      {"base: base.yaml\nproducts: [{name: h, model: {heads: []}}]\n", "model.heads has no values"},
  };
  for (const auto& [text, message] : mistakes) {
    INFO(text);
    CHECK_THAT(file.error(text), Contains(message));
  }
  std::string values = "1";
  for (int i = 2; i <= 101; ++i) values += fmt::format(", {}", i);
  CHECK_THAT(file.error(fmt::format("base: base.yaml\nproducts: [{{name: x, model: {{heads: [{0}], d_k: [{0}]}}}}]\n",
                                    values)),
             Contains("more than 10000 rows"));
  values.clear();
  for (int i = 0; i < 10001; ++i) values += fmt::format("{}, ", i);
  CHECK_THAT(file.error(fmt::format("base: base.yaml\nseeds: [{}]\nrows: [{{name: a}}]\n", values)),
             Contains("grid.yaml: has 10001 runs, and a sweep has 10000 at most"));
  const std::string whole = head + "  - {name: a}\n";
  CHECK_THAT(
      file.error(whole, {.output = "", .seeds = {}, .overrides = {{"training.seed", "1", "--set"}}, .device = ""}),
      Contains("--seeds"));
  CHECK_THAT(
      file.error(whole, {.output = "", .seeds = {}, .overrides = {{"model.haeds", "1", "--set x"}}, .device = ""}),
      Contains("--set x: unknown setting 'model.haeds'"));
}

TEST_CASE("the grids that come with the project can be read") {
  const std::vector<std::string> sections = {"data", "vocabulary", "model", "training", "decoding"};
  const std::filesystem::path folder = TRANSFORMER_SOURCE_DIR "/configs/sweeps";
  for (const char* name : {"table3", "table3-tiny"}) {
    const auto grid = read_grid(folder / fmt::format("{}.yaml", name), sections);
    INFO(name);
    CHECK(grid.base_row == "base");
    std::map<std::string, int> groups;
    for (const auto& row : grid.rows) ++groups[row.group];
    // Table 3, row by row.
    CHECK(groups["A"] == 4);
    CHECK(groups["B"] == 2);
    CHECK(groups["C"] == 7);
    CHECK(groups["D"] == 4);
    CHECK(groups["E"] == 1);
  }
}
