// Writes a model in another system's format, so that both decode the very same weights.

#include <filesystem>
#include <iostream>
#include <string>

#include "apps/program.h"
#include "transformer/interop/ctranslate2.h"

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description("Writes a model directory in another system's format.");
    std::string system;
    std::filesystem::path model, output;
    bool force = false;
    app.add_option("--to", system, "The system: ctranslate2 (4.8; float32, which it rounds itself when it loads)")
        ->required()
        ->check(CLI::IsMember({"ctranslate2"}));
    app.add_option("--model", model, "Model directory, as train writes it")->required();
    app.add_option("--output", output, "Folder to write; it must not exist yet")->required();
    app.add_flag("--force", force, "Replace an exported model");
    parse();
    export_ctranslate2(model, output, force);
    std::cout << output.string() << "\n";
  });
}
