#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace transformer {

/// FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (§3.3, eq. 2), on [.., D].
class FeedForwardImpl : public torch::nn::Module {
 public:
  FeedForwardImpl(int64_t d_model, int64_t d_ff);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::nn::Linear inner_{nullptr}, outer_{nullptr};
};
TORCH_MODULE(FeedForward);

}  // namespace transformer
