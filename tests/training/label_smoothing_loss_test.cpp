#include "transformer/training/label_smoothing_loss.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "catch.h"
#include "emulated_gpu.h"
#include "for_a_while.h"
#include "transformer/model/fused/products.h"
#include "transformer/training/rdrop_loss.h"

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

TEST_CASE("R-Drop's loss and gradients are the published formula's, with PyTorch's divergence and cross entropy") {
  torch::manual_seed(4);
  const bool biased = GENERATE(false, true);
  const double smoothed = biased ? 0.1 : 0, strength = 5;
  const int64_t sentences = 24, words = 12, pieces = 9000;  // more rows than a chunk has
  const auto targets = torch::randint(0, 40, {sentences, words}, torch::kLong) * 7;
  const auto kept = (targets.flatten() != 0).nonzero().squeeze(1), wanted = targets.flatten().index_select(0, kept);
  const auto leaf = [](at::IntArrayRef sizes) { return torch::randn(sizes, torch::kDouble).requires_grad_(); };
  const auto hidden = leaf({2 * sentences, words, width}), weight = leaf({pieces, width}), bias = leaf({pieces});
  std::vector<Tensor> leaves{hidden, weight};
  if (biased) leaves.push_back(bias);

  const auto rows = hidden.reshape({2, -1, width}).index_select(1, kept);
  const auto logits = torch::linear(rows, weight, biased ? bias : Tensor());
  const auto p = logits[0].log_softmax(-1), q = logits[1].log_softmax(-1);
  const auto loss = [&](int pass, double by) {
    return torch::cross_entropy_loss(logits[pass], wanted, {}, at::Reduction::Sum, -100, by);
  };
  const auto divergence = torch::kl_div(q, p.exp(), at::Reduction::Sum) + torch::kl_div(p, q.exp(), at::Reduction::Sum);
  const auto expected = (loss(0, smoothed) + loss(1, smoothed)) / 2 + strength / 4 * divergence;
  const auto gradients = torch::autograd::grad({3 * expected}, leaves);

  const auto sums = projected_rdrop_loss(hidden, weight, targets, smoothed, strength, 0, torch::kDouble,
                                         biased ? std::optional<int64_t>() : kept.size(0), biased ? bias : Tensor());
  CHECK(close(sums.loss.detach(), expected.detach()));
  CHECK(close(sums.negative_log_likelihood, ((loss(0, 0) + loss(1, 0)) / 2).detach()));
  (3 * sums.loss).backward();
  for (size_t i = 0; i < leaves.size(); ++i) {
    INFO(i);
    CHECK(close(leaves[i].grad(), gradients[i]));
  }
}

TEST_CASE("two passes that agree have the plain loss, in every type; one pass alone is refused") {
  torch::manual_seed(5);
  const auto type = GENERATE(torch::kDouble, torch::kFloat, torch::kBFloat16);
  const auto once = torch::randn({batch, length, width}, torch::kDouble);
  const auto weight = torch::randn({vocabulary, width}, torch::kDouble), hidden = torch::cat({once, once});
  const auto in = [&](const Tensor& tensor) { return tensor.to(type == torch::kDouble ? type : torch::kFloat); };
  const auto sums = projected_rdrop_loss(in(hidden), in(weight), some_targets(), smoothing, 5, 0, type);
  const double expected = cross_entropy(once.matmul(weight.t()), smoothing).item<double>();
  CHECK(sums.loss.item<double>() == Approx(expected).epsilon(type == torch::kBFloat16 ? 1e-2 : 1e-5));
  CHECK_THROWS(projected_rdrop_loss(in(once), in(weight), some_targets(), smoothing, 5, 0, type));
  const auto nothing =
      projected_rdrop_loss(in(hidden), in(weight), torch::zeros_like(some_targets()), smoothing, 5, 0, type);
  CHECK(nothing.loss.item<double>() == 0);
  const auto bad = projected_rdrop_loss(in(hidden)*NAN, in(weight), some_targets(), smoothing, 5, 0, type);
  CHECK(std::isnan(bad.loss.item<double>()));
}

