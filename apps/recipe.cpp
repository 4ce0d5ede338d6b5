#include "recipe.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "transformer/base/atomic_file.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/decoding/perplexity.h"
#include "transformer/evaluation/bleu.h"
#include "transformer/text/lines.h"

namespace transformer {

namespace {

// Whoever ends this process waits half a minute, mostly.
constexpr std::ptrdiff_t most_until_stopped = 256;

// Translations of `sources`, on all ranks: each makes every so many-th. None where `stop` says so to any of them, which
// is looked at every so many sentences.
std::optional<std::vector<std::string>> translate_shared(Communicator& communicator, const Translator& translator,
                                                         const std::vector<std::string>& sources,
                                                         const std::atomic<bool>* stop) {
  const auto ranks = static_cast<size_t>(communicator.world_size());
  std::vector<std::string> own;
  for (auto i = static_cast<size_t>(communicator.rank()); i < sources.size(); i += ranks) own.push_back(sources[i]);
  auto pieces = translator.encode(own);
  // As the perplexity has it, which says so.
  for (auto& source : pieces) {
    source.resize(std::min(source.size(), static_cast<size_t>(translator.longest_source())));
  }
  std::string lines;  // a translation has no line's end in it
  auto done = pieces.begin();
  while (done != pieces.end() && !(stop != nullptr && *stop)) {
    const auto next = done + std::min(most_until_stopped, pieces.end() - done);
    for (const auto& translations : translator.translate_encoded({done, next})) {
      lines += translations.front().text + "\n";
    }
    done = next;
  }
  if (communicator.any(done != pieces.end())) return std::nullopt;
  std::vector<std::string> all(sources.size());
  const auto gathered = communicator.gather(lines);
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::istringstream stream(gathered[rank]);
    for (size_t i = rank; i < all.size(); i += ranks) std::getline(stream, all[i]);
  }
  return all;
}

}  // namespace

Recipe::Recipe() {
  settings.section("data", run.data, "Text (§5.1)");
  settings.section("vocabulary", run.vocabulary, "Word pieces (§5.1)");
  settings.section("model", run.model, "The model (§3)");
  settings.section("training", run.training, "Training (§5)");
  settings.section("decoding", decoding, "Decoding (§6.1)");
}

void Recipe::load(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  settings.load(file);
  settings.set(overrides);
  settle();
}

void Recipe::settle() {
  // What is learned is what is written.
  for (const auto& [given, text] : {std::pair{&decoding.source_language, &run.data.source_language},
                                    {&decoding.target_language, &run.data.target_language}}) {
    if (given->empty()) *given = *text;
  }
  // A saved configuration says what was trained, with nothing left to derive.
  run.model = run.model.resolved();
  run.config = settings.yaml();
  run.rules = settings.rules();
  decoding.validated();  // else a model is trained that nothing can translate with
  // Or a run ends where it is validated first.
  if (run.training.validate_bleu && run.training.device != "cpu") check_for_modules(decoding);
}

RunHooks validation_hooks(const Recipe& recipe, const std::atomic<bool>* stop) {
  RunHooks hooks;
  hooks.stop = stop;
  struct Lines {
    std::vector<std::string> sources, references;
  };
  const auto lines = std::make_shared<Lines>();
  hooks.begins = [&recipe, lines] {
    const auto& data = recipe.run.data;
    if (!recipe.run.training.validate_bleu) return;
    for (const auto& [files, read] :
         {std::pair{&data.validation_source, &lines->sources}, {&data.validation_target, &lines->references}}) {
      read->clear();
      for (const auto& file : *files) {
        for (auto& line : read_lines(file)) read->push_back(std::move(line));
      }
    }
  };
  hooks.validate = [&recipe, lines, stop](Communicator& communicator, Transformer& model,
                                          const Vocabularies& vocabularies, const Corpus& corpus,
                                          const std::filesystem::path& hypotheses_file) {
    Validation validation;
    const auto sum = [&](std::vector<double>& values) {
      const auto size = static_cast<int64_t>(values.size());
      communicator.all_reduce_sum(at::from_blob(values.data(), {size}, at::kDouble));
    };
    const auto measured = perplexity(
        model, corpus, {.rank = communicator.rank(), .ranks = communicator.world_size(), .sum = sum, .stop = stop});
    validation.abandoned = !measured;
    if (!measured) return validation;
    validation.loss = measured->loss;
    validation.perplexity = measured->perplexity;
    // A model that diverged has no translations, and its run ends here.
    if (!recipe.run.training.validate_bleu || !std::isfinite(measured->perplexity)) return validation;
    const auto translator = packed_translator(model, vocabularies, recipe.decoding, {.threads = at::get_num_threads()});
    const auto hypotheses = translate_shared(communicator, translator, lines->sources, stop);
    validation.abandoned = !hypotheses;
    if (!hypotheses) return validation;
    if (communicator.rank() == 0) {
      std::string text;
      for (const auto& hypothesis : *hypotheses) text += hypothesis + "\n";
      write_atomically(hypotheses_file, text);
    }
    validation.bleu = corpus_bleu(*hypotheses, {lines->references}).score;
    validation.signature = bleu_signature({}, /*references=*/1);
    return validation;
  };
  return hooks;
}

}  // namespace transformer
