#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "report/attention_view.h"
#include "support.h"
#include "transformer/report/attention_page.h"
#include "transformer/report/attention_picture.h"
#include "transformer/report/attention_report.h"
#include "transformer/report/text_width.h"

using namespace transformer;
using nlohmann::json;
using Kind = AttentionView::Kind;
using Strings = std::vector<std::string>;

namespace {

json checked(const std::string& kind, const std::string& text) {
  test::TemporaryDirectory directory;
  test::write_file(directory / "in", text);
  test::run_reference("attention_check.py",
                      fmt::format("{} '{}' '{}'", kind, (directory / "in").string(), (directory / "out").string()));
  return json::parse(test::read_file(directory / "out"));
}

AttentionView view_of(Kind kind, Strings queries, Strings keys, std::vector<int64_t> layers,
                      std::vector<int64_t> heads) {
  return test::view_of(kind, std::move(queries), std::move(keys), std::move(layers), std::move(heads), [](auto number) {
    const double weight = static_cast<double>(number) / 1000;
    return weight * weight * weight;
  });
}

AttentionReport report_of(AttentionView view) {
  AttentionReport report;
  report.model = "models/<en> & \"de\"";
  report.source = "a </script><script>alert(1)</script><!-- b";
  report.target = "x]]> \xFF y";
  report.views.push_back(std::move(view));
  return report;
}

bool has_class(const json& item, const std::string& name) {
  return std::find(item.at("class").begin(), item.at("class").end(), name) != item.at("class").end();
}

const Strings odd_words = {"plain",
                           "<b>&amp;\"'",
                           "القطة",
                           "שלום",
                           "日本語",
                           "é̂̃",
                           "👩‍👩‍👧",
                           "\x01\xFF",
                           "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen",
                           "▁<0xE6>",
                           "</s>"};

}  // namespace

TEST_CASE("every weight of at least 0.02 is a line, from its query to its key, as opaque as it is great") {
  const auto view = view_of(Kind::cross, {"q0", "q1", "q2"}, {"k0", "k1", "k2", "k3"}, {2, 3}, {1, 4, 10});
  const auto report = report_of(view);
  for (const size_t layer : {size_t{0}, size_t{1}}) {
    const auto picture = checked("svg", attention_lines(report, view, {.layer = layer}));
    CHECK(picture.at("title") == fmt::format("Cross-attention, layer {} of 6", layer + 2));
    std::map<std::string, double> row_of;  // of the words, by height
    for (const auto& text : picture.at("texts")) row_of[text.at("shown")] = text.at("y").get<double>() - 4.5;
    size_t expected = 0;
    for (size_t head = 0; head < 3; ++head) {
      for (size_t query = 0; query < 3; ++query) {
        for (size_t key = 0; key < 4; ++key) {
          const double weight = view.weight(layer, head, query, key);
          if (weight < 0.02) continue;
          ++expected;
          int found = 0;
          for (const auto& line : picture.at("lines")) {
            const std::vector<double> d = line.at("d");
            if (!has_class(line, std::vector<std::string>{"h0", "h3", "h1"}[head])) continue;
            CHECK(has_class(line, "dashed") == (head == 2));
            if (std::abs(d[1] - row_of.at(view.queries[query])) < 6 && std::abs(d[3] - row_of.at(view.keys[key])) < 6) {
              ++found;
              CHECK(line.at("opacity").get<double>() == Approx(weight).margin(0.0051));
              CHECK(d[0] < d[2]);
            }
          }
          CHECK(found == 1);
        }
      }
    }
    CHECK(picture.at("lines").size() == expected);
  }
}

TEST_CASE("no two heads are drawn alike") {
  std::vector<int64_t> heads;
  for (int64_t head = 1; head <= 40; ++head) heads.push_back(head);
  const auto view = view_of(Kind::cross, {"q"}, {"k"}, {1}, heads);  // of which every weight is 1
  const auto svg = attention_lines(report_of(view), view);
  std::set<std::string> lines, keys;
  for (size_t at = 0; (at = svg.find('<', at)) != std::string::npos; ++at) {
    const auto element = svg.substr(at, svg.find('>', at) - at);
    if (element.starts_with("<path class=\"line")) lines.insert(element.substr(0, element.find(" d=")));
    if (element.starts_with("<rect class=\"h")) keys.insert(element.substr(0, element.find(" x=")));
  }
  CHECK(lines.size() == heads.size());
  CHECK(keys.size() == heads.size());
}

