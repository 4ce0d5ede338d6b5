#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "transformer/architecture/settings.h"

namespace transformer {

/// What a trained model computes with: the settings of section `model`, resolved, that do not have their default, by
/// name, as --set takes them. Dropout is not among them, since a trained model drops nothing. A setting that a later
/// version adds is at its default in all older models, and so does not change what this says of them; changing the
/// default of an existing one would.
std::map<std::string, std::string> computing_settings(const ModelSettings& settings);

/// The same as text, a line a setting: what weights carry of the settings they were trained with.
std::string computing_settings_text(const ModelSettings& settings);

/// What a file of weights says of itself (its metadata) that binds them to the settings of the `config_yaml` that lies
/// beside them: read_model_settings refuses them with others. Throws what Settings::load throws.
std::map<std::string, std::string> bound_metadata(const std::filesystem::path& config_yaml);

/// What the weights of a model directory say of where they came from: "origin", "origin_name", "languages" and
/// "licence", those of them that are known, as a line of printable text each. Nothing for models that were trained
/// here. Throws as TensorReader.
std::map<std::string, std::string> provenance(const std::filesystem::path& directory);

/// Throws Error unless `directory` is a folder with a config.yaml and a model.safetensors, Failure where it cannot
/// tell.
void check_model_directory(const std::filesystem::path& directory);

/// Compares weights and vocabularies of a model directory with the checksums beside them, where there are any. Throws
/// Error naming the file that is damaged. config.yaml is not compared: people edit its decoding settings.
void verify_model_directory(const std::filesystem::path& directory);

/// The settings of a model directory, resolved: config.yaml's section `model`, compared with what model.safetensors
/// says it was trained with. Weights of versions that did not write it down are taken as they are. Throws Error where
/// `directory` is no model directory, for settings that make no model, and where they are not those of the weights,
/// naming config.yaml and the settings.
ModelSettings read_model_settings(const std::filesystem::path& directory);

}  // namespace transformer
