#include "transformer/model/depth.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "transformer/architecture/weights.h"
#include "transformer/base/error.h"
#include "transformer/model/tensors.h"

namespace transformer {

std::vector<int64_t> layers_kept(int64_t shallow, int64_t deep) {
  if (shallow < 1 || shallow > deep) {
    throw std::invalid_argument(fmt::format("{} layers cannot be taken of {}", shallow, deep));
  }
  std::vector<int64_t> kept = {0};
  // Rounded to the nearest, in whole numbers: (i * (deep - 1)) / (shallow - 1).
  for (int64_t i = 1; i < shallow; ++i) kept.push_back((2 * i * (deep - 1) + shallow - 1) / (2 * (shallow - 1)));
  return kept;
}

void load_layers(Transformer& model, const std::filesystem::path& file, const ModelSettings& theirs) {
  const auto& ours = model->settings();
  std::map<std::string, std::string> names;  // theirs of ours
  for (const auto& [stack, shallow, deep] : {std::tuple{"encoder", ours.encoder_layers, theirs.encoder_layers},
                                             std::tuple{"decoder", ours.decoder_layers, theirs.decoder_layers}}) {
    if (shallow > deep) {
      throw Error(file.string(), fmt::format("holds {} layers of the {}, and the model has {}", deep, stack, shallow),
                  "a model begins with no more layers than there are");
    }
    const auto kept = layers_kept(shallow, deep);
    for (int64_t i = 0; i < shallow; ++i) {
      names[fmt::format("{}.layers.{}.", stack, i)] = fmt::format("{}.layers.{}.", stack, kept[i]);
    }
  }
  using SelfAttention = ModelSettings::DecoderSelfAttention;
  const bool has_new_units =
      ours.decoder_self_attention == SelfAttention::ssru && theirs.decoder_self_attention == SelfAttention::attention;
  std::map<std::string, torch::Tensor> taken;  // what there is of them
  for (const auto& item : model->named_parameters()) {
    if (has_new_units && item.key().find(".recurrence.") != std::string::npos) continue;
    taken.emplace(item.key(), item.value());
  }
  const auto their_name = [&](const std::string& name) {
    for (const auto& [prefix, from] : names) {
      if (name.starts_with(prefix)) return from + name.substr(prefix.size());
    }
    return name;
  };
  // As in load_weights, all is checked before anything is written.
  const auto all = stored_weights(file);
  check_weights(all, weight_shapes(theirs), file.string());
  StoredWeights kept;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, parameter] : taken) {
    shapes[name] = parameter.sizes().vec();
    if (const auto found = all.find(their_name(name)); found != all.end()) kept[name] = found->second;
  }
  check_weights(kept, shapes, file.string());
  const auto tensors = read_tensors(file).tensors;
  const auto type = model->projection_weight().scalar_type();
  for (const auto& [name, tensor] : tensors) check_finite(file.string(), name, tensor.to(type));
  torch::NoGradGuard no_grad;
  for (auto& [name, parameter] : taken) parameter.copy_(tensors.at(their_name(name)));
}

}  // namespace transformer
