#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <optional>

namespace transformer {

/// A part of the model: [B, T, D] (and the encoder's output, undefined where there is none) -> [B, T, D].
using LayerFunction = std::function<torch::Tensor(const torch::Tensor& x, const torch::Tensor& memory)>;

/// `layer(x, memory)`, of which nothing but the inputs is kept for the backward pass: that calls `layer` again, with
/// the random numbers and the autocast types of the first call, and gives the parameters in it their gradients, as if
/// it had been called plainly. The backward pass has to be torch::autograd::backward's; torch::autograd::grad does not
/// reach the parameters. It throws c10::Error where choose_training_kernels has chosen others meanwhile. Where x needs
/// no gradient `layer` is called plainly.
torch::Tensor recomputed(LayerFunction layer, const torch::Tensor& x, const std::optional<torch::Tensor>& memory = {});

/// For a `layer` of `module`: throws unless that is in the mode that it was in at the first call, `training`.
inline void check_mode(const torch::nn::Module& module, bool training) {
  TORCH_CHECK(module.is_training() == training,
              "a recomputed layer's backward pass needs the mode of its forward pass, ",
              training ? "train()" : "eval()");
}

}  // namespace transformer
