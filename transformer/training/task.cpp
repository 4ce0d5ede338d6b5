#include "transformer/training/task.h"

#include <utility>

#include "transformer/model/autocast.h"
#include "transformer/training/profile.h"

namespace transformer {

LossSums translation_loss(Transformer& model, const DeviceBatch& batch, double smoothing) {
  const auto &source = batch.tensors.at(0), &input = batch.tensors.at(1), &output = batch.tensors.at(2);
  torch::Tensor hidden;
  {
    const ProfiledRange range("forward");
    const bool padded = batch.source_tokens < source.numel();
    hidden = model->decode(input, model->encode(source, /*weights=*/false, padded)).values;
  }
  const ProfiledRange range("loss");
  const auto autocast = Autocast::State::of(hidden.device());
  return projected_label_smoothing_loss(
      hidden, model->projection_weight(), output, smoothing, TransformerImpl::padding_id,
      autocast.enabled ? autocast.type : hidden.scalar_type(), batch.items, model->projection_bias());
}

TrainingTask translation_task(const Transformer& given, TrainingText text, const TrainingSettings& settings) {
  auto model = given;
  model->set_recompute(settings.recompute);
  return {.model = model.ptr(),
          .batches = std::make_shared<CorpusBatches>(std::move(text), model->settings()),
          .loss = [model, smoothing = settings.label_smoothing](
                      const DeviceBatch& batch) mutable { return translation_loss(model, batch, smoothing); },
          .schedule = settings.learning_rate(model->settings().d_model)};
}

NamedParameters named_parameters(const torch::nn::Module& module) {
  NamedParameters parameters;
  for (const auto& item : module.named_parameters()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

}  // namespace transformer
