#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

/// A model in one precision: how well it translates a text, and how fast.
struct SpeedFigures {
  /// How fast, with so many sentences at a time.
  struct Timed {
    int64_t sentences = 1;             // that are decoded at the same time
    double words_per_second = 0;       // of the source
    double words_per_core_second = 0;  // the same by the processor's clock, over all threads
  };
  /// What was translated, and how.
  struct Measured {
    std::string text;                            // checksum of source and references
    int64_t sentences = 0;                       // of the text, all of which are scored
    int64_t timed_sentences = 0;                 // and how many of them, from the first on, are timed
    int64_t timed_words = 0;                     // of these
    int64_t threads = 0;                         // of the processor
    std::string bleu_signature, chrf_signature;  // which BLEU and chrF
  };

  std::string model;                  // as it is called
  std::string precision;              // as options name it
  double bleu = 0, chrf = 0;          // of the whole text
  int64_t bytes = 0, parameters = 0;  // of the model's weights
  std::vector<Timed> timed;           // the same sizes in the same order for all
  std::optional<Measured> measured;   // absent where a file does not say it, as of another system
};

/// Figures that were kept, of this project's models or of other systems': JSON as `evaluate speed --format json` writes
/// it, {"models": [{"name", "precision", "bleu", "chrf", "bytes", "parameters", "speed": [{"sentences_at_once",
/// "words_per_second", "words_per_core_second"}], "measured": {"text", "sentences", "timed_sentences", "timed_words",
/// "threads", "bleu_signature", "chrf_signature"}}]}, of which `sizes` are the sentences at once, in this order; what
/// is "measured" may be left out, and what else there is means nothing. `text` is that of `file`. Throws Error naming
/// the file, and which of its models, for anything else: scores that are not from 0 to 100, speeds that are not above
/// 0.
std::vector<SpeedFigures> read_speed_figures(std::string_view text, const std::string& file,
                                             const std::vector<int64_t>& sizes);

/// What keeps `figures` from being compared, a sentence for each that were measured otherwise than the first that say
/// how, or that do not say it beside others that do. None where all are alike.
std::vector<std::string> speed_remarks(const std::vector<SpeedFigures>& figures);

/// A table for a terminal: a line for each of `figures`, which have the same Timed::sentences.
std::string speed_table(const std::vector<SpeedFigures>& figures);

/// BLEU against words a second, on a logarithmic axis, as an SVG file: a point for every time that was taken, of its
/// model's colour and its precision's shape, hollow where there was more than one sentence at once.
std::string speed_picture(const std::vector<SpeedFigures>& figures);

}  // namespace transformer
