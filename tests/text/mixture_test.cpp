#include "transformer/text/mixture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "text_support.h"

namespace transformer::test {

namespace {

// How often each pair is used by an epoch.
std::map<int64_t, int> uses(const Mixture& mixture, int64_t epoch, int64_t pool_pairs = 1'000'000) {
  std::map<int64_t, int> times;
  for (const auto& pool : mixture.pools(epoch, pool_pairs)) {
    for (const auto& range : pool) {
      for (int64_t pair = range.first; pair < range.first + range.count; ++pair) ++times[pair];
    }
  }
  return times;
}

int64_t pairs_in(const std::vector<PairRange>& pool) {
  return std::accumulate(pool.begin(), pool.end(), int64_t{0},
                         [](int64_t sum, const PairRange& range) { return sum + range.count; });
}

}  // namespace

TEST_CASE("over the epochs every pair is used as often as its weight says, and never once oftener than another") {
  const int64_t size = GENERATE(1, 7, 1000, 20000);
  const double weight = GENERATE(1.0, 2.0, 0.5, 0.29, 1.7, 0.1);
  CAPTURE(size, weight);
  const Mixture mixture{{3, size}, {0, weight}, 11};
  std::map<int64_t, int> total;
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    const auto once = uses(mixture, epoch);
    for (const auto& [pair, times] : once) total[pair] += times;
    const auto [least, most] = std::minmax_element(total.begin(), total.end(),
                                                   [](const auto& a, const auto& b) { return a.second < b.second; });
    if (total.empty()) continue;
    const int fewest = static_cast<int64_t>(total.size()) < size ? 0 : least->second;
    REQUIRE(most->second - fewest <= 1);
  }
  REQUIRE(static_cast<int64_t>(total.size()) == size);
  CHECK(total.begin()->first == 3);
  CHECK(total.rbegin()->first == 3 + size - 1);
  CHECK(std::all_of(total.begin(), total.end(),
                    [&](const auto& pair) { return pair.second == std::lround(100 * weight); }));
}

TEST_CASE("an epoch's order depends on its seed, its corpus and its number") {
  const auto order = [](uint64_t seed, int64_t epoch) { return Mixture{{5000, 5000}, {}, seed}.pools(epoch, 100); };
  CHECK((order(1, 0) == order(1, 0)));
  CHECK((order(1, 0) != order(2, 0)));
  CHECK((order(1, 0) != order(1, 1)));
  // Halves of two equal corpora are different halves.
  auto half = uses({{5000, 5000}, {0.5, 0.5}, 1}, 0);
  int both = 0;
  for (int64_t pair = 0; pair < 5000; ++pair) both += half.contains(pair) && half.contains(pair + 5000);
  CHECK(both > 1000);
  CHECK(both < 1500);
}

TEST_CASE("pools are of about the size asked for, each with every corpus's part") {
  const Mixture mixture{{3'000'000, 100'000, 1000}, {1, 2, 5}, 4};
  const auto pools = mixture.pools(3, 250'000);
  const int64_t total = 3'000'000 + 200'000 + 5000;
  REQUIRE(pools.size() == 13);
  int64_t sum = 0;
  for (const auto& pool : pools) {
    const int64_t pairs = pairs_in(pool);
    sum += pairs;
    CHECK(std::abs(pairs - total / 13) < 2048);
    CHECK(std::is_sorted(pool.begin(), pool.end()));
    int64_t second = 0, third = 0;
    for (const auto& range : pool) {
      second += range.first >= 3'000'000 && range.first < 3'100'000 ? range.count : 0;
      third += range.first >= 3'100'000 ? range.count : 0;
    }
    CHECK(second == Approx(200'000 / 13.0).epsilon(0.2));
    CHECK(third == Approx(5000 / 13.0).epsilon(0.3));
  }
  CHECK(sum == total);
  const auto times = uses(mixture, 3, 250'000);
  CHECK(times.size() == 3'101'000);
  CHECK(times.at(0) == 1);
  CHECK(times.at(3'050'000) == 2);
  CHECK(times.at(3'100'999) == 5);
}

TEST_CASE("a billion pairs are mixed in few blocks") {
  const auto pools = Mixture{{1'000'000'000}, {}, 1}.pools(0, 1'000'000);
  REQUIRE(pools.size() == 1000);
  size_t ranges = 0;
  int64_t pairs = 0;
  for (const auto& pool : pools) {
    ranges += pool.size();
    pairs += pairs_in(pool);
  }
  CHECK(ranges < 1'100'000);
  CHECK(pairs == 1'000'000'000);
}

TEST_CASE("without shuffling pairs come in their order") {
  const auto pools = Mixture{{10'000, 5}, {}, 1, false}.pools(0, 3000);
  REQUIRE(pools.size() == 4);
  int64_t next = 0;
  for (const auto& pool : pools) {
    for (const auto& range : pool) {
      REQUIRE(range.first == next);
      next += range.count;
    }
  }
  CHECK(next == 10'005);
  CHECK(Mixture{{0, 0}, {}, 1}.pools(0, 10).empty());
  CHECK(Mixture{{}, {}, 1}.pools(0, 10).empty());
}

TEST_CASE("weights that say nothing sensible are refused") {
  CHECK_NOTHROW(check_weights({}, 3));
  CHECK_NOTHROW(check_weights({0, 1000, 0.5}, 3));
  for (const double weight : {-1.0, 1000.5, std::nan(""), static_cast<double>(INFINITY)}) {
    CHECK_THAT(error_of([&] {
                 check_weights({1, weight}, 2);
               }),
               Contains("data.train_weights") && Contains("from 0 to 1000"));
  }
  CHECK_THAT(error_of([&] { check_weights({1}, 2); }), Contains("data.train_weights: 1 weight for 2"));
}

}  // namespace transformer::test