TEST_CASE("picked words alone have lines, and squares show what each head gives") {
  const auto view = view_of(Kind::encoder, {"a", "b", "c", "d"}, {"a", "b", "c", "d"}, {5}, {1, 2});
  const auto picture = checked("svg", attention_lines(report_of(view), view, {.picked = {1, 3}}));
  for (const auto& line : picture.at("lines")) {
    const double row = (line.at("d")[1].get<double>() - 66) / 20;
    CHECK((std::floor(row) == 1 || std::floor(row) == 3));
  }
  // Boxes: the legend's two, two grey ones, two heads beside each of these, and the keys'.
  size_t expected = 2 + 2 + 4;
  for (size_t head = 0; head < 2; ++head) {
    for (size_t key = 0; key < 4; ++key) {
      const double mean = (view.weight(0, head, 1, key) + view.weight(0, head, 3, key)) / 2;
      if (mean < 0.02) continue;
      ++expected;
      bool found = false;
      for (const auto& box : picture.at("boxes")) {
        found = found || (has_class(box, head == 0 ? "h0" : "h1") &&
                          std::abs(box.at("y").get<double>() - (66 + 20.0 * static_cast<double>(key) + 3)) < 0.2 &&
                          std::abs(box.at("opacity").get<double>() - mean) < 0.0051);
      }
      CHECK(found);
    }
  }
  CHECK(picture.at("boxes").size() == expected);
}

TEST_CASE("a heat map has a cell for every weight that can be seen") {
  const auto view = view_of(Kind::decoder, {"a", "b"}, {"x", "y", "z"}, {1, 2}, {3, 4});
  const auto picture = checked("svg", attention_heat_maps(view));
  size_t expected = 0;
  double sum = 0, shown = 0;
  for (const float weight : view.weights) {
    if (weight < 0.005) continue;
    ++expected;
    sum += weight;
  }
  size_t found = 0;
  for (const auto& box : picture.at("boxes")) {
    if (!has_class(box, "heat")) continue;
    ++found;
    shown += box.at("opacity").get<double>();
  }
  CHECK(found == expected);
  CHECK(shown == Approx(sum).margin(0.005 * static_cast<double>(expected)));
  Strings captions;
  for (const auto& text : picture.at("texts")) {
    if (has_class(text, "soft")) captions.push_back(text.at("shown"));
  }
  CHECK(captions == Strings{"layer 1, head 3", "layer 1, head 4", "layer 2, head 3", "layer 2, head 4"});
  // Beside each other, however narrow their maps are.
  std::vector<double> places;
  for (const auto& text : picture.at("texts")) {
    if (text.at("shown").get<std::string>().starts_with("layer 1")) places.push_back(text.at("x"));
  }
  REQUIRE(places.size() == 2);
  CHECK(places[1] - places[0] > display_width("layer 1, head 3", 11));
  const auto one = view_of(Kind::decoder, {"a", "b"}, {"x", "y", "z"}, {2}, {4});
  CHECK(checked("svg", attention_heat_maps(one)).at("title") == "Decoder self-attention, layer 2 of 6");
}

TEST_CASE("pictures keep their layout with words of any script, and escape what they hold") {
  const auto view = view_of(Kind::encoder, odd_words, odd_words, {1}, {1, 2});
  for (const auto& svg : {attention_lines(report_of(view), view),
                          attention_lines(report_of(view), view, {.picked = {2}}), attention_heat_maps(view)}) {
    const auto picture = checked("svg", svg);
    std::map<std::string, json> by_word;
    for (const auto& text : picture.at("texts")) by_word[text.at("whole")] = text;
    CHECK(by_word.count("<b>&amp;\"'") == 1);
    CHECK(by_word.count("\u00ef\u00bf") == 0);
    CHECK(by_word.count("\uFFFD\uFFFD") == 1);  // a control character and a broken byte
    for (const std::string word : {"القطة", "שלום"}) CHECK(by_word.at(word).at("direction") == "rtl");
    for (const std::string word : {"plain", "日本語", "👩‍👩‍👧"})
      CHECK(by_word.at(word).at("direction") == "ltr");
    const auto& shortened = by_word.at(odd_words[8]);
    CHECK(shortened.at("shown").get<std::string>().ends_with("…"));
    CHECK(shortened.at("shown").get<std::string>().size() < odd_words[8].size());
  }
  // In the left column words end at one edge: the end of a Latin word and the start of an Arabic one.
  const auto picture = checked("svg", attention_lines(report_of(view), view));
  for (const auto& text : picture.at("texts")) {
    if (text.at("whole") != "القطة" && text.at("whole") != "plain") continue;
    const bool left = text.at("x").get<double>() < picture.at("width").get<double>() / 2;
    CHECK(has_class(text, "end") == (left == (text.at("whole") == "plain")));
  }
  CHECK(attention_lines(report_of(view), view) == attention_lines(report_of(view), view));
}

