#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace transformer {

/// One evaluation during training, a point of a learning curve.
struct CurvePoint {
  int64_t step = 0;            // optimizer steps so far
  int64_t target_tokens = 0;   // target tokens trained on so far; 0: not known
  double perplexity = 0;       // per word piece, of the development set; not finite: left out of the plots
  std::optional<double> bleu;  // of the development set, in per cent
};

/// One training of a row, with one seed. What is not known yet, or not at all, is absent or 0.
struct SweepRun {
  /// How far it has come.
  enum class State {
    waiting,   // not started, or interrupted
    running,   // its process is at work
    finished,  // it has left its model
    failed     // it ended without one
  };

  uint64_t seed = 0;                       // training.seed
  State state = State::waiting;            // finished: its figures are those of its model
  std::string reason;                      // of a failure, or why it has no curve: one line, as the user would read it
  std::optional<double> perplexity, bleu;  // of the final model, on the development set
  std::string bleu_signature;              // which BLEU it is: "BLEU|nrefs:1|case:mixed|..."
  int64_t parameters = 0;                  // of the model
  double seconds = 0;                      // of training
  double flops = 0;                        // floating-point operations of training
  std::vector<CurvePoint> curve;           // by steps, ascending
  int64_t steps = 0;                       // that training took
  std::string ended_by;                    // what ended it: "steps", "time", "patience"
  int64_t averaged_checkpoints = 0;        // of which its model was made
};

/// What the paper prints for a row of its Table 3; figures that it leaves out are absent.
struct PublishedFigures {
  std::optional<double> perplexity, bleu, parameters_millions;  // BLEU in per cent
};

/// A variation: one row of the table, trained with one seed or several.
struct SweepRow {
  std::string name;                       // unique within the report: "A-h1"
  std::string group;                      // Table 3's block letter: rows of one group are drawn together; may be empty
  std::string changes;                    // what differs from the base configuration: "heads 1, d_k 512, d_v 512"
  std::optional<PublishedFigures> paper;  // absent: no row of Table 3
  std::vector<SweepRun> runs;             // a seed each
  /// Which word pieces its perplexity is of, and by what text it is judged: rows that differ in these have no
  /// difference in perplexity, and in the second none in BLEU.
  std::string vocabulary = {}, validation = {};
  std::set<int64_t> averaged_checkpoints = {};  // of how many its runs' models were made, as far as is known
};

/// Everything a report shows. All text is plain text and escaped as each format needs.
struct SweepReport {
  std::string title;           // the heading
  std::string description;     // paragraphs are parted by an empty line; may be empty
  std::string base_config;     // the configuration that rows are deltas of, as text (a path or the YAML itself)
  std::vector<SweepRow> rows;  // in the order of the tables
  std::string base_row;        // name of the row that the others are compared with; empty or unknown: no comparison
};

/// The report as Markdown whose tables GitHub renders: the paper's figures beside ours (perplexity per word piece; BLEU
/// with its signature; parameters; hours and floating-point operations of training; several seeds as mean ± standard
/// deviation), differences to the base row with the verdict of `compare_to_base`, runs that failed with their reason,
/// runs that wait or are under way as such. Only finished runs enter means. Begins with a comment that carries
/// the report format's version.
std::string sweep_markdown(const SweepReport& report);

/// The same as one self-contained HTML page (nothing is loaded from elsewhere; light and dark; readable on a phone and
/// on paper; the table sorts by a click on its heads) with plots in SVG: learning curves, differences to the base row
/// with the seeds' spread, and our figures against the paper's. Works with no finished run, too. A <meta> element
/// carries the report format's version.
std::string sweep_html(const SweepReport& report);

/// Version of both formats.
inline constexpr int sweep_report_version = 1;

}  // namespace transformer
