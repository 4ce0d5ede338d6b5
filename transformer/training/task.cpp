#include "transformer/training/task.h"

#include <fmt/format.h>

#include <utility>

#include "transformer/base/error.h"
#include "transformer/model/autocast.h"
#include "transformer/training/profile.h"
#include "transformer/training/rdrop_loss.h"

namespace transformer {

LossSums translation_loss(Transformer& model, const DeviceBatch& batch, double smoothing, double rdrop) {
  const auto &source = batch.tensors.at(0), &input = batch.tensors.at(1), &output = batch.tensors.at(2);
  const bool twice = rdrop > 0 && model->is_training();
  const auto passes = [&](const torch::Tensor& ids) { return twice ? at::cat({ids, ids}) : ids; };
  torch::Tensor hidden;
  {
    const ProfiledRange range("forward");
    const bool padded = batch.source_tokens < source.numel();
    hidden = model->decode(passes(input), model->encode(passes(source), /*weights=*/false, padded)).values;
  }
  const ProfiledRange range("loss");
  const auto projection = model->projection_of(hidden);
  const auto autocast = Autocast::State::of(hidden.device());
  const auto product_type = autocast.enabled ? autocast.type : hidden.scalar_type();
  if (twice) {
    return projected_rdrop_loss(projection.hidden, projection.weight, output, smoothing, rdrop,
                                TransformerImpl::padding_id, product_type, batch.items, projection.bias);
  }
  return projected_label_smoothing_loss(projection.hidden, projection.weight, output, smoothing,
                                        TransformerImpl::padding_id, product_type, batch.items, projection.bias);
}

void check_training_of(const ModelSettings& model, const TrainingSettings& settings) {
  if (settings.rdrop > 0 && model.dropout == 0 && model.attention_dropout == 0 && model.relu_dropout == 0 &&
      model.symbol_dropout == 0) {
    throw Error("training.rdrop", "compares two passes with different dropout, and this model has none",
                "set model.dropout, or training.rdrop: 0");
  }
}

TrainingTask translation_task(const Transformer& given, TrainingText text, const TrainingSettings& settings) {
  auto model = given;
  check_training_of(model->settings(), settings);
  if (text.sampling != settings.subword_sampling) {
    throw Error("training.subword_sampling",
                fmt::format("is {}, and the text is sampled with {}", settings.subword_sampling, text.sampling),
                "give both the same (TrainingText::sampling)");
  }
  if (text.sampling > 0 && (!text.vocabularies.source || !text.vocabularies.target)) {
    throw Error("training.subword_sampling", "needs the text's vocabularies", "fill in TrainingText::vocabularies");
  }
  model->set_recompute(settings.recompute);
  model->set_quantization(settings.quantization == TrainingSettings::Quantization::int8);
  return {.model = model.ptr(),
          .batches = std::make_shared<CorpusBatches>(std::move(text), model->settings(), settings.rdrop > 0 ? 2 : 1,
                                                     settings.layer_drop),
          .loss = [model, smoothing = settings.label_smoothing, rdrop = settings.rdrop](
                      const DeviceBatch& batch) mutable { return translation_loss(model, batch, smoothing, rdrop); },
          .schedule = settings.learning_rate(model->settings().d_model)};
}

}  // namespace transformer
