#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transformer/report/statistics.h"
#include "transformer/report/sweep_report.h"

namespace transformer {

/// What is computed from a row's runs.
struct RowFigures {
  const SweepRow* row = nullptr;            // of the report, which has to live on
  bool is_base = false;                     // the row that the others are compared with
  std::map<SweepRun::State, int64_t> runs;  // how many are in each state; a row without runs has one that waits
  Spread perplexity, bleu;                  // of finished runs
  Spread seconds, flops;                    // of finished runs; what is 0 is not known, and left out
  bool not_finite = false;                  // a finished run's perplexity is
  int64_t parameters = 0;                   // the first that is known
  std::set<std::string> signatures;         // of finished runs' BLEU
  std::optional<RowDifference> perplexity_difference, bleu_difference;  // to the base row, which has none itself

  /// Runs in this state.
  int64_t count(SweepRun::State state) const;
  /// What matters most about the runs: failed, else running, else waiting, and finished where all are.
  SweepRun::State worst_state() const;
};

/// What is computed from a whole report.
struct SweepFigures {
  std::vector<RowFigures> rows;             // as in the report
  std::optional<size_t> base_row;           // which of them the others are compared with
  std::set<std::string> signatures;         // of all rows
  std::map<SweepRun::State, int64_t> runs;  // of all rows: how many are in each state
  bool tells_bleu = true;                   // a run has it, or none is finished: its configurations may not ask for it
  double seconds = 0, flops = 0;            // of all runs together, finished or not; what is not finite is left out

  /// The row that others are compared with; null: there is none.
  const RowFigures* base() const { return base_row ? &rows[*base_row] : nullptr; }
};

/// Two kinds of BLEU have no difference: a row's is absent where its runs or the base row's have several signatures, or
/// others than the other. Nor has what was judged by another text, or perplexity of another vocabulary's pieces.
SweepFigures sweep_figures(const SweepReport& report);

/// Whether a run has BLEU, or none is finished yet.
bool tells_bleu(const SweepReport& report);

/// One of the two figures that rows are judged by: where the paper's, ours and our difference to the base row are kept.
struct Figure {
  std::optional<double> PublishedFigures::*printed;      // in what the paper prints
  Spread RowFigures::*ours;                              // in a row
  std::optional<RowDifference> RowFigures::*difference;  // in a row
  bool more_is_better;                                   // of BLEU, not of perplexity

  /// The two that there are.
  static const Figure perplexity, bleu;
};

/// The rows by the verdict on their difference, in the report's order; those without a verdict are in none.
struct Findings {
  std::vector<const RowFigures*> better, worse;  // beyond the seeds' spread
  std::vector<const RowFigures*> within;         // seeds alone explain them
};
/// By one of the two figures.
Findings find_differences(const SweepFigures& sweep, const Figure& figure);

/// The paper's figure and the mean of ours, of all rows that have both.
std::vector<std::pair<double, double>> pairs_with_paper(const SweepFigures& sweep, const Figure& figure);

/// How far the paper's figure of a row lies from its figure of the base row; absent where it prints not both.
std::optional<double> paper_difference(const SweepFigures& sweep, const RowFigures& figures, const Figure& figure);

}  // namespace transformer
