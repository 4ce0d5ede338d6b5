#include <torch/types.h>

#include <cmath>
#include <memory>

#include "support.h"
#include "transformer/kernels/training_kernels.h"
#include "transformer/model/fused/fused_layers.h"
#include "transformer/model/tensors.h"
#include "transformer/training/adam.h"
#include "transformer/training/label_smoothing_loss.h"

using namespace transformer;
using transformer::test::TemporaryDirectory;

namespace {

TensorMap reference() {
  TemporaryDirectory directory;
  transformer::test::run_reference("training.py", (directory / "out.safetensors").string());
  return read_tensors(directory / "out.safetensors").tensors;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("both forms of the loss and their gradients equal PyTorch's smoothed cross entropy") {
  const auto expected = reference();
  const auto& targets = expected.at("targets");
  const double smoothing = 0.1;

  SECTION("from logits") {
    auto logits = expected.at("logits").clone().requires_grad_();
    const auto sums = label_smoothing_loss(logits, targets, smoothing, 0);
    CHECK(difference(sums.loss.detach(), expected.at("loss")) < 1e-9);
    CHECK(difference(sums.negative_log_likelihood, expected.at("nll")) < 1e-9);
    sums.loss.backward();
    CHECK(difference(3 * logits.grad().matmul(expected.at("weight")), expected.at("hidden_gradient")) < 1e-12);
  }
  SECTION("from hidden states, in chunks") {
    auto hidden = expected.at("hidden").clone().requires_grad_();
    auto weight = expected.at("weight").clone().requires_grad_();
    const auto sums = projected_label_smoothing_loss(hidden, weight, targets, smoothing, 0, at::kDouble);
    CHECK(difference(sums.loss.detach(), expected.at("loss")) < 1e-9);
    CHECK(difference(sums.negative_log_likelihood, expected.at("nll")) < 1e-9);
    (3 * sums.loss).backward();
    CHECK(difference(hidden.grad(), expected.at("hidden_gradient")) < 1e-12);
    CHECK(difference(weight.grad(), expected.at("weight_gradient")) < 1e-11);
  }
  SECTION("with products in bfloat16") {
    auto hidden = expected.at("hidden").to(at::kFloat).requires_grad_();
    auto weight = expected.at("weight").to(at::kFloat).requires_grad_();
    const auto sums = projected_label_smoothing_loss(hidden, weight, targets, smoothing, 0, at::kBFloat16);
    const double loss = expected.at("loss").item<double>();
    CHECK(sums.loss.item<double>() == Approx(loss).epsilon(5e-3));
    (3 * sums.loss).backward();
    const auto& gradient = expected.at("weight_gradient");
    CHECK((weight.grad() - gradient).norm().item<double>() < 0.02 * gradient.norm().item<double>());
  }
  SECTION("without gradients") {
    at::NoGradGuard no_grad;
    const auto sums = projected_label_smoothing_loss(expected.at("hidden"), expected.at("weight"), targets, smoothing,
                                                     0, at::kDouble);
    CHECK(difference(sums.loss, expected.at("loss")) < 1e-9);
    CHECK_FALSE(sums.loss.requires_grad());
  }
}

TEST_CASE("the loss of every instruction set equals the plain one in float64, over several chunks") {
  torch::manual_seed(1);
  const int64_t rows = 1100, width = 24, vocabulary = 8003;  // 524 rows are a chunk
  const auto hidden = torch::randn({rows, width}), weight = torch::randn({vocabulary, width}),
             bias = torch::randn({vocabulary});
  auto targets = torch::randint(1, vocabulary, {rows}, torch::kLong);
  targets.narrow(0, 17, 30).zero_();
  targets[0] = vocabulary - 1;
  const auto* before = training_kernels();
  for (const double smoothing : {0.0, 0.1}) {
    const auto exact_hidden = hidden.to(at::kDouble).requires_grad_(),
               exact_weight = weight.to(at::kDouble).requires_grad_(),
               exact_bias = bias.to(at::kDouble).requires_grad_();
    const auto exact = label_smoothing_loss(exact_hidden.matmul(exact_weight.t()) + exact_bias, targets, smoothing, 0);
    exact.loss.backward();
    const auto distance = [](const at::Tensor& have, const at::Tensor& want) {
      return ((have.to(at::kDouble) - want).norm() / want.norm()).item<double>();
    };
    auto kernels = runnable_training_kernels();
    kernels.push_back(nullptr);
    for (const auto* chosen : kernels) {
      choose_training_kernels(chosen);
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        INFO((chosen ? chosen->name : "none") << ", smoothing " << smoothing << ", " << type);
        const auto mine = hidden.clone().requires_grad_(), my_weight = weight.clone().requires_grad_(),
                   my_bias = bias.clone().requires_grad_();
        const auto sums = projected_label_smoothing_loss(mine, my_weight, targets, smoothing, 0, type, {}, my_bias);
        const double close = type == at::kFloat ? 1e-5 : 0.02;
        CHECK(distance(sums.loss.detach(), exact.loss.detach()) < close);
        CHECK(distance(sums.negative_log_likelihood, exact.negative_log_likelihood) < close);
        sums.loss.backward();
        CHECK(distance(mine.grad(), exact_hidden.grad()) < close);
        CHECK(distance(my_weight.grad(), exact_weight.grad()) < close);
        CHECK(distance(my_bias.grad(), exact_bias.grad()) < close);
        at::NoGradGuard no_grad;
        const auto again = projected_label_smoothing_loss(mine, my_weight, targets, smoothing, 0, type, {}, my_bias);
        CHECK(again.loss.item<float>() == sums.loss.item<float>());
      }
    }
    choose_training_kernels(before);
  }
  CHECK_THROWS(projected_label_smoothing_loss(hidden, weight, targets + vocabulary, 0.1, 0, at::kFloat));
  const auto bad = projected_label_smoothing_loss(hidden * NAN, weight, targets, 0.1, 0, at::kFloat);
  CHECK(std::isnan(bad.loss.item<float>()));
}

TEST_CASE("what is not finite spreads through the loss and its gradients as through the plain one") {
  torch::manual_seed(2);
  const int64_t rows = 7, width = 5, vocabulary = 37;
  const auto targets = torch::randint(1, vocabulary, {rows}, torch::kLong);
  auto kernels = runnable_training_kernels();
  kernels.push_back(nullptr);
  const auto* before = training_kernels();
  for (const bool in_weight : {false, true}) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (const double smoothing : {0.0, 0.1}) {
        // Hidden states that are positive: an infinite weight makes logits of its own sign.
        auto hidden = torch::rand({rows, width}) + 0.1, weight = torch::randn({vocabulary, width});
        (in_weight ? weight : hidden)[3][2] = bad;
        const auto finite = [&](const auto& loss_of) {
          const auto my_hidden = hidden.clone().requires_grad_(), my_weight = weight.clone().requires_grad_();
          const LossSums sums = loss_of(my_hidden, my_weight);
          sums.loss.backward();
          return std::vector<at::Tensor>{sums.loss.isfinite(), sums.negative_log_likelihood.isfinite(),
                                         my_hidden.grad().isfinite(), my_weight.grad().isfinite()};
        };
        const auto expected = finite(
            [&](const auto& x, const auto& w) { return label_smoothing_loss(x.matmul(w.t()), targets, smoothing, 0); });
        for (const auto* chosen : kernels) {
          choose_training_kernels(chosen);
          for (const auto type : {at::kFloat, at::kBFloat16}) {
            INFO((in_weight ? "weight " : "hidden ")
                 << bad << ", smoothing " << smoothing << ", " << (chosen ? chosen->name : "none") << ", " << type);
            const auto actual = finite([&](const auto& x, const auto& w) {
              return projected_label_smoothing_loss(x, w, targets, smoothing, 0, type);
            });
            for (size_t i = 0; i < actual.size(); ++i) {
              INFO("figure " << i);
              CHECK(actual[i].equal(expected[i]));
            }
          }
        }
        choose_training_kernels(before);
      }
    }
  }
}

