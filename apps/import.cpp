// Makes a model directory of another system's model.

#include <filesystem>
#include <iostream>
#include <string>

#include "apps/program.h"
#include "transformer/base/error.h"
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
                   "The system: hugging-face (MarianMT, as transformers saves it); marian (Marian's own transformers)")
        ->required()
        ->check(CLI::IsMember({"hugging-face", "marian"}));
    app.add_option("model", model, "The model's folder; of marian its .npz file, or a folder with a decoder.yml")
        ->required();
    app.add_option("--output", output, "Model directory to write; it must not exist yet")->required();
    app.add_option("--vocabularies", text.vocabularies,
                   "marian: the vocabularies (.yml or .spm), one for both languages or source and target; without it "
                   "those that decoder.yml names")
        ->expected(1, 2);
    app.add_option("--sentencepiece", text.sentencepiece,
                   "marian: the SentencePiece models that make text into pieces, one for both languages or source and "
                   "target; without it those beside the model (source.spm and target.spm)")
        ->expected(1, 2);
    parse();
    if (system == "hugging-face") {
      if (!text.vocabularies.empty() || !text.sentencepiece.empty()) {
        throw Error(text.vocabularies.empty() ? "--sentencepiece" : "--vocabularies",
                    "is not for --from hugging-face, whose folder has them all", "leave it out");
      }
      import_hugging_face(model, output);
    } else {
      import_marian(model, output, text);
    }
    std::cout << output.string() << "\n";
  });
}
