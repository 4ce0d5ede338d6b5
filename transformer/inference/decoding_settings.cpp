#include "transformer/inference/decoding_settings.h"

#include <fmt/format.h>

#include "transformer/base/check_ranges.h"
#include "transformer/base/error.h"

namespace transformer {

void DecodingSettings::describe(Fields<DecodingSettings>& field) {
  field("beam", &DecodingSettings::beam,
        "hypotheses kept for each sentence; 1: greedy search (§6.1). Where phrases are required of a sentence, it has "
        "one more for each of their word pieces, 64 more at most",
        between(1, 10000))
      .free();
  field("alpha", &DecodingSettings::alpha,
        "exponent of the length penalty; more than 0 favours longer output, 0 compares log-probabilities alone (§6.1)",
        between(-10, 10))
      .free();
  field("length_penalty", &DecodingSettings::length_penalty,
        "what a log-probability is divided by: gnmt: ((5 + length) / 6)^alpha; power: length^alpha",
        {{"gnmt", LengthPenalty::gnmt}, {"power", LengthPenalty::power}})
      .free();
  field("coverage_penalty", &DecodingSettings::coverage_penalty,
        "β of the coverage penalty, which favours outputs that leave nothing out: β times the sum, over the "
        "input's word pieces and its end, of log(min(attention, 1)) is added to the score of an output that has "
        "ended or was cut, after the length penalty (GNMT, eq. 14); attention is what each received in all, of the "
        "decoder's last layer, the mean of its heads, and 1e-10 at least. It ranks outputs, and no word pieces on the "
        "way; for beam search on a CPU; 0: none",
        between(0, 1000))
      .free();
  field("stop", &DecodingSettings::stop,
        "when a sentence is done: exact: when nothing better can follow; beam_finished: when as many hypotheses have "
        "finished as the beam is wide",
        {{"exact", Stop::exact}, {"beam_finished", Stop::beam_finished}})
      .free();
  field("max_extra_length", &DecodingSettings::max_extra_length,
        "word pieces by which output may be longer than its input (§6.1)", between(0, 1000000))
      .free();
  field("n_best", &DecodingSettings::n_best,
        "translations given for each line, at most the beam; with sampling, samples drawn, in the order of drawing",
        between(1, 10000))
      .free();
  field("batch_sentences", &DecodingSettings::batch_sentences, "lines decoded at once", between(1, 100000)).free();
  field("proposals", &DecodingSettings::proposals,
        "with a draft model: word pieces that it proposes at once, at most; as many are as pay; 0: it is not asked. "
        "Translations do not depend on it",
        between(0, most_proposals))
      .free();
  field("search", &DecodingSettings::search,
        "how output is chosen: beam: the best that beam search finds; sampling: drawn at random as the model "
        "distributes it",
        {{"beam", Search::beam}, {"sampling", Search::sampling}})
      .free();
  field("temperature", &DecodingSettings::temperature,
        "of sampling: log-probabilities are divided by it; less than 1 favours what is likely", between(0.001, 1000))
      .free();
  field("top_k", &DecodingSettings::top_k, "sampling draws from that many of the likeliest word pieces; 0: from all",
        between(0, 1000000))
      .free();
  field("top_p", &DecodingSettings::top_p,
        "sampling draws from the likeliest word pieces that have this probability together (nucleus); 1: from all",
        between(0.000001, 1))
      .free();
  field("min_p", &DecodingSettings::min_p,
        "sampling draws from word pieces that are at least that many times as likely as the likeliest; 0: from all",
        between(0, 1))
      .free();
  field("seed", &DecodingSettings::seed,
        "of sampling: a line's samples follow from it and the line alone, whatever is translated with it",
        between(0, 9007199254740991))
      .free();
  field("min_length", &DecodingSettings::min_length,
        "word pieces of the output, at least, where it may become so long (max_extra_length)", between(0, 1000000))
      .free();
  field("min_length_ratio", &DecodingSettings::min_length_ratio, "min_length for each of the input's word pieces",
        between(0, 100))
      .free();
  field("max_length", &DecodingSettings::max_length,
        "word pieces of the output, at most; 0: as max_extra_length has it alone", between(0, 1000000))
      .free();
  field("no_repeat_ngram", &DecodingSettings::no_repeat_ngram,
        "no sequence of that many word pieces comes twice in an output, but where a required phrase has it; 0: any may",
        between(0, 1000))
      .free();
  field(
      "repetition_penalty", &DecodingSettings::repetition_penalty,
      "what the log-probability of a word piece is multiplied by that the output holds already, before hypotheses are "
      "compared or drawn; 1: nothing",
      between(1, 100))
      .free();
  field("write_unknown", &DecodingSettings::write_unknown,
        "whether the piece that stands for what the vocabulary cannot spell may be written")
      .free();
  field("beam_groups", &DecodingSettings::beam_groups,
        "groups that share the beam equally, each of which avoids what the groups before it choose (diverse beam "
        "search); what several find is given once, so that there may be fewer than n_best; 1: none",
        between(1, 10000))
      .free();
  field("diversity", &DecodingSettings::diversity,
        "with beam_groups: what a word piece's log-probability loses for each choice of it by the groups before",
        between(0, 1000))
      .free();
  field("source_language", &DecodingSettings::source_language,
        "the input's language, where the model knows many: as the model calls it, such as eng_Latn, en_XX or en")
      .free();
  field("target_language", &DecodingSettings::target_language,
        "the output's language, where the model knows many: its name is what the output begins with, and is not "
        "written")
      .free();
}

namespace {

/// Throws Error for a setting of sampling where nothing is sampled.
void check_sampled(const char* name, bool is_default) {
  if (is_default) return;
  throw Error(fmt::format("decoding.{}", name), "is for sampling, and decoding.search is beam",
              "set search to sampling");
}

}  // namespace

DecodingSettings DecodingSettings::validated() const {
  DecodingSettings settings = *this;
  check_ranges("decoding", settings);
  const DecodingSettings defaults;
  if (search == Search::sampling) {
    if (beam_groups > 1) {
      throw Error("decoding.beam_groups", "is for beam search, and decoding.search is sampling",
                  "set search to beam, or beam_groups to 1");
    }
    if (coverage_penalty != 0) {
      throw Error("decoding.coverage_penalty", "ranks what beam search finds, and decoding.search is sampling",
                  "set search to beam, or coverage_penalty to 0");
    }
  } else {
    check_sampled("temperature", temperature == defaults.temperature);
    check_sampled("top_k", top_k == defaults.top_k);
    check_sampled("top_p", top_p == defaults.top_p);
    check_sampled("min_p", min_p == defaults.min_p);
    check_sampled("seed", seed == defaults.seed);
    if (n_best > beam) {
      throw Error("decoding.n_best", fmt::format("{} best cannot come from a beam of {}", n_best, beam),
                  fmt::format("raise beam to {} or more", n_best));
    }
    if (beam % beam_groups != 0) {
      throw Error("decoding.beam_groups", fmt::format("{} groups cannot share a beam of {} equally", beam_groups, beam),
                  "make beam a multiple of it");
    }
  }
  if (max_length > 0 && min_length > max_length) {
    throw Error("decoding.min_length", fmt::format("is {}, and decoding.max_length is {}", min_length, max_length),
                "make it the smaller of the two");
  }
  return settings;
}

DecodingSettings DecodingSettings::searched_by(Search kind) const {
  DecodingSettings settings = *this;
  const DecodingSettings defaults;
  settings.search = kind;
  if (kind == Search::sampling) {
    settings.beam_groups = defaults.beam_groups;
    settings.coverage_penalty = defaults.coverage_penalty;
  } else {
    settings.temperature = defaults.temperature;
    settings.top_k = defaults.top_k;
    settings.top_p = defaults.top_p;
    settings.min_p = defaults.min_p;
    settings.seed = defaults.seed;
  }
  return settings;
}

DecodingSettings DecodingSettings::with(const std::function<void(DecodingSettings&)>& change) const {
  auto settings = *this;
  change(settings);
  if (settings.search == search) return settings;
  settings = searched_by(settings.search);
  change(settings);
  return settings;
}

}  // namespace transformer
