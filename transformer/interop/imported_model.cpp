#include "transformer/interop/imported_model.h"

#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/weights.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/settings.h"
#include "transformer/base/tensor_file.h"

namespace transformer {

void check_nothing_at(const std::filesystem::path& output) {
  if (something_at(output)) throw Error(output.string(), "exists already", "name another folder");
}

void write_imported_model(const ImportedModel& model, const std::filesystem::path& output) {
  NewFolder made(output);
  std::vector<std::string> files = {weights_name};
  for (const auto& [name, content] : model.vocabularies) {
    write_atomically(made.path() / name, content);
    files.push_back(name);
  }
  Settings settings;
  auto of_model = model.settings;
  settings.section("model", of_model, "The model, imported");
  const auto* joint = model.vocabularies.contains(vocabulary_name) ? "true" : "false";
  write_atomically(made.path() / config_name,
                   settings.yaml() + "\nvocabulary:\n  joint: " + joint + "\n" + model.decoding);

  auto metadata = bound_metadata(made.path() / config_name);
  metadata.insert(model.metadata.begin(), model.metadata.end());
  std::map<std::string, TensorSource> tensors;
  std::vector<float> numbers;
  for (const auto& [name, shape] : weight_shapes(model.settings.resolved())) {
    tensors[name] = {ElementType::float32, shape, [&, make = &model.weights.at(name)] {
                       numbers = (*make)();
                       return static_cast<const void*>(numbers.data());
                     }};
  }
  write_tensor_file(made.path() / weights_name, tensors, metadata);
  model.finished();
  write_checksums(made.path(), files);
  made.commit(/*replaces=*/false);
}

}  // namespace transformer
