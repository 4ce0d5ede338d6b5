#include "transformer/report/sweep_figures.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support.h"

using namespace transformer;
using State = SweepRun::State;
using Verdict = RowDifference::Verdict;
using Strings = std::vector<std::string>;

namespace {

SweepRun run(State state, std::optional<double> perplexity, std::optional<double> bleu = {}, double seconds = 0,
             double flops = 0) {
  SweepRun made;
  made.state = state;
  made.perplexity = perplexity;
  made.bleu = bleu;
  if (bleu) made.bleu_signature = "one";
  made.seconds = seconds;
  made.flops = flops;
  return made;
}

SweepRow row(const std::string& name, std::vector<SweepRun> runs, std::optional<PublishedFigures> paper = {}) {
  SweepRow made;
  made.name = name;
  made.runs = std::move(runs);
  made.paper = paper;
  return made;
}

// The base row's perplexities 4, 6, 8 and BLEUs 20, 23, 29 have the deviations 2 and sqrt(21).
SweepReport drawn_example() {
  SweepReport report;
  report.base_row = "base";
  report.rows = {row("base",
                     {run(State::finished, 4, 20, 100, 1e9), run(State::finished, 6, 23, 200, 3e9),
                      run(State::finished, 8, 29, 0, 0)},
                     PublishedFigures{4.9, 25.8, 65}),
                 row("worse", {run(State::finished, 11, 12)}, PublishedFigures{5.3, 24.9, {}}),
                 row("within", {run(State::finished, 10, 30)}, PublishedFigures{5.0, {}, {}}),
                 row("better", {run(State::finished, 1, 40), run(State::finished, 2, 41)}),
                 row("waits", {}, PublishedFigures{4.3, 26, {}})};
  return report;
}

Strings names_of(const std::vector<const RowFigures*>& rows) {
  Strings names;
  for (const auto* figures : rows) names.push_back(figures->row->name);
  return names;
}

}  // namespace

TEST_CASE("a row's figures are those of its finished runs") {
  SweepReport report;
  auto last = run(State::finished, 9, {}, 300, 5e9);
  last.parameters = 7;
  report.rows = {row("row", {run(State::running, 1000, 99, 40, 1e9), run(State::failed, 2000, 98, 50, 2e9),
                             run(State::waiting, 3000), run(State::finished, 5, 30, 100, 1e9), last})};
  const SweepFigures sweep = sweep_figures(report);
  REQUIRE(sweep.rows.size() == 1);
  const RowFigures& figures = sweep.rows[0];
  CHECK(figures.row == &report.rows[0]);
  CHECK(figures.perplexity.count == 2);
  CHECK(figures.perplexity.mean == Approx(7));
  CHECK(figures.perplexity.deviation.value() == Approx(std::sqrt(8.0)));  // ((5-7)^2 + (9-7)^2) / 1
  CHECK(figures.bleu.count == 1);
  CHECK(figures.bleu.mean == 30);
  CHECK(!figures.bleu.deviation);
  CHECK(figures.seconds.mean == Approx(200));
  CHECK(figures.flops.mean == Approx(3e9));
  CHECK(figures.parameters == 7);
  CHECK(figures.signatures == std::set<std::string>{"one"});
  CHECK(!figures.not_finite);
  CHECK(figures.runs ==
        std::map<State, int64_t>{{State::waiting, 1}, {State::running, 1}, {State::finished, 2}, {State::failed, 1}});
  CHECK(figures.count(State::finished) == 2);
  CHECK(figures.worst_state() == State::failed);
  // What was spent on runs that did not finish was spent, too.
  CHECK(sweep.seconds == Approx(40 + 50 + 100 + 300));
  CHECK(sweep.flops == Approx(9e9));
  CHECK(sweep.runs == figures.runs);
  CHECK(!sweep.base());
}

TEST_CASE("what matters most about a row's runs") {
  const auto worst = [](const std::vector<State>& states) {
    SweepReport report;
    report.rows = {row("row", {})};
    for (const State state : states) report.rows[0].runs.push_back(run(state, {}));
    return sweep_figures(report).rows[0].worst_state();
  };
  CHECK(worst({}) == State::waiting);
  CHECK(worst({State::finished, State::finished}) == State::finished);
  CHECK(worst({State::finished, State::waiting}) == State::waiting);
  CHECK(worst({State::waiting, State::running}) == State::running);
  CHECK(worst({State::running, State::failed, State::waiting}) == State::failed);
}

TEST_CASE("values that are not finite or not known enter no mean and no sum") {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  SweepReport report;
  report.rows = {row("row", {run(State::finished, infinite, 30, infinite, std::nan("")),
                             run(State::finished, 3, std::nan(""), 60, 1e9), run(State::finished, {}, {}, 0, 0)})};
  const SweepFigures sweep = sweep_figures(report);
  const RowFigures& figures = sweep.rows[0];
  CHECK(figures.not_finite);
  CHECK(figures.perplexity.count == 1);
  CHECK(figures.perplexity.mean == 3);
  CHECK(figures.bleu.count == 1);
  CHECK(figures.seconds.count == 1);
  CHECK(figures.seconds.mean == 60);
  CHECK(figures.flops.count == 1);
  CHECK(sweep.seconds == 60);
  CHECK(sweep.flops == 1e9);
}

