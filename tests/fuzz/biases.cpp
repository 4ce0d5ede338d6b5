// What is added to the logits of word pieces, as translate --bias reads it, and the vocabulary that these are of: files
// biases and vocabulary.model.

#include <cmath>

#include "fuzz/fuzz.h"
#include "transformer/inference/piece_biases.h"
#include "transformer/text/lines.h"
#include "transformer/text/vocabulary.h"

using namespace transformer;

namespace {

const fuzz::Target target("biases", [](std::string_view input) {
  auto files = fuzz::files_of(input);
  const Vocabulary vocabulary(fuzz::write_scratch("vocabulary.model", files["vocabulary.model"]));
  const auto lines = read_lines(fuzz::write_scratch("biases", files["biases"]));
  const auto biases = piece_biases(lines, "biases", vocabulary);
  fuzz::require(biases.size() == lines.size(), "every line is of a piece");
  int64_t before = Vocabulary::begin;
  for (const auto& [piece, bias] : biases) {
    fuzz::require(piece > before && piece < vocabulary.size(), "pieces are those that outputs have, each once");
    fuzz::require(std::abs(bias) <= 100, "what is added is a number within bounds");
    before = piece;
  }
});

}  // namespace
