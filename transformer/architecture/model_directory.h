#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "transformer/base/tensor_file.h"
#include "transformer/model/settings.h"

namespace transformer {

/// What a trained model computes with: the settings of section `model`, resolved, that do not have their default, by
/// name, as --set takes them. Dropout is not among them, since a trained model drops nothing. A setting that a later
/// version adds is at its default in all older models, and so does not change what this says of them; changing the
/// default of an existing one would.
std::map<std::string, std::string> computing_settings(const ModelSettings& settings);

/// The same as text, a line a setting: what weights carry of the settings they were trained with.
std::string computing_settings_text(const ModelSettings& settings);

/// Writes a model's weights as safetensors, converted to `type` where one is given, bound to the settings of the
/// `config_yaml` that lies beside them: read_model_settings refuses them with others. Throws what Settings::load and
/// write_tensors throw.
void write_bound_weights(const std::filesystem::path& file, const TensorMap& weights,
                         const std::filesystem::path& config_yaml, std::optional<at::ScalarType> type = {});

/// The settings of a model directory, resolved: config.yaml's section `model`, compared with what model.safetensors
/// says it was trained with. Weights of versions that did not write it down are taken as they are. Throws Error where
/// `directory` is no model directory, for settings that make no model, and where they are not those of the weights,
/// naming config.yaml and the settings.
ModelSettings read_model_settings(const std::filesystem::path& directory);

}  // namespace transformer
