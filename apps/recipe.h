#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "transformer/base/settings.h"
#include "transformer/inference/beam_search.h"
#include "transformer/training/run.h"

namespace transformer {

/// All sections of a training configuration, bound to their structs.
struct Recipe {
  RunSettings run;
  DecodingSettings decoding;
  Settings settings;

  Recipe();
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;

  /// Reads `file`, applies `overrides`, and settles what depends on other settings.
  void load(const std::filesystem::path& file, const std::vector<std::string>& overrides);
  /// The last of these, for whoever does the first two by themselves.
  void settle();
};

/// Where training meets decoding and evaluation: perplexity and, where asked for, BLEU of a validation corpus.
RunHooks validation_hooks(const Recipe& recipe, const std::atomic<bool>* stop);

}  // namespace transformer
