// A folder of a MarianMT model, or of one of many languages: config.json, the tokenizer's files, weights.

#include "transformer/interop/hugging_face.h"

#include <filesystem>

#include "fuzz/fuzz.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/text/vocabulary.h"

using namespace transformer;

namespace {

const fuzz::Target target("hugging_face", [](std::string_view input) {
  const auto folder = fuzz::write_folder("marian", fuzz::files_of(input));
  const auto output = fuzz::scratch() / "imported";
  std::filesystem::remove_all(output);
  import_hugging_face(folder, output);
  const auto settings = read_model_settings(output);
  verify_model_directory(output);
  const auto vocabularies =
      Vocabularies::load(output, settings.source_vocabulary_size, settings.target_vocabulary_size);
  for (const auto& vocabulary : {vocabularies.source, vocabularies.target}) {
    fuzz::require(vocabulary->has_table(), "ids are the table's");
    for (const char* text : {"", ">>de<< ba", ">>", "ba \xe2\x96\x81 x </s>"}) {
      const auto ids = vocabulary->encode(text);
      for (const auto id : ids) {
        fuzz::require(id == Vocabulary::unknown || !vocabulary->is_control(id), "no text is a reserved piece");
      }
      vocabulary->decode(ids);
    }
  }
});

}  // namespace