TEST_CASE("widths follow Unicode's tables") {
  const Strings texts = {
      "",      "a",    "hello", "日本語",  "ｆｕｌｌ", "한국어", "é",        "e\u0301", "z\u0300\u0301\u0302",
      "القطة", "שלום", "नमस्ते",  "12 שלום", "(ا",       "«x»",    "a\u200Db", "Ж",       "ﷺ"};
  const auto reference = checked("text", json(texts).dump());
  for (size_t i = 0; i < texts.size(); ++i) {
    INFO(texts[i]);
    const double columns = reference[i].at("columns").get<double>();
    // A column is between a narrow letter's third of an em and a capital M.
    CHECK(display_width(texts[i], 10) <= columns * 9.4);
    CHECK(display_width(texts[i], 10) >= columns * 3.3);
    CHECK(is_right_to_left(texts[i]) == reference[i].at("right").get<bool>());
  }
  CHECK(display_width("e\u0301", 10) == display_width("e", 10));
  CHECK(display_width("日本", 10) == Approx(21));
  CHECK(display_width("👩‍👩‍👧", 10) == Approx(display_width("👩", 10)));
  CHECK(display_width("🇩🇪", 10) == Approx(display_width("👩", 10)));
  CHECK(display_width("👍🏽", 10) == Approx(display_width("👍", 10)));

  for (const auto& text : {std::string("Donaudampfschifffahrt"), std::string("日本語を話す"),
                           std::string("👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧"),
                           std::string("e\u0301e\u0301e\u0301e\u0301"), std::string("\xFF\xFE\x80")}) {
    for (double width = 0; width < 200; width += 3) {
      const auto fitting = fitting_text(text, width, 13);
      if (fitting == text) continue;
      REQUIRE(fitting.ends_with("…"));
      CHECK((display_width(fitting, 13) <= width || fitting == "…"));
      const auto kept = fitting.substr(0, fitting.size() - 3);
      CHECK(text.starts_with(kept));
      // Never within a character: the rest begins with none that would join the one before.
      CHECK(display_width(kept, 13) + display_width(text.substr(kept.size()), 13) == Approx(display_width(text, 13)));
    }
  }
}

