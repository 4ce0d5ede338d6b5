#include "transformer/inference/packed_model.h"

#include <string>
#include <vector>

#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/weights.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/read_file.h"
#include "transformer/base/tensor_file.h"
#include "transformer/inference/inference_model.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

namespace fs = std::filesystem;

namespace {

const OwnFolders& packed_models() {
  static const OwnFolders folders = {
      .kind = "packed model",
      .known = {weights_name, config_name, checksums_name, vocabulary_name, source_vocabulary_name,
                target_vocabulary_name},
      .is_one = [](const fs::path& folder) { return !metadata_of(folder / weights_name, packed_weights_key).empty(); }};
  return folders;
}

}  // namespace

void export_packed(const fs::path& model, const fs::path& given_output, Precision precision, bool force) {
  const auto output = folder_path(given_output);
  const auto check = [&] { check_replaceable(output, model, force, packed_models()); };
  check();
  const auto settings = read_model_settings(model);
  // Reads and checks what is copied.
  Vocabularies::load(model, settings.source_vocabulary_size, settings.target_vocabulary_size);
  NewFolder folder(output);
  InferenceModel::pack(model, settings, precision, folder.path() / weights_name);
  std::vector<std::string> names = {weights_name};
  for (const char* name : {config_name, vocabulary_name, source_vocabulary_name, target_vocabulary_name}) {
    if (!something_at(model / name)) continue;
    write_atomically(folder.path() / name, read_file(model / name));
    names.emplace_back(name);
  }
  write_checksums(folder.path(), names);
  check();  // something may have come to lie there meanwhile
  folder.commit(/*replaces=*/force);
}

}  // namespace transformer
