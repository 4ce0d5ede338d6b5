#include "transformer/report/sweep_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "report_support.h"
#include "transformer/base/unicode.h"

using namespace transformer;
using nlohmann::json;
using test::not_a_number;
using test::parsed;
using State = SweepRun::State;

namespace {

const std::string signature = "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:transformer-0.1.0";

SweepRun finished(uint64_t seed, double perplexity, std::optional<double> bleu = std::nullopt) {
  SweepRun run;
  run.seed = seed;
  run.state = State::finished;
  run.perplexity = perplexity;
  run.bleu = bleu;
  if (bleu) run.bleu_signature = signature;
  run.parameters = 65'000'000;
  run.seconds = 5400;
  run.flops = 3.3e18;
  for (int64_t step = 100; step <= 1000; step += 100) {
    run.curve.push_back({step, step * 1000, perplexity + 1000.0 / static_cast<double>(step), bleu});
  }
  return run;
}

SweepRun in_state(State state, const std::string& reason = "") {
  SweepRun run;
  run.seed = 7;
  run.state = state;
  run.reason = reason;
  return run;
}

// A base row of three seeds, whose perplexities 4.9, 5.0, 5.1 have s = 0.1 and whose BLEUs 25, 26, 27 have s = 1.
SweepReport example() {
  SweepReport report;
  report.title = "A sweep";
  report.base_row = "base";
  report.rows.push_back({"base",
                         "",
                         "",
                         PublishedFigures{4.92, 25.8, 65},
                         {finished(1, 4.9, 25), finished(2, 5.0, 26), finished(3, 5.1, 27)}});
  report.rows.push_back({"A-h1", "A", "heads 1", PublishedFigures{5.29, 24.9, {}}, {finished(1, 5.6, 24.5)}});
  report.rows.push_back({"A-h4", "A", "heads 4", PublishedFigures{5.00, 25.5, {}}, {finished(1, 5.2, 25.5)}});
  return report;
}

// The cells of Markdown's first table, as GitHub reads them: | behind a backslash is text.
std::vector<std::vector<std::string>> markdown_cells(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|') {
      if (!rows.empty()) break;
      continue;
    }
    rows.emplace_back();
    std::string cell;
    for (size_t i = 1; i < line.size(); ++i) {
      if (line[i] == '\\' && i + 1 < line.size()) {
        cell += line[++i];
      } else if (line[i] == '|') {
        const size_t from = cell.find_first_not_of(' ');
        rows.back().push_back(from == std::string::npos ? ""
                                                        : cell.substr(from, cell.find_last_not_of(' ') - from + 1));
        cell.clear();
      } else {
        cell += line[i];
      }
    }
    CHECK(cell.empty());  // a row ends with |
  }
  return rows;
}

// The row of the page's first table, or of Markdown's, whose name is `name`, by its heads.
std::map<std::string, std::string> row_of(const std::vector<std::vector<std::string>>& cells, const std::string& name) {
  for (const auto& row : cells) {
    std::map<std::string, std::string> found;
    for (size_t i = 0; i < row.size(); ++i) found[cells[0].at(i)] = row[i];
    if (found["row"] == name || found["row"] == "**" + name + "**") return found;
  }
  FAIL("no row " << name);
  return {};
}

