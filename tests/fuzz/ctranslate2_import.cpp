// A folder of a model that CTranslate2 loads: model.bin, config.json, vocabularies.

#include <filesystem>

#include "fuzz/fuzz.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/interop/ctranslate2.h"
#include "transformer/text/vocabulary.h"

using namespace transformer;

namespace {

const fuzz::Target target("ctranslate2_import", [](std::string_view input) {
  const auto folder = fuzz::write_folder("theirs", fuzz::files_of(input));
  const auto output = fuzz::scratch() / "imported";
  std::filesystem::remove_all(output);
  import_ctranslate2(folder, output);
  const auto settings = read_model_settings(output);
  verify_model_directory(output);
  const auto vocabularies =
      Vocabularies::load(output, settings.source_vocabulary_size, settings.target_vocabulary_size);
  for (const auto& vocabulary : {vocabularies.source, vocabularies.target}) {
    for (const auto id : vocabulary->encode("ba \xe2\x96\x81 x </s>")) {
      fuzz::require(id >= Vocabulary::unknown, "no text is a reserved piece");
    }
  }
});

}  // namespace