TEST_CASE("JSON holds the report") {
  auto report = report_of(view_of(Kind::cross, {"a", "\"b\\"}, odd_words, {2, 6}, {1, 3, 4}));
  report.views.push_back(view_of(Kind::encoder, odd_words, odd_words, {1}, {2}));
  report.words = true;
  report.tree = Tree{"TOP", "", {{"XX", "a"}}};
  const auto text = attention_json(report);
  CHECK(text.ends_with("}\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  const auto parsed = json::parse(text);
  CHECK(parsed.at("format") == 1);
  CHECK(parsed.at("unit") == "word");
  CHECK(parsed.at("source") == report.source);
  CHECK(parsed.at("tree") == "(TOP (XX a))");
  CHECK(parsed.at("attention").size() == 2);
  const auto& cross = parsed.at("attention").at("cross");
  CHECK(cross.at("shape") == json({2, 3, 2, odd_words.size()}));
  CHECK(cross.at("layers") == json({2, 6}));
  CHECK(cross.at("heads") == json({1, 3, 4}));
  CHECK(cross.at("queries") == json({"a", "\"b\\"}));
  for (size_t layer = 0; layer < 2; ++layer) {
    for (size_t head = 0; head < 3; ++head) {
      for (size_t query = 0; query < 2; ++query) {
        const auto& row = cross.at("weights").at(layer).at(head).at(query);
        REQUIRE(row.size() == odd_words.size());
        for (size_t key = 0; key < row.size(); ++key) {
          CHECK(row[key].get<double>() == Approx(report.views[0].weight(layer, head, query, key)).margin(6e-7));
        }
      }
    }
  }
}

TEST_CASE("the page holds the same, loads nothing, and no word ends its script") {
  auto report = report_of(
      view_of(Kind::encoder, {"</script>", "<!-- x", "it's"}, {"</script>", "<!-- x", "it's"}, {5, 6}, {1, 2}));
  report.views.push_back(view_of(Kind::cross, {"a", "b"}, odd_words, {1, 2}, {1, 2}));
  report.tree = Tree{"TOP", "", {{"S", "", {{"<NP>", "", {{"XX", "u"}}}, {"XX", "v"}}}}};
  report.tree_word = {0, 1, -1};
  const auto page = checked("html", attention_html(report, {.picked = 2}));
  CHECK(page.at("metas").at("attention-format") == "1");
  const auto& data = page.at("data");
  CHECK(data.at("picked") == 2);
  REQUIRE(data.at("views").size() == 2);
  CHECK(data.at("views")[0].at("queries") == json({"</script>", "<!-- x", "it's"}));
  CHECK(data.at("views")[0].at("start") == 5);
  CHECK(data.at("views")[1].at("start") == 2);
  for (size_t v = 0; v < 2; ++v) {
    const auto& view = report.views[v];
    for (size_t query = 0; query < view.queries.size(); ++query) {
      for (size_t key = 0; key < view.keys.size(); ++key) {
        CHECK(data.at("views")[v].at("weights")[1][0][query][key].get<double>() ==
              Approx(view.weight(1, 0, query, key)).margin(1e-5));
      }
    }
  }
  REQUIRE(data.at("tree").size() == 2);
  CHECK(data.at("tree")[1].at("label") == "<NP>");
  bool found = false;
  for (const auto& text : page.at("texts")) found = found || text == report.source;
  CHECK(found);
  CHECK(std::count(page.at("names").begin(), page.at("names").end(), "script") == 2);
}

TEST_CASE("a tree stands beside its words") {
  AttentionReport report;
  CHECK(tree_layout(report).empty());
  // (S (NP the dog) (VP (VBZ barks)) .), "barks" of two pieces.
  report.tree = Tree{
      "TOP", "", {{"S", "", {{"NP", "", {{"XX", "the"}, {"XX", "dog"}}}, {"VP", "", {{"XX", "barks"}}}, {"XX", "."}}}}};
  report.tree_word = {0, 1, 2, 2, 3, -1};
  const auto nodes = tree_layout(report);
  REQUIRE(nodes.size() == 3);
  CHECK(nodes[0].label == "S");
  CHECK(nodes[0].level == 2);
  CHECK(nodes[0].parent == -1);
  CHECK(nodes[0].first == 0.5);
  CHECK(nodes[0].last == 4);
  CHECK(nodes[0].row == 2.25);
  CHECK(nodes[0].leaf_rows == std::vector<double>{4});
  CHECK(nodes[1].label == "NP");
  CHECK(nodes[1].level == 1);
  CHECK(nodes[1].row == 0.5);
  CHECK(nodes[1].leaf_rows == std::vector<double>{0, 1});
  CHECK(nodes[2].label == "VP");
  CHECK(nodes[2].parent == 0);
  CHECK(nodes[2].row == 2.5);

  for (const Kind kind : {Kind::encoder, Kind::cross, Kind::decoder}) {
    const Strings source = {"the", "dog", "bark", "s", ".", "</s>"}, target = {"(S", "(NP", "</s>"};
    report.views = {
        view_of(kind, kind == Kind::encoder ? source : target, kind == Kind::decoder ? target : source, {1}, {1})};
    const auto picture = checked("svg", attention_lines(report, report.views[0]));
    int labels = 0;
    double words = 0, np = 0;
    for (const auto& text : picture.at("texts")) {
      if (text.at("shown") == "NP") ++labels, np = text.at("x");
      if (text.at("shown") == "dog") words = text.at("x");
    }
    CHECK(labels == (kind == Kind::decoder ? 0 : 1));
    if (kind == Kind::cross) CHECK(np > words);  // behind the source's words
  }
}
