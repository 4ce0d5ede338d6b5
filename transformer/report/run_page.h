#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transformer/report/run_log.h"

namespace transformer {

/// A sentence of the validation text, and what became of it in every run of a report.
struct ComparedSentence {
  /// What one run made of it.
  struct Output {
    std::string text;  // its translation
    double score = 0;  // by which sentences are the best and the worst: BLEU of the sentence
  };
  int64_t line = 0;                            // from 1
  std::string source, reference;               // of that line
  std::vector<std::optional<Output>> outputs;  // for each run of the report
};

/// Several runs side by side. All text is plain and escaped as the page needs it.
struct RunReport {
  std::vector<RunLog> runs;                   // in the order in which they are shown
  std::vector<ComparedSentence> best, worst;  // in that order
  std::vector<std::string> remarks;           // why there are no sentences of a run, or what was left out
  double reload_seconds = 0;                  // the page loads itself anew so often; 0: never
};

/// The best and the worst `count` of `sentences` by the mean score of their outputs, those without any left out, and
/// those without a word in the reference and in all outputs. What all outputs have as the reference has it is not among
/// the worst. Ties are in the order of lines.
void choose_sentences(RunReport& report, std::vector<ComparedSentence> sentences, size_t count);

/// What is to be said beside the figures of `runs`: lines of metrics that are damaged, and what does not compare:
/// perplexities per word piece of different vocabularies, validations of different texts, and several kinds of BLEU.
std::vector<std::string> remarks_on(const std::vector<RunLog>& runs);

/// A report of training runs as one self-contained HTML page (nothing is loaded from elsewhere; light and dark;
/// readable on a phone and on paper): a table that sorts by a click on its heads, curves over steps or time of all
/// that the runs' metrics hold, and their best and worst translations with what differs from the reference. Works for
/// runs that have only begun. A <meta> element carries the page's version.
std::string run_html(const RunReport& report);

/// Of the page that run_html writes.
inline constexpr int run_report_version = 1;

}  // namespace transformer
