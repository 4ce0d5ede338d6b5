#include "transformer/report/sweep_sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "transformer/base/counted.h"
#include "transformer/report/number_text.h"
#include "transformer/report/sweep_tables.h"

namespace transformer {
namespace {

using State = SweepRun::State;

std::string yardstick_sentence(const std::string& figure, const Spread& base) {
  if (base.count == 0) return fmt::format("The base row has no {} yet.", figure);
  if (!base.deviation) {
    return fmt::format("{}: one seed of the base row, so it is unknown which differences are chance.", figure);
  }
  return fmt::format(
      "{}: s = {:.3g} over {} seeds of the base row; by chance alone, a row that equals it is found beyond in {:.0f} "
      "of 100 cases (Student's t, {}).",
      figure, *base.deviation, base.count, 100 * chance_beyond(base.count),
      base.count == 2 ? "1 degree of freedom" : fmt::format("{} degrees of freedom", base.count - 1));
}

}  // namespace

std::string summary_of(const SweepFigures& sweep) {
  int64_t runs = 0;
  std::vector<std::string> parts;
  for (const State state : {State::finished, State::running, State::waiting, State::failed}) {
    const auto found = sweep.runs.find(state);
    if (found == sweep.runs.end()) continue;
    runs += found->second;
    parts.push_back(fmt::format("{} {}", found->second, name_of(state)));
  }
  std::string text = fmt::format("{}, {}", counted(sweep.rows.size(), "row"), counted(runs, "run"));
  if (!parts.empty()) text += fmt::format(": {}", fmt::join(parts, ", "));
  text += ".";
  if (sweep.seconds > 0) text += fmt::format(" Training took {} in all", duration_text(sweep.seconds));
  if (sweep.seconds > 0 && sweep.flops > 0)
    text += fmt::format(" and {} floating-point operations", power_of_ten(sweep.flops));
  if (sweep.seconds > 0) text += ".";
  return text;
}

std::vector<std::string> rule_of(const SweepReport& report, const SweepFigures& sweep) {
  if (!sweep.base()) {
    return {report.base_row.empty() ? "No base row is named, so rows are compared with the paper alone."
                                    : fmt::format("There is no row '{}' to compare the others with.", report.base_row)};
  }
  std::vector<std::string> sentences = {
      fmt::format(
          "Differences are to the row {}. “≈” marks one within the seeds' spread: |Δ| ≤ 2·s·√(1/n + 1/m), where "
          "s is the standard deviation of the base row over its m seeds and n is the number of the row's "
          "seeds. “?” marks one that cannot be judged. The others are beyond the spread.",
          sweep.base()->row->name),
      yardstick_sentence("PPL", sweep.base()->perplexity)};
  if (sweep.tells_bleu) sentences.push_back(yardstick_sentence("BLEU", sweep.base()->bleu));
  return sentences;
}

std::vector<std::string> findings_of(const SweepFigures& sweep) {
  std::vector<std::string> sentences;
  const auto differences = [&](const std::string& name, const Figure& figure) {
    const Findings findings = find_differences(sweep, figure);
    if (findings.better.empty() && findings.worse.empty() && findings.within.empty()) return;
    const auto list = [&](const std::vector<const RowFigures*>& rows, bool with_difference) {
      std::vector<std::string> names;
      for (const auto* figures : rows) {
        names.push_back(with_difference ? fmt::format("{} ({})", figures->row->name,
                                                      signed_number((figures->*figure.difference)->difference))
                                        : figures->row->name);
      }
      return names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "));
    };
    sentences.push_back(
        fmt::format("{}: better than the base row beyond the seeds' spread: {}. Worse: {}. Within the spread: {}.",
                    name, list(findings.better, true), list(findings.worse, true), list(findings.within, false)));
  };
  differences("Perplexity", Figure::perplexity);
  differences("BLEU", Figure::bleu);

  const auto order = [&](const std::string& name, const Figure& figure) {
    const auto pairs = pairs_with_paper(sweep, figure);
    const auto correlation = rank_correlation(pairs);
    if (!correlation) return;
    sentences.push_back(fmt::format("{} beside the paper's over {} rows: rank correlation {} (1: the same order).",
                                    name, pairs.size(), with_minus(fmt::format("{:.2f}", *correlation))));
  };
  order("Perplexity", Figure::perplexity);
  order("BLEU", Figure::bleu);
  return sentences;
}

std::vector<std::string> signatures_of(const SweepFigures& sweep) {
  std::vector<std::string> sentences;
  if (const auto* base = sweep.base(); base && base->count(SweepRun::State::finished) > 0) {
    const auto name_others = [&](std::string SweepRow::*what, const char* sentence) {
      std::vector<std::string> names;
      for (const auto& figures : sweep.rows) {
        const bool has_figures = figures.count(SweepRun::State::finished) > 0;
        if (has_figures && figures.row->*what != base->row->*what) names.push_back(figures.row->name);
      }
      if (!names.empty()) sentences.push_back(fmt::format("{}: {}.", sentence, fmt::join(names, ", ")));
    };
    name_others(&SweepRow::vocabulary,
                "Perplexity is a word piece's, and these rows have other pieces than the base row, with which theirs "
                "cannot be compared");
    name_others(&SweepRow::validation,
                "These rows are judged by another text than the base row, with which they cannot be compared");
    const auto& averaged = base->row->averaged_checkpoints;
    std::vector<std::string> others;
    for (const auto& figures : sweep.rows) {
      const auto& theirs = figures.row->averaged_checkpoints;
      if (averaged.empty() || theirs.empty() || theirs == averaged) continue;
      others.push_back(fmt::format("{} ({})", figures.row->name, fmt::join(theirs, ", ")));
    }
    if (!others.empty()) {
      sentences.push_back(fmt::format(
          "Models are averages of checkpoints, and these rows' of other numbers than the base row's ({}): {}.",
          fmt::join(averaged, ", "), fmt::join(others, ", ")));
    }
  }
  std::vector<std::string> timed;
  for (const auto& figures : sweep.rows) {
    std::vector<int64_t> steps;
    for (const auto& run : figures.row->runs) {
      if (run.state == State::finished && run.ended_by == "time") steps.push_back(run.steps);
    }
    if (!steps.empty()) timed.push_back(fmt::format("{} ({})", figures.row->name, fmt::join(steps, ", ")));
  }
  if (!timed.empty()) {
    sentences.push_back(
        fmt::format("Time ended the training of these rows, after as many steps as the machine took until then: {}.",
                    fmt::join(timed, ", ")));
  }
  const auto shown = [](const std::string& signature) { return signature.empty() ? "of unknown kind" : signature; };
  if (sweep.signatures.size() == 1)
    sentences.push_back(fmt::format("Signature of BLEU: {}", shown(*sweep.signatures.begin())));
  if (sweep.signatures.size() > 1) {
    sentences.emplace_back("BLEU is of several kinds, which cannot be compared with each other:");
    for (const auto& signature : sweep.signatures) {
      std::vector<std::string> names;
      for (const auto& figures : sweep.rows) {
        if (figures.signatures.count(signature)) names.push_back(figures.row->name);
      }
      sentences.push_back(fmt::format("{}: {}", shown(signature), fmt::join(names, ", ")));
    }
  }
  if (std::any_of(sweep.rows.begin(), sweep.rows.end(),
                  [](const auto& v) { return v.row->paper && v.row->paper->bleu; })) {
    sentences.emplace_back(
        "The paper's BLEU is of tokenized text with compounds split, on newstest2013; it is higher than sacreBLEU's on "
        "the same translations.");
  }
  return sentences;
}

std::vector<std::string> paragraphs_of(const std::string& text) {
  std::vector<std::string> paragraphs;
  std::string paragraph;
  const auto finish = [&] {
    if (paragraph.find_first_not_of(" \t\r\n") != std::string::npos) paragraphs.push_back(paragraph);
    paragraph.clear();
  };
  size_t from = 0;
  while (from <= text.size()) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, end - from);
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      finish();
    } else {
      fmt::format_to(std::back_inserter(paragraph), "{}{}", paragraph.empty() ? "" : "\n", line);
    }
    from = end + 1;
  }
  finish();
  return paragraphs;
}

}  // namespace transformer
