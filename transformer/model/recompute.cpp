#include "transformer/model/recompute.h"

#include <torch/autograd.h>
#include <torch/custom_class.h>

#include <mutex>

#include "transformer/model/autocast.h"
#include "transformer/model/differentiable_once.h"
#include "transformer/model/fused/fused_layers.h"

namespace transformer {

namespace {

using torch::Tensor;

// The state of a device's default random generator.
Tensor random_state(torch::Device device) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(torch::Device device, const Tensor& state) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// Draws from `state` on while it lives, and leaves the generator as it was.
class RandomState {
 public:
  RandomState(torch::Device device, const Tensor& state) : device_(device), before_(random_state(device)) {
    set_random_state(device, state);
  }
  ~RandomState() { set_random_state(device_, before_); }
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;

 private:
  torch::Device device_;
  Tensor before_;
};

// What the second call needs beside its inputs.
struct RecomputedCall : torch::CustomClassHolder {
  LayerFunction layer;
  Tensor random;
  Tensor host_random;  // whatever the device: it decides which layers are left out
  Autocast::State autocast;
  const TrainingKernels* kernels = nullptr;
};

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const std::optional<Tensor>& memory,
                        const c10::intrusive_ptr<RecomputedCall>& call) {
    call->random = random_state(x.device());
    call->host_random = random_state(torch::kCPU);
    call->autocast = Autocast::State::of(x.device());
    call->kernels = training_kernels();
    const Autocast autocast(x.device(), call->autocast, /*cached=*/false);
    context->save_for_backward({x, memory.value_or(Tensor())});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->layer(x, memory.value_or(Tensor()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upstream) {
    require_first_derivative("recomputed layers have", "layers whose inside is kept have them");
    const auto saved = context->get_saved_variables();
    const auto held = context->saved_data["call"].toCapsule();
    auto& call = static_cast<RecomputedCall&>(*held);
    TORCH_CHECK(call.kernels == training_kernels(), "choose_training_kernels was called between a recomputed layer's ",
                "forward and backward pass");
    const auto leaf = [](const Tensor& tensor) {
      return tensor.defined() ? tensor.detach().requires_grad_(tensor.requires_grad()) : Tensor();
    };
    const auto x = leaf(saved[0]), memory = leaf(saved[1]);
    Tensor values;
    {
      const torch::AutoGradMode with_gradients(true);
      const RandomState host_random(torch::kCPU, call.host_random);
      const RandomState random(x.device(), call.random);
      const Autocast autocast(x.device(), call.autocast, /*cached=*/false);
      values = call.layer(x, memory);
    }
    // A backward pass of its own, in which parameters get their gradients and run their hooks.
    torch::autograd::backward({values}, {upstream[0]});
    return {x.grad(), memory.defined() ? memory.grad() : Tensor(), Tensor()};
  }
};

}  // namespace

Tensor recomputed(LayerFunction layer, const Tensor& x, const std::optional<Tensor>& memory) {
  if (!torch::GradMode::is_enabled() || !x.requires_grad()) return layer(x, memory.value_or(Tensor()));
  auto call = c10::make_intrusive<RecomputedCall>();
  call->layer = std::move(layer);
  return Recomputed::apply(x, memory, call);
}

}  // namespace transformer
