#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace transformer {

/// A module's parameters, by the names that checkpoints know them by.
using NamedParameters = std::vector<std::pair<std::string, torch::Tensor>>;

/// All parameters of `module`. What two modules share stands there once, by its first name.
NamedParameters named_parameters(const torch::nn::Module& module);

}  // namespace transformer
