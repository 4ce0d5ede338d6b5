// Makes a model directory of another system's model.

#include <filesystem>
#include <iostream>
#include <string>

#include "apps/program.h"
#include "transformer/interop/hugging_face.h"

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description("Makes a model directory of another system's model.");
    std::string system;
    std::filesystem::path folder, output;
    app.add_option("--from", system, "The system: hugging-face (MarianMT, as transformers saves it)")
        ->required()
        ->check(CLI::IsMember({"hugging-face"}));
    app.add_option("model", folder, "The model's folder")->required();
    app.add_option("--output", output, "Model directory to write; it must not exist yet")->required();
    parse();
    import_hugging_face(folder, output);
    std::cout << output.string() << "\n";
  });
}
