#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

namespace transformer {

/// Evaluation mode of a module and all in it for as long as this lives, which keeps them; then each is in the mode
/// again that it was in. Where all are in evaluation mode nothing is written, so that threads may share the module.
class Evaluating {
 public:
  explicit Evaluating(const torch::nn::Module& module) {
    bool any = false;
    for (auto& each : module.modules()) {  // a module before those in it
      const bool training = each->is_training();
      any = any || training;
      modes_.emplace_back(std::move(each), training);
    }
    if (any) modes_.front().first->eval();
  }
  ~Evaluating() {
    for (const auto& [module, training] : modes_) {
      if (module->is_training() != training) module->train(training);
    }
  }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;  // whether each trained
};

}  // namespace transformer
