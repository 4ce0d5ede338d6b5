#include "transformer/report/axis.h"

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "report_support.h"

using namespace transformer;
using test::not_a_number;

namespace {

std::vector<double> values_of(const std::vector<Tick>& ticks) {
  std::vector<double> values;
  for (const auto& tick : ticks) values.push_back(tick.value);
  return values;
}

std::vector<std::string> labels_of(const std::vector<Tick>& ticks) {
  std::vector<std::string> labels;
  for (const auto& tick : ticks) labels.push_back(tick.label);
  return labels;
}

}  // namespace

TEST_CASE("ticks are round and labelled shortly") {
  CHECK(values_of(axis_ticks(0, 1, Scale::linear, 6)) == std::vector<double>{0, 0.2, 0.4, 0.6, 0.8, 1});
  CHECK(labels_of(axis_ticks(0, 1, Scale::linear, 6)) ==
        std::vector<std::string>{"0", "0.2", "0.4", "0.6", "0.8", "1"});
  // 3 * 0.1 in floating point is not 0.3; the tick is.
  CHECK(values_of(axis_ticks(-0.31, 0.31, Scale::linear, 7)) ==
        std::vector<double>{-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3});
  CHECK(labels_of(axis_ticks(0, 100000, Scale::linear, 6)) ==
        std::vector<std::string>{"0", "20k", "40k", "60k", "80k", "100k"});
  CHECK(values_of(axis_ticks(128, 8192, Scale::binary, 7)) ==
        std::vector<double>{128, 256, 512, 1024, 2048, 4096, 8192});
  CHECK(values_of(axis_ticks(1, 65536, Scale::binary, 9)) ==
        std::vector<double>{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536});
  CHECK(values_of(axis_ticks(4, 300, Scale::logarithmic, 7)) == std::vector<double>{5, 10, 20, 50, 100, 200});
  CHECK(values_of(axis_ticks(1e-3, 1e3, Scale::logarithmic, 7)) ==
        std::vector<double>{1e-3, 1e-2, 1e-1, 1, 10, 100, 1000});
  // Less than a power of ten: as on a linear axis.
  CHECK(values_of(axis_ticks(5.5, 7.5, Scale::logarithmic, 5)) == std::vector<double>{5.5, 6, 6.5, 7, 7.5});
  // Labels of close values differ.
  CHECK(labels_of(axis_ticks(1000000, 1000001, Scale::linear, 3)) ==
        std::vector<std::string>{"1M", "1.0000005M", "1.000001M"});
}

TEST_CASE("ticks rise, stay within the axis, are few and have labels of their own") {
  for (const Scale scale : {Scale::linear, Scale::logarithmic, Scale::binary}) {
    for (double lower = 1e-6; lower < 1e7; lower *= 3.7) {
      for (const double factor : {1.001, 1.3, 2.1, 7.9, 33.0, 1e4, 1e9}) {
        for (const int64_t most : {2, 3, 5, 8}) {
          const double upper = lower * factor;
          INFO(lower << " to " << upper << ", at most " << most);
          const auto ticks = axis_ticks(lower, upper, scale, most);
          CHECK(static_cast<int64_t>(ticks.size()) <= most);
          CHECK(!ticks.empty());
          std::set<std::string> labels;
          for (size_t i = 0; i < ticks.size(); ++i) {
            CHECK(ticks[i].value >= lower);
            CHECK(ticks[i].value <= upper);
            if (i > 0) CHECK(ticks[i].value > ticks[i - 1].value);
            labels.insert(ticks[i].label);
          }
          CHECK(labels.size() == ticks.size());
        }
      }
    }
  }
}

