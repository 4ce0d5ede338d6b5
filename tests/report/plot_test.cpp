#include "transformer/report/plot.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "report_support.h"

using namespace transformer;
using nlohmann::json;
using test::not_a_number;
using test::parsed;

namespace {

// The horizontal place of the text `label`.
double place_of(const json& picture, const std::string& label) {
  for (const auto& entry : picture.at("labels")) {
    if (entry[3] == label) return entry[0];
  }
  FAIL("no text " << label);
  return 0;
}

}  // namespace

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

TEST_CASE("a point between gaps has a mark, which a line of its own has not") {
  const auto circles = [](const std::vector<double>& ys, bool line) {
    LinePlot plot;
    PlotSeries series{.name = "alone", .points = {}, .line = line, .markers = false};
    for (const double y : ys) {
      series.points.push_back({.x = static_cast<double>(series.points.size()), .y = y, .title = "", .label = ""});
    }
    plot.series = {series};
    const auto picture = parsed("svg", line_plot(plot));
    // What it is called is shown over it.
    const auto titles = picture.at("titles").get<std::vector<std::string>>();
    const auto marks = picture.at("names").value("circle", 0), lines = picture.at("names").value("polyline", 0);
    CHECK(std::count(titles.begin(), titles.end(), "alone") == marks + lines + 1);
    return marks;
  };
  CHECK(circles({5}, true) == 1);
  CHECK(circles({5}, false) == 0);
  CHECK(circles({5, 6}, true) == 0);
  CHECK(circles({5, not_a_number, 6, 7, not_a_number, 8, not_a_number}, true) == 2);
}

TEST_CASE("points within a line that nothing is drawn of take no room") {
  LinePlot plot;
  PlotSeries series{.name = "long", .points = {}, .line = true, .markers = false};
  for (double x = 0; x < 100; ++x) series.points.push_back({.x = x, .y = x, .title = "", .label = ""});
  plot.series = {series};
  CHECK_THAT(line_plot(plot), !Contains("class=\"point\""));
  plot.series[0].points[50].title = "the middle";
  CHECK_THAT(line_plot(plot), Contains("<g class=\"point\"><title>the middle</title><circle class=\"hit\""));
}

TEST_CASE("a line that ends in a gap does not fill its plot") {
  LinePlot plot;
  PlotSeries series{.name = "", .points = {}};
  for (const double y : {5.0, 6.0, 7.0, not_a_number, not_a_number}) {
    series.points.push_back({.x = 10.0 * static_cast<double>(series.points.size()), .y = y, .title = "", .label = ""});
  }
  plot.series = {series};
  place_of(parsed("svg", line_plot(plot)), "40");
  plot.series[0].line = false;
  CHECK(parsed("svg", line_plot(plot)).at("texts").dump().find("\"40\"") == std::string::npos);
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

TEST_CASE("what lies further apart than there are numbers for is drawn at the frame") {
  const auto point = [](double x, double y) { return PlotPoint{.x = x, .y = y, .title = "", .label = ""}; };
  for (const double huge : {1.797e308, -1.797e308}) {
    LinePlot plot;
    plot.series = {{.name = "a", .points = {point(1, -1), point(2, huge), point(3, 1), point(huge, 0)}}};
    const auto svg = line_plot(plot);
    parsed("svg", svg);
    CHECK_THAT(svg, !Contains("inf") && !Contains("nan"));
  }
}

TEST_CASE("marks of seven groups without lines differ") {
  std::set<std::string> looks;
  for (int64_t style = -1; style < 7; ++style) {
    LinePlot plot;
    plot.series = {{.name = "", .points = {{.x = 1, .y = 1, .title = "", .label = ""}}, .line = false, .style = style}};
    looks.insert(line_plot(plot));
  }
  CHECK(looks.size() == 8);
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

TEST_CASE("points that lie close together all have their labels, some at the end of a line") {
  LinePlot plot;
  PlotSeries series{.name = "", .points = {}, .line = false};
  for (int64_t i = 0; i < 8; ++i) {
    series.points.push_back(
        {.x = 5 + 0.01 * static_cast<double>(i), .y = 5, .title = "", .label = fmt::format("n{}", i)});
  }
  series.points.push_back({.x = 0, .y = 0, .title = "", .label = ""});
  series.points.push_back({.x = 10, .y = 10, .title = "", .label = ""});
  plot.series = {series};
  const auto text = line_plot(plot);
  CHECK_THAT(text, Contains("leader"));
  const json picture = parsed("svg", text);
  for (int64_t i = 0; i < 8; ++i) place_of(picture, fmt::format("n{}", i));
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
  // Marks that stand on a letter take no room beside it.
  std::string marked;
  for (int i = 0; i < 20; ++i) marked += "e\u0301";
  plot.rows.back().label = marked;
  place_of(parsed("svg", dot_plot(plot)), marked);
}
