#include "transformer/report/sweep_figures.h"

#include <algorithm>
#include <cmath>

namespace transformer {
namespace {

using State = SweepRun::State;
using Verdict = RowDifference::Verdict;

RowFigures row_figures(const SweepRow& row) {
  RowFigures figures;
  figures.row = &row;
  std::vector<double> perplexities, bleus, seconds, flops;
  for (const auto& run : row.runs) {
    ++figures.runs[run.state];
    if (figures.parameters == 0) figures.parameters = run.parameters;
    if (run.state != State::finished) continue;
    if (run.perplexity) {
      perplexities.push_back(*run.perplexity);
      figures.not_finite = figures.not_finite || !std::isfinite(*run.perplexity);
    }
    if (run.bleu) {
      bleus.push_back(*run.bleu);
      figures.signatures.insert(run.bleu_signature);
    }
    if (run.seconds > 0) seconds.push_back(run.seconds);
    if (run.flops > 0) flops.push_back(run.flops);
  }
  if (row.runs.empty()) figures.runs[State::waiting] = 1;
  figures.perplexity = spread_of(perplexities);
  figures.bleu = spread_of(bleus);
  figures.seconds = spread_of(seconds);
  figures.flops = spread_of(flops);
  return figures;
}

std::optional<double> printed_of(const RowFigures& figures, const Figure& figure) {
  return figures.row->paper ? (*figures.row->paper).*figure.printed : std::nullopt;
}

}  // namespace

int64_t RowFigures::count(State state) const {
  const auto found = runs.find(state);
  return found == runs.end() ? 0 : found->second;
}

State RowFigures::worst_state() const {
  for (const State state : {State::failed, State::running, State::waiting}) {
    if (count(state) > 0) return state;
  }
  return State::finished;
}

bool tells_bleu(const SweepReport& report) {
  bool finished = false;
  for (const auto& row : report.rows) {
    for (const auto& run : row.runs) {
      if (run.bleu || std::any_of(run.curve.begin(), run.curve.end(), [](const auto& point) { return point.bleu; })) {
        return true;
      }
      finished = finished || run.state == State::finished;
    }
  }
  return !finished;
}

SweepFigures sweep_figures(const SweepReport& report) {
  SweepFigures sweep;
  sweep.tells_bleu = tells_bleu(report);
  for (const auto& row : report.rows) {
    sweep.rows.push_back(row_figures(row));
    const RowFigures& figures = sweep.rows.back();
    sweep.signatures.insert(figures.signatures.begin(), figures.signatures.end());
    for (const auto& [state, count] : figures.runs) sweep.runs[state] += count;
    for (const auto& run : row.runs) {
      if (std::isfinite(run.seconds)) sweep.seconds += run.seconds;
      if (std::isfinite(run.flops)) sweep.flops += run.flops;
    }
  }
  if (report.base_row.empty()) return sweep;
  const auto found = std::find_if(sweep.rows.begin(), sweep.rows.end(),
                                  [&](const RowFigures& figures) { return figures.row->name == report.base_row; });
  if (found == sweep.rows.end()) return sweep;
  found->is_base = true;
  sweep.base_row = static_cast<size_t>(found - sweep.rows.begin());
  const RowFigures& base = *found;
  for (auto& figures : sweep.rows) {
    if (figures.is_base) continue;
    const bool same_text = figures.row->validation == base.row->validation;
    if (same_text && figures.row->vocabulary == base.row->vocabulary) {
      figures.perplexity_difference = compare_to_base(figures.perplexity, base.perplexity);
    }
    if (same_text && figures.signatures.size() == 1 && figures.signatures == base.signatures) {
      figures.bleu_difference = compare_to_base(figures.bleu, base.bleu);
    }
  }
  return sweep;
}

const Figure Figure::perplexity = {.printed = &PublishedFigures::perplexity,
                                   .ours = &RowFigures::perplexity,
                                   .difference = &RowFigures::perplexity_difference,
                                   .more_is_better = false};
const Figure Figure::bleu = {.printed = &PublishedFigures::bleu,
                             .ours = &RowFigures::bleu,
                             .difference = &RowFigures::bleu_difference,
                             .more_is_better = true};

Findings find_differences(const SweepFigures& sweep, const Figure& figure) {
  Findings findings;
  for (const auto& figures : sweep.rows) {
    const auto& difference = figures.*figure.difference;
    if (!difference || difference->verdict == Verdict::unknown) continue;
    if (difference->verdict == Verdict::within) {
      findings.within.push_back(&figures);
    } else if ((difference->difference > 0) == figure.more_is_better) {
      findings.better.push_back(&figures);
    } else {
      findings.worse.push_back(&figures);
    }
  }
  return findings;
}

std::vector<std::pair<double, double>> pairs_with_paper(const SweepFigures& sweep, const Figure& figure) {
  std::vector<std::pair<double, double>> pairs;
  for (const auto& figures : sweep.rows) {
    const auto printed = printed_of(figures, figure);
    const Spread& ours = figures.*figure.ours;
    if (printed && ours.count > 0) pairs.emplace_back(*printed, ours.mean);
  }
  return pairs;
}

std::optional<double> paper_difference(const SweepFigures& sweep, const RowFigures& figures, const Figure& figure) {
  if (!sweep.base()) return std::nullopt;
  const auto row = printed_of(figures, figure), base = printed_of(*sweep.base(), figure);
  if (!row || !base) return std::nullopt;
  return *row - *base;
}

}  // namespace transformer
