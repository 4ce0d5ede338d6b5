// A checkpoint, and the list of a run's: its files, whose checksums are made where they are missing.

#include "transformer/training/checkpoint.h"

#include <torch/types.h>

#include "fuzz/fuzz.h"
#include "transformer/base/checksum.h"
#include "transformer/training/adam.h"

using namespace transformer;

namespace {

std::vector<std::pair<std::string, at::Tensor>> parameters_of(const Transformer& model) {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  for (const auto& item : model->named_parameters()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

const fuzz::Target target("checkpoint", [](std::string_view input) {
  ModelSettings settings;
  settings.d_model = 4;
  settings.d_ff = 4;
  settings.heads = 2;
  settings.encoder_layers = settings.decoder_layers = 1;
  settings.vocabulary_size = 8;
  Transformer model(settings);
  Adam adam(parameters_of(model), {});
  Progress progress;

  auto files = fuzz::files_of(input);
  files.erase("");
  const auto run = fuzz::write_folder("run", {});
  std::filesystem::create_directory(run / "checkpoints");
  const auto checkpoint = fuzz::write_folder("run/checkpoints/step-00000007", files);
  if (!files.contains(checksums_name)) {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files) names.push_back(name);
    write_checksums(checkpoint, names);
  }
  load_newest_checkpoint(run, {.model = *model, .optimizer = adam, .average = nullptr, .progress = progress});
});

}  // namespace
