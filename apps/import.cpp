// Makes a model directory of another system's model.

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "apps/program.h"
#include "transformer/base/error.h"
#include "transformer/base/new_folder.h"
#include "transformer/interop/ctranslate2.h"
#include "transformer/interop/hugging_face.h"
#include "transformer/interop/marian_file.h"

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description("Makes a model directory of another system's model.");
    std::string system;
    std::filesystem::path model, output;
    TextFiles text;
    app.add_option("--from", system,
                   "The system: hugging-face (MarianMT, M2M100 with NLLB, and mBART-50, as transformers saves "
                   "them); marian (Marian's own transformers); "
                   "ctranslate2 (what CTranslate2 loads)")
        ->required()
        ->check(CLI::IsMember({"hugging-face", "marian", "ctranslate2"}))
        ->option_text("{hugging-face,marian,ctranslate2} REQUIRED");
    auto* named =
        app.add_option("model", model, "The model's folder; of marian its .npz file, or a folder with a decoder.yml")
            ->required()
            ->type_name("PATH");
    app.add_option("--output", output, "Model directory to write; it must not exist yet")->required()->type_name("DIR");
    auto* vocabularies =
        app.add_option("--vocabularies", text.vocabularies,
                       "marian: the vocabularies (.yml or .spm), one for both languages, or given twice for source and "
                       "target; without it those that decoder.yml names")
            ->type_name("FILE")
            ->allow_extra_args(false);
    auto* sentencepiece =
        app.add_option("--sentencepiece", text.sentencepiece,
                       "marian, ctranslate2: the SentencePiece models that make text into pieces, one for both "
                       "languages, or given twice for source and target; without it those beside the model (source.spm "
                       "and target.spm)")
            ->type_name("FILE")
            ->allow_extra_args(false);
    // Behind the model, a second file in a row cannot be mistaken for it. Positionals are checked when they are met.
    app.validate_positionals();
    named->check([=](const std::string&) {
      for (auto* option : {vocabularies, sentencepiece}) option->expected(1, 2);
      return std::string();
    });
    parse();
    const DeletesUnfinishedFolders at_signals;
    const auto only_for = [&](const char* option, bool is_given, const char* systems) {
      if (is_given) throw Error(option, fmt::format("is for --from {}", systems), "leave it out");
    };
    if (system != "marian") only_for("--vocabularies", !text.vocabularies.empty(), "marian");
    if (system == "hugging-face") {
      only_for("--sentencepiece", !text.sentencepiece.empty(), "marian and ctranslate2");
      import_hugging_face(model, output);
    } else if (system == "marian") {
      import_marian(model, output, text);
    } else {
      import_ctranslate2(model, output, text.sentencepiece);
    }
    std::cout << output.string() << "\n";
  });
}