std::string text_of(const json& page) {
  std::string text;
  for (const auto& part : page.at("texts")) text += part.get<std::string>() + "\n";
  return text;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("Markdown's table holds the paper's figures beside ours") {
  const std::string text = sweep_markdown(example());
  CHECK(has(text, "<!-- sweep report, format 1 -->"));
  CHECK(has(text, signature.substr(0, 4) + "\\|"));  // the signature's bars are text
  const auto cells = markdown_cells(text);
  REQUIRE(cells.size() == 5);
  for (const auto& row : cells) CHECK(row.size() == cells[0].size());
  for (const auto& cell : cells[1]) CHECK((cell == "---" || cell == "---:"));
  auto base = row_of(cells, "base");
  CHECK(base["PPL paper"] == "4.92");
  CHECK(base["PPL"] == "5.00 ± 0.10");
  CHECK(base["Δ PPL"] == "base");
  CHECK(base["BLEU"] == "26.00 ± 1.00");
  CHECK(base["params paper"] == "65 M");
  CHECK(base["params"] == "65.0 M");
  CHECK(base["time"] == "90 min");
  CHECK(base["FLOPs"] == "3.3·10¹⁸");
  CHECK(base["runs"] == "3 finished");
  auto one = row_of(cells, "A-h1");
  CHECK(one["changed"] == "heads 1");
  CHECK(one["Δ PPL"] == "**+0.60**");  // beyond 0.231
  CHECK(one["Δ BLEU"] == "≈ −1.50");   // within 2.31
  CHECK(one["params paper"] == "");
  CHECK(one["runs"] == "finished");
  CHECK(row_of(cells, "A-h4")["Δ PPL"] == "≈ +0.20");
  CHECK(has(text, "Worse: A-h1 (+0.60)."));
  CHECK(has(text, "18 of 100 cases"));
  CHECK(has(text, "rank correlation 1.00"));
}

TEST_CASE("the page holds the same table and plots of all kinds") {
  const SweepReport report = example();
  const json page = parsed("html", sweep_html(report));
  CHECK(page.at("metas").at("sweep-report-format") == "1");
  const auto cells = page.at("tables")[0].get<std::vector<std::vector<std::string>>>();
  REQUIRE(cells.size() == 4);
  CHECK(row_of(cells, "base")["PPL"] == "5.00 ± 0.10");
  CHECK(row_of(cells, "A-h1")["Δ PPL"] == "+0.60");
  CHECK(page.at("tables")[1].size() == 1 + 5);  // every run
  std::vector<std::string> titles;
  for (const auto& picture : page.at("pictures")) {
    titles.push_back(picture.at("texts")[0]);
    CHECK(picture.at("inside").get<bool>());
  }
  CHECK(titles == std::vector<std::string>{"Perplexity: difference to the base row", "BLEU: difference to the base row",
                                           "perplexity, rows A", "BLEU, rows A", "perplexity: ours against the paper's",
                                           "BLEU: ours against the paper's"});
  // Three curves of the base row and one of each other, with a title for each piece, each point and each entry.
  CHECK(page.at("pictures")[2].at("names").at("polyline") == 5);
  CHECK(page.at("pictures")[2].at("titles").size() == 5 + 5 * 10 + 3);
  CHECK(page.at("pictures")[2].at("titles")[0] == "base");
  CHECK(
      has(page.at("pictures")[2].at("titles").dump(), "A-h1, seed 1\\nstep 1,000, 1M target tokens\\nperplexity 6.60"));
  // |4.92 - 5.29|, the paper's difference, is to be seen beside ours.
  CHECK(has(page.at("pictures")[0].at("titles").dump(), "paper: +0.37"));
}

TEST_CASE("what no row has takes no room: the paper's columns, and pictures without a value") {
  SweepReport report = example();
  for (auto& row : report.rows) row.paper.reset();
  report.rows[2].paper = PublishedFigures{{}, 25.5, {}};
  const auto heads_of = [](const SweepReport& shown) { return markdown_cells(sweep_markdown(shown)).at(0); };
  const auto among = [](const auto& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  CHECK(!among(heads_of(report), "PPL paper"));
  CHECK(among(heads_of(report), "BLEU paper"));  // of a single row
  CHECK(!among(heads_of(report), "params paper"));
  CHECK(heads_of(report).size() == heads_of(example()).size() - 2);
  auto third = row_of(markdown_cells(sweep_markdown(report)), "A-h4");
  CHECK(third["BLEU paper"] == "25.5");
  CHECK(third["Δ PPL"] == "≈ +0.20");
  CHECK(third["runs"] == "finished");

  // The base row alone has BLEU.
  report.rows[2].paper.reset();
  for (size_t row = 1; row < 3; ++row) report.rows[row].runs = {finished(1, 5.6)};
  const json page = parsed("html", sweep_html(report));
  std::vector<std::string> titles;
  for (const auto& picture : page.at("pictures")) titles.push_back(picture.at("texts")[0]);
  CHECK(titles == std::vector<std::string>{"Perplexity: difference to the base row", "perplexity, rows A"});
}

TEST_CASE("names that mean something to HTML or Markdown are shown as they are") {
  SweepReport report = example();
  const std::string name = "<b>&\"x\"</b> | `a` *b* _c_ [d](e) 'f' \\ ~g~";
  report.title = name;
  report.description = "<script>alert(1)</script>\nsecond line\n\n1. no list\n\n- " + name;
  report.base_config = "model:\n  name: </pre><i>\n";
  report.rows[0].name = report.base_row = name;
  report.rows[1].group = report.rows[1].changes = name;
  report.rows[1].runs.push_back(in_state(State::failed, name + "\nsecond line"));
  report.rows[2].runs[0].bleu_signature = name;

  const json page = parsed("html", sweep_html(report));
  const std::string text = text_of(page);
  CHECK(has(text, "<script>alert(1)</script>"));
  CHECK(has(text, "</pre><i>"));
  const auto names = page.at("names").get<std::vector<std::string>>();
  for (const char* tag : {"b", "i"}) CHECK(std::count(names.begin(), names.end(), tag) == 0);
  CHECK(std::count(names.begin(), names.end(), "script") == 1);
  const auto cells = page.at("tables")[0].get<std::vector<std::vector<std::string>>>();
  CHECK(row_of(cells, name)["Δ PPL"] == "base");
  CHECK(row_of(cells, "A-h1")["changed"] == name);
  CHECK(has(row_of(cells, "A-h1")["runs"], name + "\nsecond line"));

  const std::string markdown = sweep_markdown(report);
  CHECK(!has(markdown, "<b>"));
  CHECK(!has(markdown, "<script>"));
  CHECK(has(markdown, "\n1\\. no list\n"));
  CHECK(has(markdown, "\n\\- &lt;b&gt;"));
  CHECK(has(markdown, "\\_c\\_"));
  CHECK(has(markdown, "\n      name: </pre><i>\n"));  // indented, as code
  const auto rows = markdown_cells(markdown);
  REQUIRE(rows.size() == 5);
  for (const auto& row : rows) CHECK(row.size() == rows[0].size());
  CHECK(row_of(rows, "A-h1")["changed"] == "&lt;b&gt;&amp;\"x\"&lt;/b&gt; | `a` *b* _c_ [d](e) 'f' \\ ~g~");
}

TEST_CASE("what a page cannot show is the replacement character in Markdown") {
  auto report = example();
  report.title = "a\x1b[31mb\xff c\xc2\x9b d\x7f ü";
  report.rows[1].runs = {in_state(State::failed, "log \x1b[2J\xc3")};
  const auto text = sweep_markdown(report);
  CHECK_THAT(text, Contains("# a�\\[31mb� c� d� ü") && Contains("log �\\[2J�"));
  CHECK(find_broken_utf8(text) == std::string::npos);
}

TEST_CASE("rows whose time was up, and averages of other numbers of checkpoints, are named") {
  auto report = example();
  CHECK_THAT(sweep_markdown(report), !Contains("Time ended") && !Contains("averages of checkpoints"));
  for (auto& row : report.rows) row.averaged_checkpoints = {8};
  for (auto& run : report.rows[1].runs) run.ended_by = "steps";
  CHECK_THAT(sweep_markdown(report), !Contains("Time ended") && !Contains("averages of checkpoints"));
  report.rows[1].averaged_checkpoints = {1, 8};
  report.rows[2].averaged_checkpoints = {};  // from before it was told
  report.rows[2].runs[0].ended_by = "time";
  report.rows[2].runs[0].steps = 37;
  for (const auto& text : {sweep_markdown(report), sweep_html(report)}) {
    CHECK_THAT(text, Contains(" (8): A-h1 (1, 8).") &&
                         Contains("after as many steps as the machine took until then: A-h4 (37)."));
  }
}

TEST_CASE("an underscore within a word stays as it is in Markdown") {
  SweepReport report = example();
  report.rows[1].changes = "d_model 512, _x";
  CHECK(has(sweep_markdown(report), "| d_model 512, \\_x |"));
}

TEST_CASE("rows that wait, run or failed are shown as such, and only finished runs enter means") {
  SweepReport report = example();
  SweepRun running = in_state(State::running);
  running.perplexity = 99;
  running.curve = {{1200, 0, 6.5, {}}};
  report.rows.push_back({"waits", "B", "", {}, {in_state(State::waiting)}});
  report.rows.push_back({"no runs", "B", "", {}, {}});
  report.rows.push_back({"runs", "B", "", {}, {running}});
  report.rows.push_back({"failed", "B", "", {}, {in_state(State::failed, "out of memory; ask for less")}});
  report.rows.push_back({"mixed", "B", "", {}, {finished(1, 5.5), running, in_state(State::failed, "disk full")}});
  for (const bool html : {false, true}) {
    INFO(html);
    const auto cells =
        html ? parsed("html", sweep_html(report)).at("tables")[0].get<std::vector<std::vector<std::string>>>()
             : markdown_cells(sweep_markdown(report));
    CHECK(row_of(cells, "waits")["runs"] == "waiting");
    CHECK(row_of(cells, "waits")["PPL"] == "");
    CHECK(row_of(cells, "no runs")["runs"] == "waiting");
    CHECK(row_of(cells, "runs")["runs"] == "running; step 1,200, perplexity 6.50");
    CHECK(row_of(cells, "runs")["PPL"] == "");
    CHECK(row_of(cells, "failed")["runs"] == "failed; out of memory; ask for less");
    CHECK(row_of(cells, "failed")["Δ PPL"] == "");
    CHECK(row_of(cells, "mixed")["PPL"] == "5.50");
    CHECK(has(row_of(cells, "mixed")["runs"], "1 failed, 1 finished, 1 running"));
    CHECK(has(row_of(cells, "mixed")["runs"], "disk full"));
  }
  CHECK(has(sweep_markdown(report), "8 rows, 12 runs: 6 finished, 2 running, 2 waiting, 2 failed."));
}

TEST_CASE("reports without a finished run, a base row or any row") {
  for (const bool with_rows : {false, true}) {
    SweepReport report;
    if (with_rows) {
      report = example();
      for (auto& row : report.rows) {
        for (auto& run : row.runs) run = in_state(State::waiting);
      }
    }
    const json page = parsed("html", sweep_html(report));
    CHECK(page.at("pictures").empty());
    CHECK(page.at("tables").size() == (with_rows ? 2 : 0));
    CHECK(has(sweep_markdown(report), with_rows ? "The base row has no PPL yet." : "0 rows, 0 runs."));
  }
  SweepReport report = example();
  report.base_row = "absent";
  CHECK(has(sweep_markdown(report), "There is no row 'absent'"));
  CHECK(row_of(markdown_cells(sweep_markdown(report)), "A-h1")["Δ PPL"] == "");
  CHECK(has(text_of(parsed("html", sweep_html(report))), "There is no row 'absent'"));
}

TEST_CASE("with one seed of the base row it is unknown what is chance") {
  SweepReport report = example();
  report.rows[0].runs.resize(1);
  CHECK(row_of(markdown_cells(sweep_markdown(report)), "A-h1")["Δ PPL"] == "+0.70 ?");
  CHECK(has(sweep_markdown(report), "it is unknown which differences are chance"));
  CHECK(!has(sweep_markdown(report), "beyond the seeds' spread:"));
  CHECK(has(text_of(parsed("html", sweep_html(report))), "ours, spread unknown"));
}

TEST_CASE("values that are not finite are named and kept out of means and plots") {
  SweepReport report = example();
  report.rows[1].runs[0].perplexity = not_a_number;
  report.rows[1].runs[0].bleu = INFINITY;
  for (auto& point : report.rows[1].runs[0].curve) point.perplexity = not_a_number;
  report.rows[0].runs[2].perplexity = INFINITY;
  report.rows[0].runs[2].seconds = not_a_number;
  const json page = parsed("html", sweep_html(report));
  const auto cells = page.at("tables")[0].get<std::vector<std::vector<std::string>>>();
  CHECK(row_of(cells, "A-h1")["PPL"] == "not finite");
  CHECK(row_of(cells, "A-h1")["Δ PPL"] == "");
  CHECK(row_of(cells, "base")["PPL"] == "4.95 ± 0.07");
  CHECK(has(sweep_markdown(report), "| not finite |"));
}

TEST_CASE("perplexity of other word pieces, and figures of another text, are not compared") {
  auto report = example();
  report.rows[1].vocabulary = "larger";
  report.rows[2].validation = "another";
  const auto cells = markdown_cells(sweep_markdown(report));
  CHECK(row_of(cells, "A-h1")["Δ PPL"] == "");
  CHECK(row_of(cells, "A-h1")["Δ BLEU"] == "≈ −1.50");
  CHECK(row_of(cells, "A-h4")["Δ PPL"] == "");
  CHECK(row_of(cells, "A-h4")["Δ BLEU"] == "");
  for (const auto& text : {sweep_markdown(report), sweep_html(report)}) {
    CHECK(has(text, "other pieces than the base row, with which theirs cannot be compared: A-h1."));
    CHECK(has(text, "another text than the base row, with which they cannot be compared: A-h4."));
    CHECK_FALSE(has(text, "beyond the seeds' spread: A-h1"));
  }
  // What has no figures yet is not named.
  report.rows[1].runs = {in_state(State::waiting)};
  CHECK_FALSE(has(sweep_markdown(report), "other pieces than the base row"));
}

TEST_CASE("BLEU of one kind is not compared with BLEU of another") {
  SweepReport report = example();
  report.rows[1].runs[0].bleu_signature = "tokenized BLEU";
  const std::string text = sweep_markdown(report);
  CHECK(row_of(markdown_cells(text), "A-h1")["Δ BLEU"] == "");
  CHECK(row_of(markdown_cells(text), "A-h4")["Δ BLEU"] == "≈ −0.50");
  CHECK(has(text, "tokenized BLEU: A-h1"));
}

TEST_CASE("a long curve is drawn with fewer points, first and last among them") {
  SweepReport report = example();
  auto& curve = report.rows[1].runs[0].curve;
  curve.clear();
  for (int64_t step = 1; step <= 5000; ++step) curve.push_back({step, 0, 5.0 + 1.0 / static_cast<double>(step), {}});
  const json page = parsed("html", sweep_html(report));
  const std::string titles = page.at("pictures")[2].at("titles").dump();
  CHECK(page.at("pictures")[2].at("titles").size() == 5 + (4 * 10 + 120) + 3);
  CHECK(has(titles, "A-h1, seed 1\\nstep 1\\n"));
  CHECK(has(titles, "A-h1, seed 1\\nstep 5,000\\n"));
}