TEST_CASE("BLEU is told of where a run has it, or may still") {
  SweepReport report;
  report.rows = {row("row", {run(State::waiting, {}), run(State::running, 4)})};
  CHECK(tells_bleu(report));
  report.rows[0].runs.push_back(run(State::finished, 4));
  CHECK_FALSE(tells_bleu(report));
  CHECK_FALSE(sweep_figures(report).tells_bleu);
  report.rows[0].runs[1].curve = {{.step = 1, .perplexity = 4, .bleu = 3}};
  CHECK(tells_bleu(report));
  report.rows[0].runs[1].curve.clear();
  report.rows[0].runs[2].bleu = 20;
  CHECK(tells_bleu(report));
}

TEST_CASE("rows are compared with the base row") {
  const SweepReport report = drawn_example();
  const SweepFigures sweep = sweep_figures(report);
  REQUIRE(sweep.base());
  CHECK(sweep.base()->row->name == "base");
  CHECK(sweep.base()->is_base);
  CHECK(!sweep.base()->perplexity_difference);
  CHECK(sweep.base()->perplexity.deviation.value() == Approx(2));
  CHECK(sweep.base()->bleu.deviation.value() == Approx(std::sqrt(21.0)));
  // 2 * 2 * sqrt(1 + 1/3) = 4.62 for one seed, 2 * 2 * sqrt(1/2 + 1/3) = 3.65 for two.
  const auto& worse = sweep.rows[1].perplexity_difference.value();
  CHECK(worse.difference == Approx(5));
  CHECK(worse.limit == Approx(4.6188).epsilon(1e-4));
  CHECK(worse.verdict == Verdict::beyond);
  CHECK(sweep.rows[2].perplexity_difference->verdict == Verdict::within);  // 4 of 4.62
  CHECK(sweep.rows[3].perplexity_difference->difference == Approx(-4.5));
  CHECK(sweep.rows[3].perplexity_difference->limit == Approx(3.6515).epsilon(1e-4));
  // 2 * sqrt(21) * sqrt(1 + 1/3) = 10.58.
  CHECK(sweep.rows[1].bleu_difference->difference == Approx(-12));
  CHECK(sweep.rows[1].bleu_difference->limit == Approx(10.583).epsilon(1e-4));
  CHECK(!sweep.rows[4].perplexity_difference);

  const Findings perplexity = find_differences(sweep, Figure::perplexity);
  CHECK(names_of(perplexity.better) == Strings{"better"});
  CHECK(names_of(perplexity.worse) == Strings{"worse"});
  CHECK(names_of(perplexity.within) == Strings{"within"});
  const Findings bleu = find_differences(sweep, Figure::bleu);
  CHECK(names_of(bleu.better) == Strings{"better"});  // 40.5 - 24 = 16.5
  CHECK(names_of(bleu.worse) == Strings{"worse"});
  CHECK(names_of(bleu.within) == Strings{"within"});  // 30 - 24 = 6
}

TEST_CASE("without a base row, or with one seed of it, nothing is found") {
  SweepReport report = drawn_example();
  report.base_row = "";
  CHECK(!sweep_figures(report).base());
  report.base_row = "absent";
  CHECK(!sweep_figures(report).base());
  CHECK(!sweep_figures(report).rows[1].perplexity_difference);
  report.base_row = "base";
  report.rows[0].runs.resize(1);
  const SweepFigures sweep = sweep_figures(report);
  CHECK(sweep.rows[1].perplexity_difference->verdict == Verdict::unknown);
  const Findings findings = find_differences(sweep, Figure::perplexity);
  CHECK((findings.better.empty() && findings.worse.empty() && findings.within.empty()));
}

TEST_CASE("BLEU of one kind has no difference to BLEU of another, or of two") {
  for (const bool of_base : {false, true}) {
    SweepReport report = drawn_example();
    report.rows[of_base ? 0 : 3].runs[0].bleu_signature = "another";
    const SweepFigures sweep = sweep_figures(report);
    CHECK(!sweep.rows[3].bleu_difference);
    CHECK(sweep.rows[3].perplexity_difference);
    CHECK(sweep.rows[1].bleu_difference.has_value() == !of_base);
    CHECK(sweep.signatures == std::set<std::string>{"another", "one"});
  }
}

TEST_CASE("rows are paired with the paper's where both have a figure") {
  const SweepReport report = drawn_example();
  const SweepFigures sweep = sweep_figures(report);
  using Pairs = std::vector<std::pair<double, double>>;
  CHECK(pairs_with_paper(sweep, Figure::perplexity) == Pairs{{4.9, 6}, {5.3, 11}, {5.0, 10}});
  CHECK(pairs_with_paper(sweep, Figure::bleu) == Pairs{{25.8, 24}, {24.9, 12}});
  CHECK(paper_difference(sweep, sweep.rows[1], Figure::perplexity).value() == Approx(0.4));
  CHECK(paper_difference(sweep, sweep.rows[1], Figure::bleu).value() == Approx(-0.9));
  CHECK(paper_difference(sweep, sweep.rows[4], Figure::perplexity).value() == Approx(-0.6));  // the paper's alone
  CHECK(!paper_difference(sweep, sweep.rows[2], Figure::bleu));
  CHECK(!paper_difference(sweep, sweep.rows[3], Figure::perplexity));
}
