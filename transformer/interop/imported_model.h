#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transformer/architecture/settings.h"

namespace transformer {

/// A model of another system as a model directory of ours needs it.
struct ImportedModel {
  ModelSettings settings;  // written as config.yaml's section `model`
  /// Makes the numbers of each weight, by our names and in our shapes, one after the other.
  std::map<std::string, std::function<std::vector<float>()>> weights;
  /// The vocabularies' files: "vocabulary.model", or "source.model" and "target.model".
  std::map<std::string, std::string> vocabularies;
  /// How its system decodes, as YAML (section `decoding`); may be empty.
  std::string decoding;
  /// Where it comes from (provenance).
  std::map<std::string, std::string> metadata;
  /// Called when all weights were made.
  std::function<void()> finished = [] {};
};

/// Throws Error where something lies at `output`, a folder that is to be made.
void check_nothing_at(const std::filesystem::path& output);

/// Writes the model directory `output`, which appears whole or not at all. Throws what making the weights throws, and
/// Error where something lies there.
void write_imported_model(const ImportedModel& model, const std::filesystem::path& output);

}  // namespace transformer
