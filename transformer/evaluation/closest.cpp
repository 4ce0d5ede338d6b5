#include "transformer/evaluation/closest.h"

#include "transformer/base/error.h"
#include "transformer/base/overloaded.h"

namespace transformer {

Closest closest_to(const std::string& reference, const std::vector<std::string>& hypotheses, const Utility& utility) {
  if (hypotheses.empty()) throw Error("", "there is no translation to choose among");
  const auto score = [&](const std::string& hypothesis) {
    return std::visit(
        Overloaded{[&](const ChrfOptions& options) { return corpus_chrf({hypothesis}, {{reference}}, options); },
                   [&](const BleuOptions& options) { return sentence_bleu(hypothesis, {reference}, options).score; }},
        utility);
  };
  Closest closest{.index = 0, .score = score(hypotheses.front())};
  for (size_t i = 1; i < hypotheses.size(); ++i) {
    if (const double found = score(hypotheses[i]); found > closest.score) closest = {.index = i, .score = found};
  }
  return closest;
}

}  // namespace transformer
