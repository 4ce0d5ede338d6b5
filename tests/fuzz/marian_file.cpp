// A folder of a model that Marian saved: .npz, vocabularies, decoder.yml; or a vocabulary alone.

#include "transformer/interop/marian_file.h"

#include <filesystem>

#include "fuzz/fuzz.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/text/vocabulary.h"

using namespace transformer;

namespace {

const fuzz::Target target("marian_file", [](std::string_view input) {
  const auto folder = fuzz::write_folder("theirs", fuzz::files_of(input));
  if (!std::filesystem::exists(folder / "decoder.yml")) {
    marian_vocabulary(folder / "vocab.yml");
    return;
  }
  const auto output = fuzz::scratch() / "imported";
  std::filesystem::remove_all(output);
  import_marian(folder, output);
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
