#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "transformer/architecture/weights.h"
#include "transformer/inference/decoding_backend.h"
#include "transformer/inference/translator.h"
#include "transformer/model/transformer.h"

namespace transformer {

/// A step function over a Transformer: encodes `source` [B, S] (pieces, end, padding; on the model's device) once, then
/// decodes with cached keys and values. Padding and begin are never proposed, nor is what a sentence's constraint,
/// where there is one, does not allow; log-probabilities are the model's all the same. The model should be in
/// evaluation mode.
StepFunction transformer_step(Transformer model, const torch::Tensor& source,
                              std::vector<std::shared_ptr<const OutputConstraint>> constraints = {});

/// Decodes through the modules, on their device and in the type of their weights, with LibTorch's threads: on GPUs, and
/// as what tests compare packed weights with. A model of which anything is in training mode is put into evaluation mode
/// while it decodes, which only one thread may do.
class ModuleBackend : public DecodingBackend {
 public:
  /// `model` is shared, not copied.
  explicit ModuleBackend(Transformer model) : model_(std::move(model)) {}

  const ModelSettings& settings() const override { return model_->settings(); }
  std::vector<std::vector<Hypothesis>> decode(std::vector<DecodingRequest> requests) const override;

 private:
  Transformer model_;
};

/// The modules of a model directory on `device`, in a precision that modules know there: others throw Error.
std::unique_ptr<DecodingBackend> load_module_backend(const std::filesystem::path& directory, c10::Device device,
                                                     Precision precision);

/// Weights in memory, as packing reads them. The tensors are kept.
StoredWeights stored_weights(const TensorMap& weights);

/// Translates with a model in memory through its modules.
Translator module_translator(Transformer model, Vocabularies vocabularies, const DecodingSettings& settings);
/// The same with packed copies of the weights as they are now where the model is on a CPU (the trainer's validation,
/// quickly), else through its modules.
Translator packed_translator(Transformer model, Vocabularies vocabularies, const DecodingSettings& settings,
                             const InferenceOptions& inference);

}  // namespace transformer
