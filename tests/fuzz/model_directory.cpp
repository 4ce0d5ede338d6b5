// A whole model directory: config.yaml, model.safetensors, vocabulary.model (or source.model and target.model) and,
// where it is there, checksums.xxh128.

#include <algorithm>

#include "fuzz/fuzz.h"
#include "transformer/inference/translator.h"

using namespace transformer;

namespace {

const fuzz::Target target("model_directory", [](std::string_view input) {
  Translator translator(fuzz::write_folder("model", fuzz::files_of(input)));
  // Work without end is no fault where people ask for it.
  auto settings = translator.settings();
  settings.max_extra_length = std::min<int64_t>(settings.max_extra_length, 3);
  settings.beam = std::min<int64_t>(settings.beam, 3);
  settings.n_best = std::min(settings.n_best, settings.beam);
  settings.batch_sentences = std::min<int64_t>(settings.batch_sentences, 4);
  translator.set(settings);
  const auto translations = translator.translate({"ba do", "", "x é"});
  fuzz::require(translations.size() == 3, "each line has its translations");
  for (const auto& best : translations) {
    fuzz::require(!best.empty() && best.size() <= static_cast<size_t>(settings.n_best), "one to n-best translations");
  }
});

}  // namespace
