#pragma once

#include <utility>

#include "transformer/model/transformer.h"

namespace transformer {

/// Evaluation mode for as long as it lives, whatever mode the model was in.
class Evaluating {
 public:
  /// Of `model`, which it holds.
  explicit Evaluating(Transformer model) : model_(std::move(model)), training_(model_->is_training()) {
    if (training_) model_->eval();
  }
  ~Evaluating() {
    if (training_) model_->train();
  }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  Transformer model_;
  bool training_;
};

}  // namespace transformer
