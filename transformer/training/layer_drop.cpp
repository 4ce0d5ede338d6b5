#include "transformer/training/layer_drop.h"

#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace transformer {

namespace {

using torch::Tensor;

// Of all threads: backward passes, which compute layers a second time, have their own.
std::atomic<int> keepers = 0;

// A node of the autograd graph that hands its gradient to the first input. The second, the encoder's output, if there
// is one, gets zeros, since the parts that it came through expect a gradient. The others are parameters: what sums
// gradients over processes waits for each of them, and takes none for zeros.
struct PassedOn : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& upstream) override {
    torch::autograd::variable_list gradients(num_outputs());
    gradients.front() = upstream.front();
    if (memory) gradients.at(1) = at::zeros(memory->first, memory->second);
    return gradients;
  }
  std::optional<std::pair<std::vector<int64_t>, at::TensorOptions>> memory;
};

Tensor passed_by(const Tensor& x, const Tensor& memory, const torch::nn::Module& layer) {
  // A tensor of its own, or recomputation would find an input where it looks for a result.
  auto values = x.detach().clone();
  if (!torch::GradMode::is_enabled()) return values;
  auto node = std::make_shared<PassedOn>();
  std::vector<Tensor> inputs{x};
  if (memory.defined()) {
    inputs.push_back(memory);
    node->memory.emplace(memory.sizes().vec(), memory.options().requires_grad(false));
  }
  for (const auto& parameter : layer.parameters()) inputs.push_back(parameter);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::create_gradient_edge(values, std::move(node));
  return values;
}

template <class Layer>
class Droppable : public Layer {
 public:
  Droppable(const ModelSettings& settings, double probability) : Layer(settings), probability_(probability) {}

 protected:
  // Whether to leave this layer out, this time.
  bool dropped(bool needed) const {
    return this->is_training() && !needed && keepers == 0 &&
           at::rand({}, at::kDouble).template item<double>() < probability_;
  }

 private:
  double probability_;
};

struct DroppableEncoderLayer : Droppable<EncoderLayerImpl> {
  using Droppable::Droppable;
  Attended forward(const Tensor& x, AttentionOptions call) override {
    if (dropped(call.weights)) return {passed_by(x, {}, *this), {}};
    return EncoderLayerImpl::forward(x, std::move(call));
  }
};

struct DroppableDecoderLayer : Droppable<DecoderLayerImpl> {
  using Droppable::Droppable;
  Output forward(const Tensor& x, const Tensor& memory, const std::optional<Tensor>& memory_mask,
                 bool weights) override {
    if (dropped(weights)) return {passed_by(x, memory, *this), {}, {}};
    return DecoderLayerImpl::forward(x, memory, memory_mask, weights);
  }
};

}  // namespace

KeepLayers::KeepLayers() {
  ++keepers;
}

KeepLayers::~KeepLayers() {
  --keepers;
}

LayerFactories layer_drop(const ModelSettings& settings, double probability) {
  if (!(probability >= 0 && probability < 1)) {
    throw std::invalid_argument(fmt::format("layers cannot be left out with a probability of {}", probability));
  }
  if (probability == 0) return {};
  return {.encoder = [=](int64_t) { return std::make_shared<DroppableEncoderLayer>(settings, probability); },
          .decoder = [=](int64_t) { return std::make_shared<DroppableDecoderLayer>(settings, probability); }};
}

}  // namespace transformer
