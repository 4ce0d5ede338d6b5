#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "transformer/base/settings.h"

namespace transformer {

/// How output is searched for (settings section `decoding`; §6.1). Defaults are the paper's.
struct DecodingSettings {
  /// How output is chosen.
  enum class Search {
    beam,     // the best that beam search finds
    sampling  // drawn at random as the model distributes it
  };
  /// What log-probabilities are divided by: ((5 + length) / 6)^alpha, or length^alpha.
  enum class LengthPenalty {
    gnmt,  // ((5 + length) / 6)^alpha (Wu et al. 2016)
    power  // length^alpha
  };
  /// When a sentence is done.
  enum class Stop {
    exact,         // nothing better can follow
    beam_finished  // as many have finished as the beam is wide
  };

  /// The most that `proposals` may be.
  static constexpr int64_t most_proposals = 64;

  int64_t beam = 4;
  double alpha = 0.6;
  LengthPenalty length_penalty = LengthPenalty::gnmt;
  double coverage_penalty = 0;  // β; 0: none
  Stop stop = Stop::exact;
  int64_t max_extra_length = 50;  // output is at most input + this many tokens
  int64_t n_best = 1;             // hypotheses returned for each sentence, at most `beam`; samples drawn
  int64_t batch_sentences = 32;   // sentences decoded at once
  int64_t proposals = 8;          // tokens that a draft, where there is one, guesses at once, at most

  Search search = Search::beam;
  double temperature = 1;  // of sampling, as what follows
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  double min_p = 0;
  int64_t seed = 1;

  int64_t min_length = 0, max_length = 0;  // of the output; max 0: none but by max_extra_length
  double min_length_ratio = 0;             // times the input's pieces
  int64_t no_repeat_ngram = 0;             // 0: none
  double repetition_penalty = 1;
  bool write_unknown = true;
  int64_t beam_groups = 1;
  double diversity = 0.5;

  std::string source_language = {}, target_language = {};  // of models that know many (Vocabulary::Languages)

  static void describe(Fields<DecodingSettings>& field);

  /// These settings, checked. Throws Error naming the first that is out of range or contradicts another, as
  /// `decoding.beam`.
  DecodingSettings validated() const;

  /// These settings, searched by `kind`: what is of the other kind alone is as declared.
  DecodingSettings searched_by(Search kind) const;
  /// These settings with what `change`, which may be called twice, gives in their place; where that is another search,
  /// what these have for theirs alone counts no more.
  DecodingSettings with(const std::function<void(DecodingSettings&)>& change) const;

  /// Hypotheses that a sentence has at the same time, at most.
  int64_t hypotheses() const { return search == Search::sampling ? n_best : beam; }
};

}  // namespace transformer
