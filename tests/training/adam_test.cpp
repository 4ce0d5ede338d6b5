#include "transformer/training/adam.h"

#include <torch/types.h>

#include <cmath>
#include <stdexcept>

#include "error_of.h"
#include "model/reference.h"
#include "support.h"

using namespace transformer;
using transformer::test::error_of;
using transformer::test::message_of;

namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

at::Tensor parameter(std::vector<double> values) {
  return torch::tensor(values, torch::kDouble).requires_grad_();
}

std::vector<double> values_of(const at::Tensor& tensor) {
  const auto flat = tensor.detach().to(torch::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

}  // namespace

TEST_CASE("a parameter without a gradient keeps its value, its moments and its step") {
  auto moved = parameter({1, -2}), kept = parameter({3, 4});
  Adam adam(Named{{"moved", moved}, {"kept", kept}}, {.beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.25});
  moved.mutable_grad() = torch::tensor({2.0, -4.0}, torch::kDouble);
  adam.step(0.125);
  CHECK(values_of(kept) == std::vector<double>{3, 4});
  // m = g / 2 and v = g² / 4, over 1 - 0.5 and 1 - 0.75: a step of rate · g / (|g| + ε).
  CHECK(values_of(moved)[0] == Approx(1 - 0.125 * 2 / 2.25).epsilon(1e-12));
  CHECK(values_of(moved)[1] == Approx(-2 + 0.125 * 4 / 4.25).epsilon(1e-12));
  const auto state = adam.state();
  CHECK(state.size() == 6);
  CHECK(values_of(state.at("first_moment.moved")) == std::vector<double>{1, -2});
  CHECK(values_of(state.at("second_moment.moved")) == std::vector<double>{1, 4});
  CHECK(values_of(state.at("step.moved")) == std::vector<double>{1});
  CHECK(values_of(state.at("first_moment.kept")) == std::vector<double>{0, 0});
  CHECK(values_of(state.at("second_moment.kept")) == std::vector<double>{0, 0});
  CHECK(values_of(state.at("step.kept")) == std::vector<double>{0});
  for (const auto& [name, tensor] : state) {
    INFO(name);
    CHECK_FALSE(tensor.requires_grad());
  }
  adam.clear_gradients();
  CHECK_FALSE(moved.grad().defined());
}

TEST_CASE("a parameter with gaps in memory is refused by name, and a turned one is moved as any other") {
  const auto matrix = torch::zeros({4, 3});
  for (const auto& odd : {matrix.select(1, 1), matrix.narrow(1, 0, 2), torch::zeros({1}).expand({4})}) {
    const Named parameters{{"whole", parameter({1})}, {"odd", odd.detach().requires_grad_()}};
    CHECK_THAT(message_of<std::invalid_argument>([&] { Adam(parameters, {}); }), Contains("'odd'"));
  }
  const auto values = torch::randn({4, 3});
  const auto gradient = torch::randn({4, 3}).sign() * (torch::rand({4, 3}) + 0.5);  // next to 0 it moves by less
  const auto moved = [&](const at::Tensor& weight, const at::Tensor& slope) {
    const auto leaf = weight.detach().requires_grad_();
    leaf.mutable_grad() = slope;
    Adam(Named{{"weight", leaf}}, {}).step(0.5);
    return leaf.detach();
  };
  const auto turned = [](const at::Tensor& x) { return x.t().clone().t(); };
  const auto expected = moved(values.clone(), gradient.clone());
  CHECK(torch::allclose(expected, values - 0.5 * gradient.sign(), /*rtol=*/0, /*atol=*/1e-6));  // a first step
  for (const auto& slope : {gradient, turned(gradient)}) {
    CHECK(torch::equal(moved(values.clone(), slope.clone()), expected));
    CHECK(torch::equal(moved(turned(values), slope.clone()), expected));
  }
}

TEST_CASE("gradients are clipped at the joint norm, and shorter ones not touched") {
  auto a = parameter({0, 0}), b = parameter({0}), without = parameter({0});
  Adam adam(Named{{"a", a}, {"without", without}, {"b", b}}, {});
  const auto give = [&](double size) {
    a.mutable_grad() = torch::tensor({2 * size, 3 * size}, torch::kDouble);
    b.mutable_grad() = torch::tensor({6 * size}, torch::kDouble);  // 2² + 3² + 6² = 7²
  };
  const auto clipped = [&](double limit) {  // the norm that was there
    const auto norm = adam.gradient_norm();
    adam.clip(limit, norm);
    return norm.item<double>();
  };
  give(1);
  CHECK(clipped(100) == Approx(7).epsilon(1e-6));
  CHECK(values_of(a.grad()) == std::vector<double>{2, 3});
  CHECK(values_of(b.grad()) == std::vector<double>{6});
  CHECK(clipped(10) == Approx(7).epsilon(1e-6));  // 10 / 7 is between one and two
  CHECK(values_of(b.grad()) == std::vector<double>{6});
  // A norm of 7e-4, where PyTorch's 1e-6 in the divisor can be seen.
  give(1e-4);
  CHECK(clipped(1e-4) == Approx(7e-4).epsilon(1e-6));
  const double factor = 1e-4 / (7e-4 + 1e-6);
  CHECK(values_of(a.grad())[0] == Approx(2e-4 * factor).epsilon(1e-6));
  CHECK(values_of(a.grad())[1] == Approx(3e-4 * factor).epsilon(1e-6));
  CHECK(values_of(b.grad())[0] == Approx(6e-4 * factor).epsilon(1e-6));
  CHECK_FALSE(without.grad().defined());
}

TEST_CASE("an optimizer's state of another model is refused by the name of what differs") {
  Adam adam(Named{{"a", parameter({1, 2})}, {"b", parameter({3})}}, {});
  const auto whole = adam.state();
  CHECK(error_of([&] { adam.load(whole, "here"); }).empty());
  for (const auto& [name, tensor] : whole) {
    auto state = whole;
    state.erase(name);
    CHECK_THAT(error_of([&] { adam.load(state, "here"); }), StartsWith("here") && Contains(name));
    state[name] = torch::zeros({5}, tensor.options());
    CHECK_THAT(error_of([&] { adam.load(state, "here"); }), StartsWith("here") && Contains(name));
    // One number would be copied to every place.
    if (tensor.numel() == 2) {
      state[name] = torch::zeros({1}, tensor.options());
      CHECK_THAT(error_of([&] { adam.load(state, "here"); }), Contains(name));
    }
  }
}

TEST_CASE("the joint norm is float32 whatever the gradients' types, and nothing's is 0") {
  CHECK(Adam({}, {}).gradient_norm().item<double>() == 0);
  const auto norm_of = [](int64_t count, double gradient, at::ScalarType type) {
    const auto weight = torch::zeros({count}, type).requires_grad_();
    weight.mutable_grad() = torch::full({count}, gradient, type);
    return Adam(Named{{"weight", weight}}, {}).gradient_norm();
  };
  CHECK(norm_of(101, 300, torch::kBFloat16).scalar_type() == torch::kFloat);
  CHECK(norm_of(101, 300, torch::kBFloat16).item<double>() == Approx(300 * std::sqrt(101.0)).epsilon(1e-6));
  CHECK(norm_of(10000, 3000, torch::kHalf).item<double>() == Approx(300000).epsilon(1e-5));
  CHECK(norm_of(101, 0.1, torch::kDouble).scalar_type() == torch::kDouble);
  const auto some = torch::randn({1000});
  const auto weight = torch::zeros({1000}).requires_grad_();
  weight.mutable_grad() = some.clone();
  CHECK(torch::equal(Adam(Named{{"weight", weight}}, {}).gradient_norm(), some.norm()));
}
