#include "transformer/training/label_smoothing_loss.h"

#include <torch/types.h>

#include <catch2/catch.hpp>

using namespace transformer;
using torch::Tensor;

namespace {

constexpr int64_t batch = 3, length = 4, width = 6, vocabulary = 9;
constexpr double smoothing = 0.1;

Tensor some_targets() {
  return torch::tensor({5, 1, 8, 0, 2, 2, 0, 0, 7, 3, 4, 6}, torch::kLong).reshape({batch, length});
}

// LibTorch's own.
Tensor cross_entropy(const Tensor& logits, double smoothed) {
  return torch::cross_entropy_loss(logits.reshape({-1, vocabulary}), some_targets().flatten(), {}, at::Reduction::Sum,
                                   0, smoothed);
}

bool close(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && torch::allclose(a, b, 1e-10, 1e-12);
}

}  // namespace

TEST_CASE("the loss of a batch of sentences is that of all their tokens") {
  torch::manual_seed(1);
  const auto logits = torch::randn({batch, length, vocabulary}, torch::kDouble);
  const auto sums = label_smoothing_loss(logits, some_targets(), smoothing, 0);
  CHECK(close(sums.loss, cross_entropy(logits, smoothing)));
  CHECK(close(sums.negative_log_likelihood, cross_entropy(logits, 0)));
}

TEST_CASE("where only one of hidden states and weight wants a gradient, it gets its own") {
  torch::manual_seed(2);
  const bool of_weight = GENERATE(false, true);
  const auto targets = some_targets();
  const auto hidden = torch::randn({batch, length, width}, torch::kDouble).requires_grad_(!of_weight);
  const auto weight = torch::randn({vocabulary, width}, torch::kDouble).requires_grad_(of_weight);
  const auto& wanted = of_weight ? weight : hidden;
  cross_entropy(hidden.matmul(weight.t()), smoothing).backward();
  const auto expected = wanted.grad().clone();
  wanted.mutable_grad().reset();
  const auto sums = projected_label_smoothing_loss(hidden, weight, targets, smoothing, 0, torch::kDouble);
  REQUIRE(sums.loss.requires_grad());
  CHECK_FALSE(sums.negative_log_likelihood.requires_grad());
  sums.loss.backward();
  CHECK(close(wanted.grad(), expected));
  CHECK_FALSE((of_weight ? hidden : weight).grad().defined());
}

TEST_CASE("a loss whose tokens were counted before is the same, with no token left out") {
  torch::manual_seed(3);
  const auto hidden = torch::randn({batch, length, width}, torch::kDouble);
  const auto weight = torch::randn({vocabulary, width}, torch::kDouble);
  const auto targets = some_targets();
  const auto counted = projected_label_smoothing_loss(hidden, weight, targets, smoothing, 0, torch::kDouble, 9);
  CHECK(close(counted.loss, cross_entropy(hidden.matmul(weight.t()), smoothing)));
  CHECK(close(counted.negative_log_likelihood, cross_entropy(hidden.matmul(weight.t()), 0)));
}