TEST_CASE("gradients whose norm is not finite change nothing") {
  for (const float bad : {NAN, INFINITY}) {
    const auto weight = torch::ones({3, 4}, torch::requires_grad()), other = torch::ones({2}, torch::requires_grad());
    Adam adam({{"weight", weight}, {"other", other}}, {});
    const auto step = [&](float value) {
      weight.mutable_grad() = torch::full({3, 4}, 0.5f);
      other.mutable_grad() = torch::full({2}, 0.5f);
      weight.mutable_grad()[1][1] = value;
      adam.step(0.1, adam.gradient_norm());
    };
    step(1);
    std::vector<at::Tensor> before{weight.detach().clone(), other.detach().clone()};
    TensorMap state;
    for (const auto& [name, tensor] : adam.state()) state[name] = tensor.clone();
    step(bad);
    CHECK(weight.detach().equal(before[0]));
    CHECK(other.detach().equal(before[1]));
    for (const auto& [name, tensor] : adam.state()) CHECK(tensor.equal(state.at(name)));
    step(1);
    CHECK_FALSE(weight.detach().equal(before[0]));
  }
}

TEST_CASE("a batch of nothing but padding costs nothing") {
  auto hidden = torch::randn({2, 3, 4}, torch::requires_grad());
  auto weight = torch::randn({6, 4}, torch::requires_grad());
  const auto sums =
      projected_label_smoothing_loss(hidden, weight, torch::zeros({2, 3}, torch::kLong), 0.1, 0, at::kFloat);
  CHECK(sums.loss.item<double>() == 0);
  sums.loss.backward();
  CHECK(weight.grad().abs().max().item<double>() == 0);
}

TEST_CASE("Adam with clipping takes the steps that PyTorch's takes") {
  const auto expected = reference();
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < 2; ++i)
    parameters.push_back(expected.at("adam_before_" + std::to_string(i)).clone().requires_grad_());
  auto named = [&] {
    return std::vector<std::pair<std::string, at::Tensor>>{{"a", parameters[0]}, {"b", parameters[1]}};
  };
  auto adam = std::make_unique<Adam>(named(), Adam::Options());
  for (int step = 0; step < 5; ++step) {
    if (step == 3) {  // a saved and restored optimizer goes on as if nothing had happened
      auto restored = std::make_unique<Adam>(named(), Adam::Options());
      restored->load(adam->state(), "test");
      adam = std::move(restored);
    }
    double squares = 0;
    for (int i = 0; i < 2; ++i) {
      parameters[i].mutable_grad() =
          expected.at("adam_gradient_" + std::to_string(step) + "_" + std::to_string(i)).clone();
      squares += parameters[i].grad().square().sum().item<double>();
    }
    const auto norm = adam->gradient_norm();
    CHECK(norm.item<double>() == Approx(std::sqrt(squares)).epsilon(1e-5));
    adam->clip(1.0, norm);
    adam->step(0.01 * (step + 1), norm);
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(difference(parameters[i].detach(), expected.at("adam_after_" + std::to_string(i))) < 1e-6);
  }
}
