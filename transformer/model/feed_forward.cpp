#include "transformer/model/feed_forward.h"

#include <torch/nn/init.h>

namespace transformer {

FeedForwardImpl::FeedForwardImpl(int64_t d_model, int64_t d_ff) {
  inner_ = register_module("inner", torch::nn::Linear(d_model, d_ff));
  outer_ = register_module("outer", torch::nn::Linear(d_ff, d_model));
  for (auto& linear : {inner_, outer_}) {
    torch::nn::init::xavier_uniform_(linear->weight);
    torch::nn::init::zeros_(linear->bias);
  }
}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x) {
  return outer_->forward(inner_->forward(x).relu_());
}

}  // namespace transformer
