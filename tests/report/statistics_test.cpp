#include "transformer/report/statistics.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "report_support.h"

using namespace transformer;
using nlohmann::json;
using test::not_a_number;
using test::parsed;
using Verdict = RowDifference::Verdict;

namespace {}  // namespace

TEST_CASE("mean, deviation, rank correlation and Student's t are numpy's") {
  const std::vector<double> values = {4.92, 5.29, 5.0, 4.91, 5.01, 5.16, 1e3};
  const std::vector<std::pair<double, double>> pairs = {{1, 2}, {2, 1}, {3, 3}, {3, 7}, {5, 7}, {6, 7}, {7, 0.5}};
  const json expected = parsed("statistics", json{{"values", values}, {"pairs", pairs}}.dump());
  const Spread spread = spread_of(values);
  CHECK(spread.count == 7);
  CHECK(spread.mean == Approx(expected.at("mean").get<double>()).epsilon(1e-12));
  CHECK(spread.deviation.value() == Approx(expected.at("deviation").get<double>()).epsilon(1e-12));
  CHECK(rank_correlation(pairs).value() == Approx(expected.at("correlation").get<double>()).epsilon(1e-12));
  for (const auto& [seeds, chance] : expected.at("chances").items()) {
    INFO(seeds);
    CHECK(chance_beyond(std::stoll(seeds)) == Approx(chance.get<double>()).margin(1e-6).epsilon(0));
  }
}

TEST_CASE("statistics by hand") {
  CHECK(spread_of({}).count == 0);
  CHECK(!spread_of({3}).deviation);
  CHECK(spread_of({3, not_a_number, 5, INFINITY}).count == 2);
  CHECK(spread_of({3, not_a_number, 5}).mean == 4);
  CHECK(spread_of({3, not_a_number, 5}).deviation.value() == Approx(std::sqrt(2.0)));
  CHECK(chance_beyond(2) == Approx(1 - 2 / M_PI * std::atan(2)));
  CHECK(chance_beyond(3) == Approx(1 - 2 / std::sqrt(6)));
  CHECK(chance_beyond(1'000'000) == Approx(0.0455).margin(1e-4));
  CHECK_THROWS_AS(chance_beyond(1), std::invalid_argument);
  CHECK(!rank_correlation({{1, 1}, {2, 2}}));
  CHECK(!rank_correlation({{1, 1}, {2, 1}, {3, 1}}));
  CHECK(rank_correlation({{1, 30}, {2, 20}, {3, -5}}).value() == Approx(-1));
}

TEST_CASE("deviations of what is huge and what is tiny are numbers, and all others to the last bit as they were") {
  const double unit = std::sqrt(2.0);
  for (const double scale : {1e-300, 1e-160, 1.0, 1e154, 1e200, 1e307}) {
    INFO(scale);
    CHECK(spread_of({3 * scale, 5 * scale}).deviation.value() / scale == Approx(unit).epsilon(1e-12));
  }
  CHECK(spread_of({7e300, 7e300}).deviation == 0.0);
  const std::vector<double> values = {4.92, 5.29, 5.0, 1e3};
  const double mean = spread_of(values).mean;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  CHECK(spread_of(values).deviation == std::sqrt(squares / 3));
}

TEST_CASE("a difference is judged by the base row's seeds") {
  const Spread base = spread_of({4.9, 5.0, 5.1});
  const double limit = 2 * 0.1 * std::sqrt(1 + 1.0 / 3);  // 0.2309
  const auto near = compare_to_base(spread_of({5.23}), base).value();
  CHECK(near.limit == Approx(limit));
  CHECK(near.difference == Approx(0.23));
  CHECK(near.verdict == Verdict::within);
  CHECK(compare_to_base(spread_of({5.24}), base)->verdict == Verdict::beyond);
  CHECK(compare_to_base(spread_of({4.76}), base)->verdict == Verdict::beyond);
  // More seeds of the row, a smaller limit: 2 * 0.1 * sqrt(1/4 + 1/3) = 0.153.
  CHECK(compare_to_base(spread_of({5.2, 5.2, 5.2, 5.2}), base)->verdict == Verdict::beyond);
  CHECK(compare_to_base(spread_of({9}), spread_of({5}))->verdict == Verdict::unknown);
  CHECK(compare_to_base(spread_of({9, 10}), spread_of({5}))->difference == Approx(4.5));
  CHECK(!compare_to_base(spread_of({}), base));
  CHECK(!compare_to_base(base, spread_of({not_a_number})));
}
