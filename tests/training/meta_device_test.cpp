// What a GPU would be asked, without one: LibTorch's meta device computes shapes alone, so whatever fetches a number
// from it, or mixes the host's tensors with its own, throws. The batch's numbers are on the host in training, too.
#include <ATen/core/stack.h>
#include <torch/library.h>
#include <torch/types.h>

#include <stdexcept>
#include <vector>

#include "model/variations.h"
#include "support.h"
#include "transformer/decoding/perplexity.h"
#include "transformer/model/transformer.h"
#include "transformer/training/adam.h"
#include "transformer/training/label_smoothing_loss.h"

using namespace transformer;
using transformer::test::variations;

namespace {

/// What an operation makes of its arguments' shapes, found with zeros on the host.
void on_zeros(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto moved = [](const at::Tensor& tensor, c10::Device from, c10::Device to) {
    if (!tensor.defined() || tensor.device().type() != from.type()) return tensor;
    return to.is_cpu() ? at::zeros(tensor.sizes(), tensor.options().device(to))
                       : at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(to));
  };
  const auto move_all = [&](size_t begin, c10::Device from, c10::Device to) {
    for (size_t i = begin; i < stack->size(); ++i) {
      auto& value = (*stack)[i];
      if (value.isTensor()) value = moved(value.toTensor(), from, to);
    }
  };
  const size_t begin = stack->size() - operation.schema().arguments().size();
  for (size_t i = begin; i < stack->size(); ++i) {
    const auto& value = (*stack)[i];
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cpu()) {
      throw std::runtime_error("a tensor of the host among the device's, for " + operation.schema().name());
    }
  }
  std::vector<at::Tensor> written;  // arguments that are results, too
  for (size_t i = begin; i < stack->size(); ++i) {
    const auto* alias = operation.schema().arguments()[i - begin].alias_info();
    if (alias && alias->isWrite()) written.push_back((*stack)[i].toTensor());
  }
  move_all(begin, torch::kMeta, torch::kCPU);
  operation.callBoxed(*stack);
  const size_t results = stack->size() - operation.schema().returns().size();
  move_all(results, torch::kCPU, torch::kMeta);
  for (size_t i = 0; i < written.size(); ++i) {
    auto& value = (*stack)[results + i];
    if (written[i].sizes() != value.toTensor().sizes()) written[i].resize_(value.toTensor().sizes());
    value = written[i];
  }
}

/// Changes lists of tensors in place and returns nothing: on this device that is nothing.
void in_place(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
  for (const auto& value : torch::jit::last(*stack, operation.schema().arguments().size())) {
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (!tensor.is_meta()) throw std::runtime_error("a tensor of the host for " + operation.schema().name());
    }
  }
  torch::jit::drop(*stack, operation.schema().arguments().size());
}

at::Tensor there(at::IntArrayRef sizes) {
  return torch::ones(sizes, torch::TensorOptions(torch::kInt64).device(torch::kMeta));
}

/// Module::to refuses this device: what members refer to has to be changed in place.
void to_meta(torch::nn::Module& module) {
  auto tensors = module.parameters();
  for (const auto& buffer : module.buffers()) tensors.push_back(buffer);
  for (const auto& tensor : tensors) {
    const auto moved = at::empty_like(tensor.detach(), tensor.options().device(torch::kMeta));
    tensor.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
  }
}

NamedParameters parameters_of(const Transformer& model) {
  NamedParameters parameters;
  for (const auto& item : model->named_parameters()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

}  // namespace

// LibTorch's own kernels of these are Python's.
TORCH_LIBRARY_IMPL(aten, Meta, library) {
  for (const char* name :
       {"logical_not.out", "embedding_dense_backward", "native_layer_norm_backward", "abs.out", "nonzero_static",
        "index_select.out", "native_batch_norm", "where.self_out", "where.self", "index_select", "relu"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_zeros>());
  }
  library.impl("_fused_adam_", torch::CppFunction::makeFromBoxedFunction<&in_place>());
}

TEST_CASE("a training step asks the device for nothing, in every variation, padded or not") {
  for (const auto& [name, settings] : variations()) {
    for (const bool padded : {false, true}) {
      INFO(name << ", padded " << padded);
      Transformer model(settings);
      to_meta(*model);
      model->train();
      Adam adam(parameters_of(model), {});
      const auto source = there({3, 8}), target = there({3, 7});
      const auto memory = model->encode(source, /*weights=*/false, padded);
      CHECK(memory.mask.has_value() == padded);
      const auto hidden = model->decode(target, memory).values;
      // How many targets there are is a question that somebody has to answer.
      CHECK_THROWS(projected_label_smoothing_loss(hidden, model->projection_weight(), target, 0.1,
                                                  TransformerImpl::padding_id, torch::kFloat));
      const auto losses =
          projected_label_smoothing_loss(hidden, model->projection_weight(), target, 0.1, TransformerImpl::padding_id,
                                         torch::kFloat, /*target_tokens=*/20, model->projection_bias());
      (losses.loss / 20).backward();
      const auto norm = adam.gradient_norm();
      adam.clip(1.0, norm);
      adam.step(1e-3, norm);
      for (const auto& [parameter, value] : parameters_of(model)) CHECK(value.grad().sizes() == value.sizes());
    }
  }
}

TEST_CASE("a validation asks the device for nothing, in every variation") {
  for (const auto& [name, settings] : variations()) {
    INFO(name);
    Transformer model(settings);
    to_meta(*model);
    model->train();
    const std::vector<std::vector<int64_t>> sources = {{4, 5, 6}, {4, 5, 6}, {7, 4}, {5}},
                                            targets = {{5}, {6, 4}, {4}, {7, 7, 7}};
    const auto corpus = Corpus::of(sources, targets);
    const auto losses = batch_losses(model, corpus, {.batch_tokens = 8, .rank = 1, .ranks = 2});
    CHECK(losses.batches > 2);
    CHECK(losses.target_tokens == 11);
    CHECK(losses.own.is_meta());
    CHECK(losses.own.sizes() == at::IntArrayRef({losses.batches / 2}));
    CHECK(model->is_training());
  }
}

TEST_CASE("a step of decoding asks the device for nothing, in every variation") {
  for (const auto& [name, settings] : variations()) {
    INFO(name);
    Transformer model(settings);
    to_meta(*model);
    model->eval();
    const c10::InferenceMode inference;
    auto cache = model->start(model->encode(there({2, 8}), /*weights=*/false, /*padded=*/true));
    for (int64_t t = 0; t < 20; ++t) {
      if (t == 1) cache.reorder(there({6}));
      if (t == 9) cache.reorder(there({6}), /*memory=*/false);
      const int64_t rows = t < 1 ? 2 : 6;
      CHECK(model->step(there({rows}), cache).sizes() == at::IntArrayRef({rows, model->projection_weight().size(0)}));
    }
    const auto hidden = model->decode(there({6, 5}), model->encode(there({6, 8}), false, true)).values;
    CHECK(model->project(hidden).size(1) == 5);
  }
}