TEST_CASE("a GPU's kernel of the loss is the loss of the same logits", "[gpu]") {
  const int64_t size = GENERATE(int64_t{1000}, int64_t{997}, int64_t{8}, int64_t{1});
  const double smoothed = GENERATE(0.0, 0.1);
  constexpr int64_t rows = 5;
  torch::manual_seed(3);
  const test::ChosenEmulatedGpu gpu;
  auto logits = (torch::randn({rows, size}) * 4).to(torch::kBFloat16);
  const auto targets = torch::randint(0, size, {rows}, torch::kLong);
  if (size > 100) logits[1][3] = -80;  // no share in float32
  auto exact = logits.to(torch::kDouble).requires_grad_();
  const auto log_probabilities = torch::log_softmax(exact, 1);
  const auto nll = -log_probabilities.gather(1, targets.unsqueeze(1)).squeeze(1), mean = -log_probabilities.mean(1);
  (nll * (1 - smoothed) + mean * smoothed).sum().backward();

  const auto losses = torch::empty({rows, 2}), untouched = logits.clone();
  gpu::SmoothedLoss arguments{.logits = static_cast<gpu::Bf16*>(logits.data_ptr()),
                              .targets = reinterpret_cast<const long long*>(targets.const_data_ptr<int64_t>()),
                              .vocabulary = static_cast<int>(size),
                              .smoothing = static_cast<float>(smoothed),
                              .with_gradient = 0,
                              .losses = losses.data_ptr<float>()};
  gpu.kernels().start(arguments, rows);
  CHECK(torch::equal(logits, untouched));
  CHECK(torch::allclose(losses.select(1, 0).to(torch::kDouble), nll, 1e-5, 1e-5));
  CHECK(torch::allclose(losses.select(1, 1).to(torch::kDouble), mean, 1e-5, 1e-5));
  arguments.with_gradient = 1;
  gpu.kernels().start(arguments, rows);
  CHECK(torch::allclose(logits.to(torch::kDouble), exact.grad(), 1.0 / 256, 1e-6));
}

TEST_CASE("a GPU's kernel of the loss knows numbers that are none", "[gpu]") {
  constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const int64_t size = GENERATE(int64_t{640}, int64_t{641});
  torch::manual_seed(3);
  const test::ChosenEmulatedGpu gpu;
  auto logits = torch::randn({6, size}).to(torch::kBFloat16);
  logits[0].narrow(0, 0, size - 1).fill_(-infinity);  // one is left
  logits[1][7] = nan;
  logits[2][7] = infinity;
  logits[3].fill_(-infinity);
  const auto targets = torch::tensor({size - 1, int64_t{1}, int64_t{1}, int64_t{1}, size, int64_t{-1}}, torch::kLong);
  const auto losses = torch::empty({6, 2});
  gpu.kernels().start(
      gpu::SmoothedLoss{.logits = static_cast<gpu::Bf16*>(logits.data_ptr()),
                        .targets = reinterpret_cast<const long long*>(targets.const_data_ptr<int64_t>()),
                        .vocabulary = static_cast<int>(size),
                        .smoothing = 0,
                        .with_gradient = 1,
                        .losses = losses.data_ptr<float>()},
      6);
  CHECK(losses[0][0].item<double>() == 0);
  CHECK(losses[0][1].item<double>() == infinity);
  CHECK(logits[0].eq(0).all().item<bool>());
  for (int64_t row = 1; row < 6; ++row) CHECK(std::isnan(losses[row][0].item<double>()));  // of no known target, too
  for (int64_t row = 1; row < 6; ++row) CHECK(logits[row].isnan().any().item<bool>());
}

TEST_CASE("a GPU's kernel of the loss keeps small differences of large logits", "[gpu]") {
  const test::ChosenEmulatedGpu gpu;
  for (const double size : {1e3, 1e5, 1e6, 1e30}) {
    const auto logits = torch::full({1, 8}, size).to(torch::kBFloat16);
    const auto targets = torch::tensor({3}, torch::kLong), losses = torch::empty({1, 2});
    gpu.kernels().start(
        gpu::SmoothedLoss{.logits = static_cast<gpu::Bf16*>(logits.data_ptr()),
                          .targets = reinterpret_cast<const long long*>(targets.const_data_ptr<int64_t>()),
                          .vocabulary = 8,
                          .smoothing = 0,
                          .with_gradient = 1,
                          .losses = losses.data_ptr<float>()},
        1);
    CHECK(std::abs(losses[0][0].item<double>() - std::log(8)) < 1e-5);
    CHECK(std::abs(losses[0][1].item<double>() - std::log(8)) < 1e-5);
    CHECK(torch::allclose(logits[0].to(torch::kFloat), torch::full({8}, 0.125).index_fill_(0, targets, -0.875), 1e-2,
                          1e-6));
  }
}

