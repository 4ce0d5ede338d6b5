// A SentencePiece model, and what it makes of texts.

#include "transformer/text/vocabulary.h"

#include "fuzz/fuzz.h"
#include "transformer/base/unicode.h"

using namespace transformer;

namespace {

// What users pass in is UTF-8 (LineReader sees to that), so the model alone is not to be trusted.
constexpr std::string_view texts[] = {"", "ba do ki.", " ▁ \xe2\x96\x81 ßé(", "\xf0\x9f\x98\x80 <s></s> \t x"};

const fuzz::Target target("vocabulary", [](std::string_view input) {
  const Vocabulary vocabulary(fuzz::write_scratch("vocabulary.model", input));
  fuzz::require(vocabulary.size() > Vocabulary::unknown, "the reserved ids are in the vocabulary");
  const auto check = [&](const std::vector<int64_t>& ids) {
    for (const auto id : ids) fuzz::require(id >= 0 && id < vocabulary.size(), "ids are of the vocabulary");
    vocabulary.decode(ids);
  };
  for (const auto text : texts) {
    const auto ids = vocabulary.encode(text);
    check(ids);
    const auto words = vocabulary.words_of_pieces(text);
    fuzz::require(words.size() == ids.size(), "every piece has a word, or none");
    const auto count = static_cast<int64_t>(split_words(text).size());
    for (const auto word : words) fuzz::require(word >= -1 && word < count, "words are of the text");
    vocabulary.pieces(text);
  }
  std::vector<int64_t> all;
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    vocabulary.piece(id);
    all.push_back(id);
  }
  vocabulary.decode(all);
});

}  // namespace
