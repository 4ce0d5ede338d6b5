#include "transformer/report/speed_report.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "error_of.h"
#include "support.h"

using namespace transformer;
using nlohmann::json;
using test::error_of;

namespace {

json kept_model() {
  return {
      {"name", "theirs"},
      {"precision", "int8"},
      {"bleu", 12.5},
      {"chrf", 30},
      {"bytes", 1e6},
      {"parameters", 7},
      {"speed", json::array({{{"sentences_at_once", 1}, {"words_per_second", 100}, {"words_per_core_second", 50}}})}};
}

SpeedFigures read(const json& model) {
  return read_speed_figures(json{{"models", json::array({model})}}.dump(), "kept.json", {1}).at(0);
}

// Of the table with these figures.
std::vector<std::string> lines_of(const std::vector<SpeedFigures>& figures) {
  std::vector<std::string> lines;
  std::istringstream in(speed_table(figures));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("scores that were kept are in per cent") {
  for (const char* score : {"bleu", "chrf"}) {
    for (const double wrong : {-0.1, 100.1, 3e8}) {
      auto model = kept_model();
      model[score] = wrong;
      CHECK_THAT(error_of([&] { read(model); }), StartsWith(fmt::format("kept.json, model 1: {} is no number that is "
                                                                        "from 0 to 100; ",
                                                                        score)));
    }
  }
  auto perfect = kept_model();
  perfect["bleu"] = std::nextafter(100.0, 101.0);  // as sums of logarithms have it
  CHECK(read(perfect).bleu == 100);
  auto still = kept_model();
  still["speed"][0]["words_per_second"] = 0;
  CHECK_THAT(error_of([&] { read(still); }), Contains("words_per_second is no number that is more than 0"));
}

TEST_CASE("figures that were measured otherwise are remarked on") {
  const json measured = {{"text", "a1"}, {"sentences", 100},           {"timed_sentences", 10},     {"timed_words", 70},
                         {"threads", 1}, {"bleu_signature", "BLEU|x"}, {"chrf_signature", "chrF|y"}};
  const auto with = [&](const std::string& name, const json& changes) {
    auto model = kept_model();
    model["name"] = name;
    model["measured"] = measured;
    model["measured"].update(changes);
    return model;
  };
  const auto one = read(with("one", json::object())), other = read(with("other", json::object()));
  REQUIRE(one.measured);
  CHECK(one.measured->timed_words == 70);
  CHECK(speed_remarks({}).empty());
  CHECK(speed_remarks({one, other}).empty());
  CHECK(speed_remarks({read(kept_model()), read(kept_model())}).empty());
  const auto remarks = speed_remarks({read(kept_model()), one,
                                      read(with("long", {{"text", "b2"}, {"sentences", 1}, {"timed_words", 5}})), other,
                                      read(with("many", {{"threads", 4}, {"bleu_signature", "BLEU|z"}}))});
  CHECK(
      remarks ==
      std::vector<std::string>{
          "1 line does not say on which text and with how many threads it was measured",
          "long, int8 was measured otherwise than one, int8: on another text (1 sentence), with 5 words timed, not 70",
          "many, int8 was measured otherwise than one, int8: with 4 threads, not 1, by BLEU|z"});
  for (const auto& wrong : {json{{"threads", 0}}, json{{"text", 3}}, json{{"sentences", "x"}}}) {
    CHECK_THAT(error_of([&] { read(with("wrong", wrong)); }), StartsWith("kept.json, model 1: "));
  }
  auto none = kept_model();
  none["measured"] = 3;
  CHECK_THAT(error_of([&] { read(none); }), Contains("measured is no object"));
}

TEST_CASE("a table of speeds is aligned, whatever the models are called") {
  auto figures = read(kept_model());
  std::vector<SpeedFigures> all;
  // Each takes nine cells.
  for (const char* name : {"model-one", "modèle-un", "mode\u0301le-u\u0301n", "モデル-un", "日本語日-"}) {
    figures.model = name;
    all.push_back(figures);
  }
  const auto lines = lines_of(all);
  REQUIRE(lines.size() == 6);
  for (size_t i = 1; i < lines.size(); ++i) {
    CHECK(lines[i].substr(0, all[i - 1].model.size() + 2) == all[i - 1].model + "  ");
    CHECK(lines[i].substr(all[i - 1].model.size()) == lines[1].substr(9));
  }
}

TEST_CASE("a table of speeds stays narrow, whatever the figures are") {
  auto model = kept_model();
  for (const char* key : {"bytes", "parameters"}) model[key] = 1e300;
  for (const char* key : {"words_per_second", "words_per_core_second"}) model["speed"][0][key] = 3.3e300;
  const auto line = lines_of({read(model)}).at(1);
  CHECK_THAT(line, Contains(" 3.3·10³⁰⁰ "));
  CHECK(line.size() < 150);
}