TEST_CASE("the loss that projects takes a GPU's kernel, in chunks as well", "[gpu]") {
  constexpr int64_t tokens = 1100, size = 9000, depth = 8;  // three chunks
  torch::manual_seed(3);
  const auto hidden = torch::randn({tokens, depth}).requires_grad_();
  const auto weight = torch::randn({size, depth}).requires_grad_(), bias = torch::randn({size}).requires_grad_();
  const auto targets = torch::randint(0, size, {tokens}, torch::kLong);
  const auto sums_and_gradients = [&] {
    const auto sums =
        projected_label_smoothing_loss(hidden, weight, targets, smoothing, 0, torch::kBFloat16, std::nullopt, bias);
    auto all = torch::autograd::grad({sums.loss}, {hidden, weight, bias});
    all.push_back(sums.loss.detach());
    all.push_back(sums.negative_log_likelihood);
    return all;
  };
  const auto expected = sums_and_gradients();
  const test::ChosenEmulatedGpu gpu;
  const auto found = sums_and_gradients();
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(((found[i] - expected[i]).norm() / expected[i].norm()).item<double>() < 1e-2);
  }
}

TEST_CASE("the loss that projects has the gradients of hidden states and weights of any type, over several chunks") {
  const auto type = GENERATE(torch::kDouble, torch::kFloat, torch::kBFloat16, torch::kHalf);
  const auto product_type =
      GENERATE_COPY(filter([=](auto given) { return given == torch::kBFloat16 || given == type; },
                           values({torch::kDouble, torch::kFloat, torch::kBFloat16, torch::kHalf})));
  const int64_t tokens = 520, pieces = 8200;  // chunks of 512, and of 256 for two passes
  torch::manual_seed(7);
  const auto leaf = [&](const Tensor& tensor) { return tensor.to(type).requires_grad_(); };
  const auto hidden = leaf(torch::randn({tokens, 16})), weight = leaf(torch::randn({pieces, 16}) * 0.1),
             bias = leaf(torch::randn({pieces}));
  const auto targets = torch::randint(1, pieces, {tokens}, torch::kLong);
  const auto exact = [](const Tensor& tensor) { return tensor.detach().to(torch::kDouble).requires_grad_(); };
  const std::vector<Tensor> inputs = {hidden, weight, bias}, exact_inputs = {exact(hidden), exact(weight), exact(bias)};
  const auto logits = torch::addmm(exact_inputs[2], exact_inputs[0], exact_inputs[1].t());
  const auto loss = torch::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, -100, smoothing);
  const auto expected = torch::autograd::grad({loss}, exact_inputs);
  const double tolerance = product_type == torch::kBFloat16 ? 0.02 : type == torch::kHalf ? 5e-3 : 1e-5;
  const auto check = [&](const LossSums& sums) {
    CHECK(sums.loss.item<double>() == Approx(loss.item<double>()).epsilon(tolerance));
    const auto gradients = torch::autograd::grad({sums.loss}, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      CHECK(gradients[i].scalar_type() == type);
      CHECK(((exact(gradients[i]) - expected[i]).norm() / expected[i].norm()).item<double>() < tolerance);
    }
  };
  auto kernels = std::vector{product_kernels()};
  if (kernels.front()) kernels.push_back(nullptr);
  for (const auto* chosen : kernels) {
    INFO(type << ", products in " << product_type << (chosen ? " by own kernels" : " by LibTorch"));
    const test::ChosenKernels<product_kernels, choose_product_kernels> products(chosen);
    check(projected_label_smoothing_loss(hidden, weight, targets, smoothing, 0, product_type, {}, bias));
    check(projected_rdrop_loss(torch::cat({hidden, hidden}), weight, targets, smoothing, /*strength=*/0, 0,
                               product_type, {}, bias));
  }
}

TEST_CASE("another number of targets than of rows is refused") {
  const auto hidden = torch::randn({batch, length, width}), weight = torch::randn({vocabulary, width});
  for (const auto& targets : {some_targets().flatten(), some_targets().narrow(1, 0, 2), some_targets()[0],
                              torch::zeros({batch, length + 1}, torch::kLong)}) {
    CHECK_THROWS_AS(label_smoothing_loss(hidden.matmul(weight.t()), targets, smoothing, 0), c10::Error);
    CHECK_THROWS_AS(projected_label_smoothing_loss(hidden, weight, targets, smoothing, 0, torch::kFloat), c10::Error);
  }
}
