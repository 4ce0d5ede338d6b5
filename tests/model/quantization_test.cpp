#include "transformer/model/quantization.h"

#include <cmath>
#include <limits>

#include "catch.h"
#include "model/reference.h"
#include "model/variations.h"
#include "transformer/model/transformer.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

ModelSettings small() {
  auto settings = plain_settings();
  settings.dropout = 0.1;
  return settings;
}

}  // namespace

TEST_CASE("rows are rounded to 127 steps of their largest magnitude, whatever lies beside them") {
  torch::manual_seed(1);
  const auto x = torch::randn({3, 5, 40}) * torch::rand({3, 5, 1});
  const auto rounded = rounded_to_int8(x);
  const auto scale = x.abs().amax(-1, true) / 127;
  const auto steps = rounded / scale;
  CHECK(difference(steps, steps.round()) < 1e-4);
  CHECK((rounded - x).abs().le(scale * 0.50001).all().item<bool>());
  CHECK(steps.abs().amax(-1).sub(127).abs().max().item<double>() < 1e-3);
  CHECK(torch::equal(rounded_to_int8(x[1]), rounded[1]));
  CHECK(rounded_to_int8(torch::zeros({2, 8})).eq(0).all().item<bool>());
  CHECK(rounded_to_int8(x.to(torch::kDouble)).scalar_type() == torch::kDouble);
  CHECK(rounded_to_int8(x.to(torch::kBFloat16)).scalar_type() == torch::kFloat);
  for (const float number : {std::nanf(""), infinite, -infinite}) {
    auto ruined = x.clone();
    ruined[0][2][7] = number;
    const auto found = rounded_to_int8(ruined);
    CHECK(found[0][2].isnan().all().item<bool>());
    CHECK(torch::equal(found[1], rounded[1]));
  }
}

TEST_CASE("a row that decoding takes for zeros is zeros in training, and the next larger one is not") {
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    const auto x = torch::tensor({{1e-31, -1e-31, 5e-32}, {1e-30, -1e-30, 5e-31}, {0., 0., -0.}, {2e-30, -1e-30, 0.}},
                                 torch::kDouble)
                       .to(type);
    const auto rounded = rounded_to_int8(x);
    CHECK(rounded.narrow(0, 0, 3).eq(0).all().item<bool>());
    CHECK(difference(rounded[3] / 2e-30, torch::tensor({1., -64. / 127, 0.}, torch::kDouble).to(type)) < 1e-6);
  }
}

TEST_CASE("gradients pass through rounding, and products have those of the rounded factors") {
  torch::manual_seed(2);
  const auto x = torch::randn({4, 6}, torch::kDouble).requires_grad_();
  const auto upstream = torch::randn({4, 6}, torch::kDouble);
  rounded_to_int8(x).backward(upstream);
  CHECK(torch::equal(x.grad(), upstream));

  FeedForward network(6, 10);
  network->to(torch::kDouble);
  network->set_quantization(true);
  x.mutable_grad() = Tensor();
  const auto& parameters = network->named_parameters();
  const auto y = network->forward(x);
  y.backward(upstream);
  // Written out with matrices that were rounded before.
  torch::NoGradGuard no_grad;
  const auto input = rounded_to_int8(x), inner = rounded_to_int8(parameters["inner.weight"]),
             outer = rounded_to_int8(parameters["outer.weight"]);
  const auto hidden = input.mm(inner.t()).add(parameters["inner.bias"]).relu();
  const auto used = rounded_to_int8(hidden);
  CHECK(difference(y, used.mm(outer.t()).add(parameters["outer.bias"])) < 1e-12);
  CHECK(difference(parameters["outer.weight"].grad(), upstream.t().mm(used)) < 1e-12);
  const auto hidden_gradient = upstream.mm(outer) * hidden.gt(0);
  CHECK(difference(parameters["inner.weight"].grad(), hidden_gradient.t().mm(input)) < 1e-12);
  CHECK(difference(x.grad(), hidden_gradient.mm(inner)) < 1e-12);
}

TEST_CASE("a model rounds in training alone, wherever it multiplies by weights, and recomputes the same") {
  torch::manual_seed(3);
  const auto source = torch::randint(4, 20, {3, 7}), target = torch::randint(4, 20, {3, 5});
  for (const auto& part : varied_parts()) {
    for (const auto& [name, vary] : part) {
      INFO(name);
      auto settings = small();
      settings.dropout = 0;
      settings.vocabulary_size = 20;
      vary(settings);
      Transformer model(settings);
      model->eval();
      const auto plain = model->forward(source, target);
      model->set_quantization(true);
      CHECK(torch::equal(model->forward(source, target), plain));
      model->train();
      const auto rounded = model->forward(source, target);
      CHECK_FALSE(torch::equal(rounded, plain));
      CHECK(difference(rounded, plain) < 0.2);
      const auto gradients = [&] {
        model->zero_grad();
        model->forward(source, target).square().mean().backward();
        std::vector<Tensor> found;
        for (const auto& parameter : model->parameters()) found.push_back(parameter.grad().clone());
        return found;
      };
      const auto kept = gradients();
      model->set_recompute(true);
      const auto again = gradients();
      for (size_t i = 0; i < kept.size(); ++i) CHECK(torch::equal(kept[i], again[i]));
      const auto factors = model->projection_of(torch::randn({2, settings.d_model}));
      CHECK(difference(factors.hidden, rounded_to_int8(factors.hidden)) < 1e-6);
      CHECK(difference(factors.weight, rounded_to_int8(model->projection_weight())) == 0);
      model->set_quantization(false);
      CHECK(difference(model->forward(source, target), plain) < 1e-4);
    }
  }
}

TEST_CASE("models of bf16 and half weights are trained with rounded factors as those of float32 are") {
  torch::manual_seed(4);
  const auto source = torch::randint(4, 20, {3, 7}), target = torch::randint(4, 20, {3, 5});
  for (const auto& part : varied_parts()) {
    for (const auto& [name, vary] : part) {
      auto settings = small();
      settings.dropout = 0;
      settings.vocabulary_size = 20;
      vary(settings);
      Transformer model(settings);
      model->set_quantization(true);
      const auto expected = model->forward(source, target);
      for (const auto type : {torch::kBFloat16, torch::kHalf}) {
        INFO(name << ", " << type);
        Transformer rounded(settings);
        const auto from = model->parameters(), to = rounded->parameters();
        const torch::NoGradGuard no_grad;
        for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
        rounded->to(type);
        rounded->set_quantization(true);
        const torch::AutoGradMode with_gradients(true);
        const auto logits = rounded->forward(source, target);
        CHECK(logits.scalar_type() == type);
        CHECK(difference(logits.to(torch::kFloat), expected) < 0.2);
        logits.sum().backward();
        for (const auto& parameter : rounded->parameters()) {
          REQUIRE(parameter.grad().defined());
          CHECK(parameter.grad().scalar_type() == type);
        }
      }
    }
  }
}
