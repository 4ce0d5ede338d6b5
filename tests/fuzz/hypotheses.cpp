// Translations and references, as evaluate reads them: files hypotheses and reference.

#include <algorithm>
#include <cmath>

#include "fuzz/fuzz.h"
#include "transformer/evaluation/bleu.h"
#include "transformer/evaluation/chrf.h"
#include "transformer/text/lines.h"

using namespace transformer;

namespace {

void require_share(double score) {
  fuzz::require(std::isfinite(score) && score >= 0 && score <= 100 + 1e-9, "scores are in per cent");
}

const fuzz::Target target("hypotheses", [](std::string_view input) {
  const auto files = fuzz::files_of(input);
  auto hypotheses = read_lines(fuzz::write_scratch("hypotheses", files.begin()->second));
  auto reference = read_lines(fuzz::write_scratch("reference", files.rbegin()->second));
  hypotheses.resize(std::min(hypotheses.size(), reference.size()));
  reference.resize(hypotheses.size());
  for (const bool lowercase : {false, true}) {
    for (const auto tokenizer : {BleuOptions::Tokenizer::mteval_13a, BleuOptions::Tokenizer::none}) {
      const BleuOptions options{.tokenizer = tokenizer, .lowercase = lowercase, .compound_split = lowercase};
      const auto bleu = corpus_bleu(hypotheses, {reference, hypotheses}, options);
      require_share(bleu.score);
      to_string(bleu, options);
      for (size_t i = 0; i < hypotheses.size(); ++i) {
        require_share(sentence_bleu(hypotheses[i], {reference[i]}, options).score);
      }
    }
    require_share(corpus_chrf(hypotheses, {reference}, {.word_order = 2, .lowercase = lowercase}));
  }
});

}  // namespace
