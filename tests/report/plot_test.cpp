#include "transformer/report/plot.h"

#include <cmath>
#include <limits>
#include <set>

#include "report_support.h"

using namespace transformer;
using nlohmann::json;
using test::parsed;

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

// The horizontal place of the text `label`.
double place_of(const json& picture, const std::string& label) {
  for (const auto& entry : picture.at("labels")) {
    if (entry[3] == label) return entry[0];
  }
  FAIL("no text " << label);
  return 0;
}

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

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

TEST_CASE("an axis without extent has no ticks") {
  CHECK_THROWS_AS(axis_ticks(1, 1, Scale::linear), std::invalid_argument);
  CHECK_THROWS_AS(axis_ticks(2, 1, Scale::linear), std::invalid_argument);
  CHECK_THROWS_AS(axis_ticks(0, 1, Scale::logarithmic), std::invalid_argument);
  CHECK_THROWS_AS(axis_ticks(not_a_number, 1, Scale::linear), std::invalid_argument);
  CHECK_THROWS_AS(axis_ticks(0, std::numeric_limits<double>::infinity(), Scale::linear), std::invalid_argument);
}

TEST_CASE("numbers are short") {
  CHECK(short_number(0) == "0");
  CHECK(short_number(-0.0) == "0");
  CHECK(short_number(8192) == "8192");
  CHECK(short_number(16384) == "16.384k");
  CHECK(short_number(16384, 3) == "16.4k");
  CHECK(short_number(-2.5e6) == "-2.5M");
  CHECK(short_number(3e-7) == "3e-07");
  CHECK(short_number(not_a_number) == "nan");
  CHECK(grouped_number(0) == "0");
  CHECK(grouped_number(999) == "999");
  CHECK(grouped_number(-1000) == "-1,000");
  CHECK(grouped_number(-100) == "-100");
  CHECK(grouped_number(1234567) == "1,234,567");
}

TEST_CASE("markup is escaped and text that is no UTF-8 made so") {
  CHECK(escape_markup("a <b> & \"c\" 'd'") == "a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  CHECK(escape_markup("Größe 日本 😀") == "Größe 日本 😀");
  CHECK(escape_markup("a\xff\xc3") == "a\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(escape_markup("\xed\xa0\x80x") == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx");  // a surrogate
  CHECK(escape_markup(std::string("a\0\x1b\n\t", 5)) == "a\xef\xbf\xbd\xef\xbf\xbd\n\t");
}

TEST_CASE("a line plot is well-formed, draws what can be drawn and breaks lines where it cannot") {
  LinePlot plot;
  plot.title = "a < b & c";
  plot.x = {.label = "x \x01", .scale = Scale::linear, .lower = {}, .upper = {}};
  plot.y = {.label = "y", .scale = Scale::logarithmic, .lower = {}, .upper = {}};
  PlotSeries series{.name = "<one>", .points = {}, .style = 1};
  for (const double y : {10.0, 8.0, not_a_number, 7.0, 0.0, 6.0, 5.0}) {
    series.points.push_back({.x = static_cast<double>(series.points.size()), .y = y, .title = "t & t", .label = ""});
  }
  plot.series = {series, series};
  for (const SvgUse use : {SvgUse::embedded, SvgUse::standalone}) {
    const json picture = parsed("svg", line_plot(plot, use));
    CHECK(picture.at("inside").get<bool>());
    // Two series of three pieces each.
    CHECK(picture.at("names").at("polyline") == 6);
    // Five points a series, marked and to hover over; the title of each piece and of the one legend entry.
    CHECK(picture.at("titles").size() == 2 * (5 + 3) + 1);
    CHECK(picture.at("titles")[0] == "<one>");
    CHECK(picture.at("texts")[0] == "a < b & c");
    CHECK(picture.at("names").count("style") == (use == SvgUse::standalone ? 1 : 0));
  }
  CHECK(line_plot(plot) == line_plot(plot));
}

TEST_CASE("plots without values say so") {
  CHECK(parsed("svg", line_plot({})).at("texts").dump().find("no values yet") != std::string::npos);
  CHECK(parsed("svg", dot_plot({})).at("texts").dump().find("no values yet") != std::string::npos);
  LinePlot plot;
  plot.y.scale = Scale::logarithmic;
  plot.series = {{.name = "a", .points = {{.x = 1, .y = not_a_number, .title = "", .label = ""}}}};
  CHECK(parsed("svg", line_plot(plot)).at("texts").dump().find("no values yet") != std::string::npos);
}

TEST_CASE("one point, equal points and huge values can be drawn") {
  for (const Scale scale : {Scale::linear, Scale::logarithmic, Scale::binary}) {
    for (const double value : {1e-12, 1.0, 5.0, 1e15}) {
      LinePlot plot;
      plot.x.scale = plot.y.scale = scale;
      plot.series = {{.name = "a", .points = {{.x = value, .y = value, .title = "p", .label = "p"}}}};
      INFO(value);
      CHECK(parsed("svg", line_plot(plot)).at("names").at("circle") >= 2);
    }
  }
}

TEST_CASE("labels of points do not overlap") {
  LinePlot plot;
  PlotSeries series{.name = "", .points = {}, .line = false};
  for (int64_t i = 0; i < 40; ++i) {
    series.points.push_back({.x = std::cos(1.0 * i), .y = std::sin(2.0 * i), .title = "", .label = "name"});
  }
  plot.series = {series};
  const json picture = parsed("svg", line_plot(plot));
  std::vector<std::pair<double, double>> places;
  for (const auto& label : picture.at("labels")) {
    if (label[3] == "name") places.emplace_back(label[0], label[1]);
  }
  REQUIRE(places.size() > 5);
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool apart =
          std::abs(places[i].first - places[j].first) > 25 || std::abs(places[i].second - places[j].second) > 10;
      CHECK(apart);
    }
  }
}

TEST_CASE("a dot plot has a row for every label and an arrow for what lies far out") {
  DotPlot plot{.title = "d",
               .x_label = "x",
               .rows = {},
               .filled_name = "ours",
               .hollow_name = "",
               .reference_name = "",
               .band_name = "band"};
  for (const double value : {0.1, -0.2, 0.3, 900.0}) {
    plot.rows.push_back({.label = fmt::format("row {}", value),
                         .group = value > 0.2 ? "b" : "a",
                         .value = value,
                         .error = 0.05,
                         .band = 0.15,
                         .reference = {},
                         .note = "",
                         .title = "t"});
  }
  plot.rows.push_back(
      {.label = std::string(200, 'w'), .group = "b", .value = {}, .reference = {}, .note = "failed", .title = "t"});
  const json picture = parsed("svg", dot_plot(plot));
  CHECK(picture.at("inside").get<bool>());
  const std::string texts = picture.at("texts").dump(-1, ' ', false);
  for (const char* text : {"row 0.1", "+0.1", "-0.2", "+900", "failed", "www", "…", "band", "ours"}) {
    INFO(text << " in " << texts);
    CHECK(texts.find(text) != std::string::npos);
  }
  CHECK(texts.find(std::string(100, 'w')) == std::string::npos);
  // Ticks are for the near values: 0.2 is far from 0, 900 is no tick.
  CHECK(place_of(picture, "0.2") - place_of(picture, "0") > 20);
  CHECK(picture.at("names").at("polygon") == 1);
}
