// Averages models: the checkpoints of a run, as the paper does before it translates (§6.1), or any models of one shape.

#include "transformer/training/average.h"

#include <fmt/format.h>

#include <iostream>

#include "apps/number_option.h"
#include "apps/torch_program.h"
#include "transformer/base/new_folder.h"

int main(int argc, char** argv) {
  using namespace transformer;
  return run_torch_program(argc, argv, [](CLI::App& app, auto parse) {
    AverageOptions options;
    std::string precision = "float32";
    app.description(
        "Averages the weights of several models into one: of a run's newest checkpoints, or of any models with one "
        "vocabulary.");
    app.add_option("models", options.inputs, "Model directories, checkpoints among them; with --last, a run")
        ->required()
        ->type_name("DIR");
    app.add_option("--last", options.last,
                   "Average so many of the run's newest checkpoints, without those that were written because their "
                   "validation was "
                   "among the best")
        ->type_name("N")
        ->transform(number_between(int64_t{1}, int64_t{1} << 30));
    app.add_option("--output", options.output, "Folder for the averaged model")->required()->type_name("DIR");
    app.add_option("--precision", precision,
                   "What the written weights are rounded to: float32, or bf16 for half the size")
        ->type_name("KIND")
        ->check(CLI::IsMember({"float32", "bf16"}))
        ->capture_default_str();
    parse();
    const DeletesUnfinishedFolders at_signals;  // before LibTorch starts threads
    options.bf16 = precision == "bf16";
    const auto averaged = write_average(options);
    for (const auto& directory : averaged) std::cout << directory.string() << "\n";
    std::cout << fmt::format("average of {}: {}\n", averaged.size(), options.output.string());
  });
}