TEST_CASE("the smallest and the largest numbers have an axis, too") {
  using limits = std::numeric_limits<double>;
  const double numbers[] = {0,
                            limits::denorm_min(),
                            1e-320,
                            limits::min() / 2,
                            limits::min(),
                            1e-300,
                            1,
                            1e-15,
                            1 + limits::epsilon(),
                            1e300,
                            1e308,
                            limits::max()};
  for (const Scale scale : {Scale::linear, Scale::logarithmic}) {
    for (const double lower : numbers) {
      for (const double upper : numbers) {
        INFO(lower << " to " << upper);
        if (can_show(scale, lower) && lower < upper) {
          const auto ticks = axis_ticks(lower, upper, scale, 6);
          CHECK(ticks.size() <= 6);
          for (const double value : values_of(ticks)) CHECK((value >= lower && value <= upper));
          const auto labels = labels_of(ticks);
          CHECK(std::set(labels.begin(), labels.end()).size() == labels.size());
        }
        if (can_show(scale, lower) && can_show(scale, upper)) {
          CHECK_NOTHROW(Projection(Axis{"", scale, {}, {}}, {lower, upper}, 0, 100, 6));
        }
      }
    }
  }
}

TEST_CASE("an axis without extent has no ticks") {
  CHECK_THROWS_AS(axis_ticks(1, 1, Scale::linear), std::invalid_argument);
  CHECK_THROWS_AS(axis_ticks(2, 1, Scale::linear), std::invalid_argument);
  CHECK_THROWS_AS(axis_ticks(0, 1, Scale::logarithmic), std::invalid_argument);
  CHECK_THROWS_AS(axis_ticks(not_a_number, 1, Scale::linear), std::invalid_argument);
  CHECK_THROWS_AS(axis_ticks(0, std::numeric_limits<double>::infinity(), Scale::linear), std::invalid_argument);
}

TEST_CASE("a projection puts values between its ends, evenly on its scale") {
  const Projection open({}, {10, 20}, 300, 100, 5);  // places fall, as on a vertical axis
  CHECK(open.lower() == Approx(9.5));                // a twentieth of the extent is room
  CHECK(open.upper() == Approx(20.5));
  CHECK(open(9.5) == Approx(300));
  CHECK(open(15) == Approx(200));
  CHECK(open(20.5) == Approx(100));
  CHECK((open.contains(9.5) && !open.contains(9.4) && open.contains(20.5) && !open.contains(20.6)));
  CHECK(open(31.5) == Approx(-100));  // outside

  const Projection fixed({.label = "", .scale = Scale::logarithmic, .lower = 1, .upper = 10000}, {3}, 0, 400, 5);
  for (const double power : {0.0, 1.0, 2.0, 3.5}) CHECK(fixed(std::pow(10, power)) == Approx(100 * power).margin(1e-9));
  CHECK(values_of(fixed.ticks()) == std::vector<double>{1, 10, 100, 1000, 10000});

  CHECK(Projection({}, {0, 100}, 0, 1, 5).lower() == 0);  // nothing negative is shown beside values that are not
  CHECK(Projection({}, {-1, 100}, 0, 1, 5).lower() < -1);
  for (const std::vector<double>& values : {std::vector<double>{}, {0.0}, {7.0}, {-7.0}}) {
    const Projection one({}, values, 0, 1, 5);
    CHECK(one.lower() < one.upper());
    for (const double value : values) CHECK(one.contains(value));
  }
  // A value that never changes has labels of a few digits beside it, not of six.
  const Projection rate({}, {0.001, 0.001}, 0, 1, 5);
  CHECK(rate.lower() == Approx(0.0009));
  CHECK(rate.upper() == Approx(0.0011));
  for (const auto& tick : rate.ticks()) CHECK(tick.label.size() <= 7);
  Axis logarithmic;
  logarithmic.scale = Scale::logarithmic;
  const Projection tiny(logarithmic, {1e-300}, 0, 1, 5);
  CHECK(tiny.lower() > 0);
  CHECK(tiny.contains(1e-300));
}

TEST_CASE("a logarithmic axis has no place for what is not positive") {
  CHECK(can_show(Scale::linear, -1));
  for (const Scale scale : {Scale::logarithmic, Scale::binary}) {
    CHECK(can_show(scale, 1e-300));
    CHECK(!can_show(scale, 0));
    CHECK(!can_show(scale, -1));
  }
  for (const Scale scale : {Scale::linear, Scale::logarithmic, Scale::binary}) {
    CHECK(!can_show(scale, not_a_number));
    CHECK(!can_show(scale, std::numeric_limits<double>::infinity()));
  }
}
