#pragma once

#include <array>
#include <string>
#include <vector>

namespace transformer {

// What the files of a model directory are called. Beside them lie their checksums (checksums_name, in checksum.h).

/// The complete settings that the model was made with, and how it decodes unless told otherwise.
inline constexpr const char* config_name = "config.yaml";
/// The weights, as they were trained or packed for decoding.
inline constexpr const char* weights_name = "model.safetensors";
/// The word pieces of both sides; a directory has this file, or one for each side.
inline constexpr const char* vocabulary_name = "vocabulary.model";
inline constexpr const char* source_vocabulary_name = "source.model";  ///< of the source alone
inline constexpr const char* target_vocabulary_name = "target.model";  ///< of the target alone
/// In a run's folder, where its model lies in the end: which names there are the run's.
inline constexpr const char* run_record_name = "run.json";

/// Each that there may be.
inline constexpr std::array vocabulary_names = {vocabulary_name, source_vocabulary_name, target_vocabulary_name};
/// All that a model is read from.
inline constexpr std::array model_names = {config_name, weights_name, vocabulary_name, source_vocabulary_name,
                                           target_vocabulary_name};

/// Those of a model whose sides share their word pieces (`joint`), or of one whose sides have their own: source,
/// target.
inline std::vector<std::string> vocabulary_names_of(bool joint) {
  if (joint) return {vocabulary_name};
  return {source_vocabulary_name, target_vocabulary_name};
}

}  // namespace transformer
