#include "transformer/report/sweep_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "transformer/report/number_text.h"

namespace transformer {
namespace {

using Cell = ReportTable::Cell;
using Column = ReportTable::Column;
using State = SweepRun::State;
using Verdict = RowDifference::Verdict;

// "2 finished, 1 running", or "waiting" alone where that is all there is to say.
std::string state_text(const RowFigures& figures) {
  std::vector<std::string> parts;
  for (const auto& [state, count] : figures.runs) {
    parts.push_back(figures.row->runs.size() < 2 ? std::string(name_of(state))
                                                 : fmt::format("{} {}", count, name_of(state)));
  }
  std::reverse(parts.begin(), parts.end());  // failed and finished before what is still to come
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string progress_text(const SweepRun& run) {
  if (run.curve.empty()) return "";
  const CurvePoint& last = run.curve.back();
  return fmt::format("step {}, perplexity {}", grouped_number(last.step), fixed_number(last.perplexity));
}

Cell number_cell(const Spread& spread, bool not_finite = false) {
  if (spread.count == 0) return {not_finite ? "not finite" : "", std::nullopt, not_finite ? "failed" : ""};
  return {with_deviation(spread), spread.mean, ""};
}

Cell paper_cell(const std::optional<double>& value, int digits, std::string_view unit = "") {
  if (!value) return {};
  return {fmt::format("{}{}", rounded_number(*value, digits), unit), *value, "paper"};
}

Cell difference_cell(const RowFigures& figures, const std::optional<RowDifference>& difference, bool more_is_better) {
  if (figures.is_base) return {"base", 0.0, "soft"};
  if (!difference) return {};
  std::string look = "soft";
  if (difference->verdict == Verdict::beyond) {
    look = (difference->difference > 0) == more_is_better ? "beyond better" : "beyond worse";
  }
  return {difference_text(*difference), difference->difference, look};
}

/// Of one that waits it is how far it came.
bool tells_reason(const SweepRun& run) {
  return run.state == State::failed || run.state == State::finished;
}

Cell state_cell(const RowFigures& figures) {
  const State state = figures.worst_state();
  std::string text = state_text(figures);
  for (const auto& run : figures.row->runs) {
    if (run.state == State::running && !progress_text(run).empty()) {
      text += fmt::format("; {}", progress_text(run));
      break;
    }
  }
  std::set<std::string> reasons;
  for (const auto& run : figures.row->runs) {
    if (tells_reason(run) && !run.reason.empty() && reasons.insert(run.reason).second) {
      text += fmt::format("; {}", run.reason);
    }
  }
  return {text, static_cast<double>(state), fmt::format("state {}", name_of(state))};
}

}  // namespace

const char* name_of(State state) {
  switch (state) {
    case State::waiting:
      return "waiting";
    case State::running:
      return "running";
    case State::finished:
      return "finished";
    case State::failed:
      return "failed";
  }
  throw std::logic_error("a state without a name");
}

std::string with_deviation(const Spread& spread) {
  std::string text = fixed_number(spread.mean);
  if (spread.deviation) text += fmt::format(" ± {}", fixed_number(*spread.deviation));
  return text;
}

std::string difference_text(const RowDifference& difference) {
  switch (difference.verdict) {
    case Verdict::within:
      return fmt::format("≈ {}", signed_number(difference.difference));
    case Verdict::beyond:
      return signed_number(difference.difference);
    case Verdict::unknown:
      return fmt::format("{} ?", signed_number(difference.difference));
  }
  throw std::logic_error("a verdict without a text");
}

ReportTable results_table(const SweepFigures& sweep) {
  const bool groups =
      std::any_of(sweep.rows.begin(), sweep.rows.end(), [](const auto& v) { return !v.row->group.empty(); });
  ReportTable table;
  if (groups) table.columns.push_back({"", "block of the table", false});
  for (const Column& column :
       std::initializer_list<Column>{{"row", "", false},
                                     {"changed", "what differs from the base configuration", false},
                                     {"PPL paper", "perplexity per word piece in the paper's Table 3", true},
                                     {"PPL", "perplexity per word piece: mean ± standard deviation over seeds", true},
                                     {"Δ PPL", "difference to the base row; lower is better", true},
                                     {"BLEU paper", "BLEU in the paper's Table 3", true},
                                     {"BLEU", "mean ± standard deviation over seeds", true},
                                     {"Δ BLEU", "difference to the base row; higher is better", true},
                                     {"params paper", "parameters in the paper's Table 3", true},
                                     {"params", "parameters that are trained", true},
                                     {"time", "of training one seed", true},
                                     {"FLOPs", "floating-point operations of training one seed", true},
                                     {"runs", "", false}}) {
    table.columns.push_back(column);
  }
  for (const auto& figures : sweep.rows) {
    const SweepRow& row = *figures.row;
    const PublishedFigures paper = row.paper.value_or(PublishedFigures{});
    std::vector<Cell> cells;
    if (groups) cells.push_back({row.group, std::nullopt, "soft"});
    cells.push_back({row.name, std::nullopt, figures.is_base ? "name base" : "name"});
    cells.push_back({row.changes, std::nullopt, "changes"});
    cells.push_back(paper_cell(paper.perplexity, 2));
    cells.push_back(number_cell(figures.perplexity, figures.not_finite));
    cells.push_back(difference_cell(figures, figures.perplexity_difference, /*more_is_better=*/false));
    cells.push_back(paper_cell(paper.bleu, 1));
    cells.push_back(number_cell(figures.bleu));
    cells.push_back(sweep.tells_bleu ? difference_cell(figures, figures.bleu_difference, /*more_is_better=*/true)
                                     : Cell{});
    cells.push_back(paper_cell(paper.parameters_millions, 0, " M"));
    const double millions = static_cast<double>(figures.parameters) / 1e6;
    cells.push_back(
        figures.parameters == 0 ? Cell{} : Cell{rounded_number(millions, millions < 10 ? 2 : 1) + " M", millions, ""});
    cells.push_back(figures.seconds.count == 0 ? Cell{}
                                               : Cell{duration_text(figures.seconds.mean), figures.seconds.mean, ""});
    cells.push_back(figures.flops.count == 0 ? Cell{} : Cell{power_of_ten(figures.flops.mean), figures.flops.mean, ""});
    cells.push_back(state_cell(figures));
    table.rows.push_back(std::move(cells));
  }
  // A grid of one's own has no figures of the paper's, and not every configuration asks for BLEU.
  drop_empty_columns(table, [&](const auto& column) {
    return column.head.ends_with(" paper") || (!sweep.tells_bleu && column.head.ends_with("BLEU"));
  });
  return table;
}

ReportTable runs_table(const SweepReport& report) {
  ReportTable table;
  table.columns = {{"row", "", false}, {"seed", "", true}, {"state", "", false}, {"PPL", "", true},
                   {"BLEU", "", true}, {"time", "", true}, {"FLOPs", "", true},  {"", "", false}};
  for (const auto& row : report.rows) {
    for (const auto& run : row.runs) {
      const auto number = [](const std::optional<double>& value) {
        if (!value) return Cell{};
        return std::isfinite(*value) ? Cell{fixed_number(*value), *value, ""}
                                     : Cell{"not finite", std::nullopt, "failed"};
      };
      table.rows.push_back({{row.name, std::nullopt, "name"},
                            {std::to_string(run.seed), static_cast<double>(run.seed), ""},
                            {name_of(run.state), std::nullopt, fmt::format("state {}", name_of(run.state))},
                            number(run.perplexity),
                            number(run.bleu),
                            run.seconds > 0 ? Cell{duration_text(run.seconds), run.seconds, ""} : Cell{},
                            run.flops > 0 ? Cell{power_of_ten(run.flops), run.flops, ""} : Cell{},
                            {tells_reason(run)             ? run.reason
                             : run.state == State::running ? progress_text(run)
                                                           : "",
                             std::nullopt, ""}});
    }
  }
  if (!tells_bleu(report)) drop_empty_columns(table, [](const auto& column) { return column.head == "BLEU"; });
  return table;
}

}  // namespace transformer
