#include "transformer/architecture/model_directory.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/run_files.h"
#include "transformer/base/tensor_file.h"
#include "transformer/base/unicode.h"

namespace transformer {
namespace {

namespace fs = std::filesystem;

constexpr const char* section = "model";
constexpr const char* metadata_key = "model_settings";
constexpr const char* weights_format = "transformer-model-1";

std::map<std::string, std::string> values_of(ModelSettings model) {
  Settings settings;
  settings.section(section, model, "");
  return settings.values();
}

ModelSettings read_section(const fs::path& config_yaml) {
  ModelSettings model;
  Settings settings;
  settings.section(section, model, "");
  settings.load(config_yaml, UnknownSections::ignored);
  return checked_of(config_yaml.string(), [&] { return model.resolved(); });
}

/// Leaves out what other settings make no use of, for which any value computes the same.
void leave_out_unused(std::map<std::string, std::string>& computing) {
  const auto is = [&](const char* name, const char* value) {
    const auto found = computing.find(name);
    return found != computing.end() && found->second == value;
  };
  if (!is("feed_forward", "attention_over_parameters")) {
    for (const char* name : {"parameter_heads", "parameter_d_k", "parameter_d_v", "parameter_pairs"})
      computing.erase(name);
  }
  if (!is("positions", "learned")) computing.erase("max_positions");
  // Serves those of the source and the target, which are resolved; a model's own vocabularies may leave it at anything.
  computing.erase("vocabulary_size");
}

/// Where `given` differs from what the weights were trained with, in words; empty where nowhere.
std::string differences(const std::map<std::string, std::string>& given, const std::string& trained_text) {
  std::map<std::string, std::string> trained;
  std::istringstream lines(trained_text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) return "what the weights say of it is damaged";
    trained[line.substr(0, colon)] = line.substr(colon + 2);
  }
  leave_out_unused(trained);  // older versions said it
  const auto defaults = values_of({});
  const auto value = [&](const std::map<std::string, std::string>& values, const std::string& name) {
    const auto found = values.find(name);
    if (found != values.end()) return printable(found->second);
    const auto at_default = defaults.find(fmt::format("{}.{}", section, name));
    return at_default == defaults.end() ? std::string("unknown to this version") : at_default->second;
  };
  std::string text;
  auto all = given;
  all.insert(trained.begin(), trained.end());
  for (int found = 0; const auto& [name, ignored] : all) {
    const auto here = value(given, name), there = value(trained, name);
    if (here == there) continue;
    constexpr int most_named = 5;  // the file may name any number
    if (++found > most_named) return text + ", and others";
    text += fmt::format("{}{}.{} is {} and was {}", text.empty() ? "" : ", ", section, printable(name), here, there);
  }
  return text;
}

/// The newest of the checkpoints in `folder`; empty where there is none.
fs::path newest_checkpoint(const fs::path& folder) {
  fs::path newest;
  int64_t greatest = -1;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto& found = entry->path();
    const auto name = found.filename().string();
    const std::string_view interrupted = interruption_prefix;
    const auto step = step_of(name.starts_with(interrupted) ? name.substr(interrupted.size()) : name);
    if (!step || *step <= greatest || !something_at(found / weights_name)) continue;
    greatest = *step;
    newest = found;
  }
  return newest;
}

}  // namespace

std::map<std::string, std::string> computing_settings(const ModelSettings& settings) {
  const auto defaults = values_of({});
  std::map<std::string, std::string> computing;
  for (const auto& [name, value] : values_of(settings.resolved())) {
    const auto setting = name.substr(name.find('.') + 1);
    if (value != defaults.at(name) && setting.find("dropout") == std::string::npos) computing[setting] = value;
  }
  leave_out_unused(computing);
  return computing;
}

std::string computing_settings_text(const ModelSettings& settings) {
  std::string text;
  for (const auto& [name, value] : computing_settings(settings)) text += fmt::format("{}: {}\n", name, value);
  return text;
}

std::map<std::string, std::string> bound_metadata(const fs::path& config_yaml) {
  return {{"format", weights_format}, {metadata_key, computing_settings_text(read_section(config_yaml))}};
}

std::map<std::string, std::string> provenance(const fs::path& directory) {
  constexpr size_t most_bytes = 200;
  const TensorReader weights(directory / weights_name);
  std::map<std::string, std::string> known;
  for (const char* key : {"origin", "origin_name", "languages", "licence"}) {
    const auto found = weights.metadata().find(key);
    if (found != weights.metadata().end()) known[key] = printable(found->second, most_bytes);
  }
  return known;
}

void check_model_directory(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    throw Error(directory.string(), something_at(directory) ? "is not a model directory" : "there is no such folder",
                "name a folder that holds config.yaml, model.safetensors and a vocabulary, as train writes it");
  }
  for (const char* name : {config_name, weights_name}) {
    if (!something_at(directory / name)) {
      const auto of_run = newest_checkpoint(directory / checkpoints_name), inside = newest_checkpoint(directory);
      std::string remedy = "name a folder that train has written";
      if (!of_run.empty()) {
        remedy = fmt::format("its run is not finished; a checkpoint is a model directory, too: {}", of_run.string());
      } else if (!inside.empty()) {
        remedy = fmt::format("each of its checkpoints is one: {}", inside.string());
      }
      throw Error(directory.string(), fmt::format("is not a model directory: {} is missing", name), remedy);
    }
  }
}

void verify_model_directory(const fs::path& directory) {
  if (!something_at(directory / checksums_name)) return;
  std::vector<std::string> names;
  for (const char* name : {weights_name, vocabulary_name, source_vocabulary_name, target_vocabulary_name}) {
    if (something_at(directory / name)) names.emplace_back(name);
  }
  verify_checksums(directory, names);
}

ModelSettings read_model_settings(const fs::path& directory) {
  check_model_directory(directory);
  const auto config = directory / config_name;
  const auto model = read_section(config);
  const auto metadata = TensorReader(directory / weights_name).metadata();
  const auto trained = metadata.find(metadata_key);
  if (trained == metadata.end()) return model;
  const auto different = differences(computing_settings(model), trained->second);
  if (!different.empty()) {
    throw Error(config.string(), "its section 'model' is not what these weights were trained with: " + different,
                "put back what it was; other settings need a model that is trained with them");
  }
  return model;
}

}  // namespace transformer
