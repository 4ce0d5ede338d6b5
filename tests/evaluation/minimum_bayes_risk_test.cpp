#include "transformer/evaluation/minimum_bayes_risk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "support.h"

namespace transformer::test {

TEST_CASE("expected utilities are the means of sacreBLEU's sentence scores, of every pair") {
  const TemporaryDirectory folder;
  run_reference("minimum_bayes_risk.py", fmt::format("'{}'", (folder / "cases.json").string()));
  const auto cases = nlohmann::json::parse(read_file(folder / "cases.json"));
  const std::vector<std::pair<std::string, Utility>> utilities = {
      {"chrf", ChrfOptions()}, {"chrf++", ChrfOptions{.word_order = 2}}, {"bleu", BleuOptions()}};
  REQUIRE(cases.size() == 7);
  for (const auto& example : cases) {
    const std::vector<std::string> hypotheses = example["hypotheses"];
    const std::vector<double> weights = example["weights"];
    for (const auto& [name, utility] : utilities) {
      const std::string called = name;  // Clang 14 captures no part of a pair
      const auto check = [&](const std::vector<double>& found, const std::vector<double>& expected) {
        INFO(called);
        REQUIRE(found.size() == expected.size());
        for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).margin(1e-9));
      };
      check(expected_utilities(hypotheses, {}, utility), example[name]);
      check(expected_utilities(hypotheses, weights, utility), example[name + " weighted"]);
    }
  }
}

TEST_CASE("what is most like the others has the least risk") {
  const auto found = expected_utilities({"a completely different one", "the cat sat", "the cat sat", "the cat sits"});
  CHECK(std::max_element(found.begin(), found.end()) - found.begin() == 1);
  CHECK(expected_utilities({}).empty());
  CHECK(expected_utilities({"x"}).front() == Approx(100));
}

TEST_CASE("weights that cannot be are refused") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const auto& weights : std::vector<std::vector<double>>{{1}, {1, -1}, {1, infinity}, {0, 0}, {1, std::nan("")}}) {
    CHECK_FALSE(error_of([&] { expected_utilities({"a", "b"}, weights); }).empty());
  }
}

}  // namespace transformer::test
