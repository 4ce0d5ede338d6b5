// Writes a model in another form: another system's, so that both decode the very same weights, or packed for decoding.

#include <filesystem>
#include <iostream>
#include <string>

#include "apps/program.h"
#include "transformer/base/error.h"
#include "transformer/base/new_folder.h"
#include "transformer/inference/packed_model.h"
#include "transformer/interop/ctranslate2.h"
#include "transformer/interop/hugging_face.h"

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description(
        "Writes a model directory in another form. Shells have an export of their own: start this one by its path, as "
        "build/release/bin/export.");
    std::string system, precision;
    std::filesystem::path model, output;
    bool force = false;
    app.add_option(
           "--to", system,
           "ctranslate2: for CTranslate2 4.8 (float32, which it rounds itself when it loads); hugging-face: a "
           "folder of MarianMT, which transformers loads (float32); packed: a model directory for decoding "
           "alone, its weights rounded and packed, that loads at once; as programs map them, replace one that is in "
           "use by renaming (as --force does), never by writing into its files")
        ->required()
        ->check(CLI::IsMember({"ctranslate2", "hugging-face", "packed"}))
        ->option_text("{ctranslate2,hugging-face,packed} REQUIRED");
    app.add_option("--precision", precision, "What packed weights are rounded to: float32, bf16 or int8")
        ->check(CLI::IsMember({"float32", "bf16", "int8"}))
        ->option_text("{float32,bf16,int8} [int8]");
    app.add_option("--model", model, "Model directory, as train writes it")->required()->type_name("DIR");
    app.add_option("--output", output, "Folder to write; it must not exist yet, unless --force is given")
        ->required()
        ->type_name("DIR");
    app.add_flag("--force", force, "Replace what export has written there");
    parse();
    const DeletesUnfinishedFolders at_signals;
    if (system == "packed") {
      export_packed(model, output, precision.empty() ? Precision::int8 : *precision_named(precision), force);
    } else {
      if (!precision.empty()) {
        throw Error("--precision", "is for --to packed; others round weights themselves when they load them",
                    "leave it out");
      }
      (system == "ctranslate2" ? export_ctranslate2 : export_hugging_face)(model, output, force);
    }
    std::cout << output.string() << "\n";
  });
}
