// Weights for a model of known settings.

#include <torch/types.h>

#include "fuzz/fuzz.h"
#include "transformer/model/transformer.h"

using namespace transformer;

namespace {

const fuzz::Target target("weights", [](std::string_view input) {
  ModelSettings settings;
  settings.d_model = 4;
  settings.d_ff = 4;
  settings.heads = 2;
  settings.encoder_layers = settings.decoder_layers = 1;
  settings.vocabulary_size = 8;
  static Transformer model(settings);
  load_weights(*model, fuzz::write_scratch("model.safetensors", input));
  model->eval();
  torch::NoGradGuard no_grad;
  const auto logits = model->forward(torch::tensor({{4, 5, 2}}), torch::tensor({{1, 4}}));
  fuzz::require(logits.dim() == 3 && logits.size(1) == 2 && logits.size(2) == 8, "logits have their shape");
});

}  // namespace
