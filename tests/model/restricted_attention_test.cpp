#include <torch/types.h>

#include <cmath>

#include "model/reference.h"
#include "model/variations.h"
#include "transformer/model/attention.h"
#include "transformer/model/tensor_memory.h"
#include "transformer/model/transformer.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

struct Heads {
  Tensor query, key, value;
};

Heads random_heads(int64_t batch, int64_t heads, int64_t length, int64_t d_k, int64_t d_v, torch::ScalarType type) {
  const auto random = [&](int64_t width) {
    return torch::randn({batch, heads, length, width}, torch::dtype(type)).requires_grad_();
  };
  return {random(d_k), random(d_k), random(d_v)};
}

Tensor window_mask(int64_t length, int64_t window) {
  const auto positions = torch::arange(length);
  return (positions - positions.unsqueeze(1)).abs() <= window / 2;
}

std::vector<Tensor> gradients(const Heads& heads, const Tensor& values, const Tensor& cotangent) {
  return torch::autograd::grad({values}, {heads.query, heads.key, heads.value}, {cotangent});
}

}  // namespace

TEST_CASE("restricted self-attention equals the formula, with all gradients") {
  const Reference reference("variations.py");
  for (const auto& [compatibility, window] : {std::pair<std::string, int64_t>{"scaled_dot_product", 1},
                                              {"scaled_dot_product", 6},
                                              {"scaled_dot_product", 7},
                                              {"scaled_dot_product", 140},
                                              {"additive", 9}}) {
    for (const bool causal : {false, true}) {
      const std::string name = fmt::format("float64-window-{}-{}{}", compatibility, window, causal ? "-causal" : "");
      INFO(name);
      MultiHeadAttentionOptions options{.d_model = 10, .heads = 3, .d_k = 5, .d_v = 7};
      if (compatibility == "additive") options.compatibility = ModelSettings::Compatibility::additive;
      MultiHeadAttention module(options);
      reference.load(*module, name);
      const std::vector<int64_t> lengths = {150, 131, 3};  // as in variations.py
      const auto mask = torch::arange(150).lt(torch::tensor(lengths).unsqueeze(1)).reshape({3, 1, 1, 150});
      const auto query = reference.input(name + "/input/query");
      const auto output = module->forward(query, query, query, {.mask = mask, .causal = causal, .window = window});
      CHECK(difference(output.values, reference.at(name + "/output/values")) < 1e-10);
      (output.values * reference.at(name + "/input/cotangent")).sum().backward();
      CHECK(difference(query.grad(), reference.at(name + "/gradient/query")) < 1e-10);
      check_gradients(*module, reference, name);
    }
  }
}

TEST_CASE("restricted self-attention equals masked attention at every length, window and mask") {
  torch::manual_seed(1);
  for (const int64_t length : {1, 2, 63, 64, 65, 130, 200}) {
    for (const int64_t window : {1, 2, 5, 64, 129, 150, 399, 1000}) {
      const auto heads = random_heads(2, 3, length, 4, 6, torch::kFloat64);
      const auto cotangent = torch::randn({2, 3, length, 6}, torch::kFloat64);
      const auto near = window_mask(length, window);
      const auto padding = torch::arange(length).lt(length * 2 / 3).reshape({1, 1, 1, length});
      const auto own = torch::rand({2, 3, length, length}) < 0.6;
      for (const bool causal : {false, true}) {
        for (const std::optional<Tensor>& mask : {std::optional<Tensor>(), {padding}, {own}}) {
          INFO("length " << length << ", window " << window << ", causal " << causal << ", masked "
                         << mask.has_value());
          const auto restricted =
              attention(heads.query, heads.key, heads.value, {.mask = mask, .causal = causal, .window = window}).values;
          const auto masked = attention(heads.query, heads.key, heads.value,
                                        {.mask = mask ? *mask & near : near, .causal = causal, .weights = true})
                                  .values;
          CHECK(difference(restricted, masked) < 1e-12);
          const auto ours = gradients(heads, restricted, cotangent), theirs = gradients(heads, masked, cotangent);
          for (size_t i = 0; i < 3; ++i) CHECK(difference(ours[i], theirs[i]) < 1e-12);
        }
      }
    }
  }
}

TEST_CASE("a window of 2n - 1 is full attention, one of 2n - 3 is not") {
  torch::manual_seed(2);
  const int64_t length = 9;
  const auto heads = random_heads(1, 2, length, 4, 4, torch::kFloat64);
  const auto full = attention(heads.query, heads.key, heads.value).values;
  const auto within = [&](int64_t window) {
    return attention(heads.query, heads.key, heads.value, {.mask = {}, .window = window}).values;
  };
  CHECK(difference(within(2 * length - 1), full) == 0);
  CHECK(difference(within(2 * length - 3), full) > 1e-3);
}

TEST_CASE("restricted and additive attention drop weights at their rate, and give the gradients of what they kept") {
  torch::manual_seed(3);
  const int64_t length = 200, window = 33;
  const double rate = 0.3;
  const bool additive = GENERATE(false, true);
  // Equal weights, and values that reveal them: position s has a one in column s.
  const auto query = torch::zeros({8, 1, length, 4}, torch::kFloat64);
  const auto value = torch::eye(length, torch::kFloat64).expand({8, 1, length, length}).clone().requires_grad_();
  AttentionOptions options{.mask = {}, .dropout = rate, .window = window};
  if (additive) options.additive = torch::ones({1, 4}, torch::kFloat64);
  const auto weights = attention(query, query, value, options).values;
  const auto near = window_mask(length, window).expand_as(weights);
  CHECK(weights.masked_select(~near).eq(0).all().item<bool>());
  const auto kept = weights.masked_select(near).ne(0);
  const double share = kept.to(torch::kFloat64).mean().item<double>();
  CHECK(std::abs(share - (1 - rate)) < 5 * std::sqrt(rate * (1 - rate) / static_cast<double>(kept.numel())));
  const auto expected = near.to(torch::kFloat64) / near.sum(-1, /*keepdim=*/true) / (1 - rate);
  CHECK(difference(weights.masked_select(weights.ne(0)), expected.masked_select(weights.ne(0))) < 1e-12);
  // d sum(weights · value) / d value is the sum of the very weights that were kept.
  weights.sum().backward();
  CHECK(difference(value.grad(), weights.detach().sum(2).unsqueeze(-1).expand_as(value)) < 1e-12);
}

TEST_CASE("restricted self-attention in bfloat16 stays close to masked attention") {
  torch::manual_seed(4);
  const auto heads = random_heads(2, 2, 150, 8, 8, torch::kBFloat16);
  const auto cotangent = torch::randn({2, 2, 150, 8}).to(torch::kBFloat16);
  const auto restricted = attention(heads.query, heads.key, heads.value, {.mask = {}, .window = 20}).values;
  const auto masked =
      attention(heads.query, heads.key, heads.value, {.mask = window_mask(150, 20), .weights = true}).values;
  REQUIRE(restricted.scalar_type() == torch::kBFloat16);
  CHECK(difference(restricted, masked) < 0.02);
  const auto ours = gradients(heads, restricted, cotangent), theirs = gradients(heads, masked, cotangent);
  for (size_t i = 0; i < 3; ++i) CHECK(difference(ours[i], theirs[i]) < 0.05);
}

TEST_CASE("at 8,192 positions a window of 64 needs less than a twentieth of the score matrix, backward pass included") {
  torch::manual_seed(5);
  const int64_t heads = 8, length = 8192;
  const double scores = 4.0 * heads * length * length;
  auto inputs = random_heads(1, heads, length, 64, 64, torch::kFloat32);
  for (const bool causal : {false, true}) {
    const auto peak = peak_tensor_bytes([&] {
      const auto values =
          attention(inputs.query, inputs.key, inputs.value, {.mask = {}, .causal = causal, .window = 64}).values;
      gradients(inputs, values, torch::ones({1, 1, 1, 1}).expand(values.sizes()));
    });
    INFO("peak " << peak << " bytes, score matrix " << scores);
    CHECK(static_cast<double>(peak) < scores / 20);
    torch::NoGradGuard no_grad;
    const auto forward = peak_tensor_bytes(
        [&] { attention(inputs.query, inputs.key, inputs.value, {.mask = {}, .causal = causal, .window = 64}); });
    INFO("forward alone " << forward << " bytes");
    CHECK(static_cast<double>(forward) < scores / 100);
  }
}

TEST_CASE("memory of restricted self-attention grows with the length, not with its square") {
  const auto peak = [](int64_t length) {
    const auto inputs = random_heads(1, 2, length, 16, 16, torch::kFloat32);
    return static_cast<double>(peak_tensor_bytes([&] {
      attention(inputs.query, inputs.key, inputs.value, {.mask = {}, .window = 32}).values.sum().backward();
    }));
  };
  const double ratio = peak(8192) / peak(2048);
  CHECK(ratio > 2);
  CHECK(ratio < 4.5);
}

TEST_CASE("additive attention holds the hidden layers of few queries at a time") {
  const int64_t length = 600;
  const auto inputs = random_heads(2, 4, length, 16, 16, torch::kFloat32);
  const auto vector = torch::randn({4, 16}).requires_grad_();
  const double hidden = 4.0 * 2 * 4 * length * length * 16;
  const auto peak = peak_tensor_bytes([&] {
    attention(inputs.query, inputs.key, inputs.value, {.mask = {}, .additive = vector}).values.sum().backward();
  });
  INFO("peak " << peak << " bytes, all hidden layers " << hidden);
  CHECK(static_cast<double>(peak) < hidden / 2);
  CHECK(vector.grad().abs().max().item<double>() > 0);
}

TEST_CASE("decoding with a window keeps the same memory however long the output grows") {
  torch::manual_seed(6);
  torch::NoGradGuard no_grad;
  auto settings = variations().front().second;
  settings.attention_window = 8;
  Transformer model(settings);
  model->eval();
  auto cache = model->start(model->encode(torch::randint(1, 19, {2, 5}, torch::kInt64)));
  const auto bytes = [&] {
    int64_t sum = 0;
    for (const auto& layer : cache.layers) sum += layer.self_keys.bytes() + layer.self_values.bytes();
    return sum;
  };
  int64_t settled = 0;
  for (int64_t t = 0; t < 100; ++t) {
    model->step(torch::full({2}, 4 + t % 7, torch::kInt64), cache);
    if (t == 10) settled = bytes();
    if (t > 10) REQUIRE(bytes() == settled);
  }
  CHECK(cache.length == 100);
}
