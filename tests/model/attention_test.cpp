#include "transformer/model/attention.h"

#include <torch/types.h>

#include <cmath>

#include "model/reference.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

// softmax(QK^T / sqrt(d_k)) V, one number at a time; a query without any key gets zeros.
Tensor slow_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& allowed) {
  const auto B = query.size(0), H = query.size(1), T = query.size(2), S = key.size(2);
  auto result = torch::zeros({B, H, T, value.size(3)}, query.options());
  const auto mask = allowed.expand({B, H, T, S}).contiguous();
  const auto may = mask.accessor<bool, 4>();
  const auto q = query.accessor<double, 4>(), k = key.accessor<double, 4>(), v = value.accessor<double, 4>();
  auto out = result.accessor<double, 4>();
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t t = 0; t < T; ++t) {
        std::vector<double> weight(S, 0);
        double total = 0;
        for (int64_t s = 0; s < S; ++s) {
          if (!may[b][h][t][s]) continue;
          double dot = 0;
          for (int64_t d = 0; d < query.size(3); ++d) dot += q[b][h][t][d] * k[b][h][s][d];
          total += weight[s] = std::exp(dot / std::sqrt(static_cast<double>(query.size(3))));
        }
        for (int64_t s = 0; s < S && total > 0; ++s) {
          for (int64_t d = 0; d < value.size(3); ++d) out[b][h][t][d] += weight[s] / total * v[b][h][s][d];
        }
      }
    }
  }
  return result;
}

Tensor random(at::IntArrayRef sizes) {
  return torch::randn(sizes, torch::kFloat64);
}

Tensor lower_triangle(int64_t length) {
  return torch::ones({length, length}, torch::kBool).tril();
}

}  // namespace

TEST_CASE("attention is the softmax of scaled dot products, whatever the mask") {
  torch::manual_seed(1);
  const int64_t B = 3, H = 2, T = 5;
  const auto widths = GENERATE(std::pair<int64_t, int64_t>{4, 4}, std::pair<int64_t, int64_t>{3, 6});
  const int64_t d_k = widths.first, d_v = widths.second;
  const auto query = random({B, H, T, d_k}), key = random({B, H, T, d_k}), value = random({B, H, T, d_v});
  const auto everything = torch::ones({1, 1, 1, 1}, torch::kBool);

  const auto check = [&](std::optional<Tensor> mask, bool causal) {
    for (const bool weights : {false, true}) {
      INFO("d_k " << d_k << ", d_v " << d_v << ", causal " << causal << ", weights " << weights);
      const auto attended = attention(query, key, value, {.mask = mask, .causal = causal, .weights = weights});
      auto allowed = mask.value_or(everything);
      if (causal) allowed = allowed & lower_triangle(T);
      CHECK(difference(attended.values, slow_attention(query, key, value, allowed)) < 1e-12);
      CHECK(attended.weights.defined() == weights);
      if (!weights) continue;
      allowed = allowed.expand({B, H, T, T});
      const auto sums = attended.weights.sum(-1), expected = allowed.any(-1).to(torch::kFloat64);
      CHECK(difference(sums, expected) < 1e-12);
      CHECK(attended.weights.masked_select(~allowed).eq(0).all().item<bool>());
    }
  };

  for (const bool causal : {false, true}) {
    check({}, causal);
    check(torch::rand({B, 1, 1, T}) < 0.7, causal);  // a sentence's padding
    check(torch::rand({T, T}) < 0.7, causal);        // the same for all
    check(torch::rand({1, H, T, T}) < 0.7, causal);  // a head's own
    check(torch::rand({B, 1, T, T}) < 0.7, causal);
    check(torch::rand({B, H, T, T}) < 0.7, causal);
    check(torch::rand({B, 1, T, 1}) < 0.7, causal);  // whole rows off
    check(torch::zeros({B, 1, 1, T}, torch::kBool), causal);
  }
}

TEST_CASE("attention in parts is attention") {
  const int64_t batch = 7, heads = 2, queries = 5, keys = GENERATE(5, 3);
  const auto tensor = [](at::IntArrayRef sizes) { return torch::randn(sizes, torch::kDouble).requires_grad_(); };
  const auto query = tensor({batch, heads, queries, 4}), key = tensor({batch, heads, keys, 4}),
             value = tensor({batch, heads, keys, 6});
  AttentionOptions options{.causal = queries == keys, .weights = GENERATE(false, true)};
  const int mask = GENERATE(0, 1, 2);
  if (mask > 0) options.mask = torch::rand({mask == 1 ? 1 : batch, 1, 1, keys}) > 0.3;
  const auto whole = attention(query, key, value, options);
  const auto whole_gradients = torch::autograd::grad({whole.values.square().sum()}, {query, key, value});
  for (const int64_t most : {1, 3, 7, 100}) {
    const auto parts = attention_in_parts(query, key, value, options, most);
    const auto gradients = torch::autograd::grad({parts.values.square().sum()}, {query, key, value});
    CHECK(torch::allclose(parts.values, whole.values));
    CHECK(parts.weights.defined() == whole.weights.defined());
    if (whole.weights.defined()) CHECK(torch::allclose(parts.weights, whole.weights));
    for (size_t i = 0; i < 3; ++i) CHECK(torch::allclose(gradients[i], whole_gradients[i]));
  }
  CHECK_THROWS_AS(attention_in_parts(query, key, value, options, 0), c10::Error);
  options.mask.reset();
  const auto none = [](const Tensor& given) { return given.narrow(0, 0, 0); };
  CHECK(attention_in_parts(none(query), none(key), none(value), options, 3).values.sizes() ==
        at::IntArrayRef({0, heads, queries, 6}));
}

TEST_CASE("a GPU's kernels take so many sentences at once") {
  const auto of = [](int64_t heads, int64_t queries, int64_t keys, int64_t width) {
    const auto tensor = [&](int64_t length) { return torch::empty({1, heads, length, width}, torch::kMeta); };
    return most_sentences_at_once(tensor(queries), tensor(keys));
  };
  CHECK(of(16, 4, 4, 64) == 4095);  // 65,535 heads
  CHECK(of(1, 4, 4, 64) == 65535);
  CHECK(of(1, 512, 100, 64) == 65535);
  CHECK(of(1, 100, 5000, 64) == 6553);   // 5,120 · 64 places of each
  CHECK(of(16, 5000, 5000, 512) == 51);  // 16 · 5,120 · 512
  CHECK(of(1, 1 << 20, 1, 1 << 20) == 1);
}

TEST_CASE("a query that may attend to nothing gets zeros and gives finite gradients") {
  torch::manual_seed(2);
  const auto type = GENERATE(torch::kFloat32, torch::kFloat64, torch::kBFloat16);
  const auto [d_k, d_v] = GENERATE(std::pair<int64_t, int64_t>{8, 8}, std::pair<int64_t, int64_t>{8, 6});
  const auto options = torch::TensorOptions().dtype(type);
  auto mask = torch::ones({2, 1, 4, 6}, torch::kBool);
  mask[0] = false;        // a sentence of padding only
  mask[1][0][2] = false;  // a single row
  std::vector<std::vector<Tensor>> gradients;
  for (const bool weights : {false, true}) {
    INFO("type " << type << ", d_v " << d_v << ", weights " << weights);
    torch::manual_seed(3);
    const auto query = torch::randn({2, 3, 4, d_k}, options).requires_grad_();
    const auto key = torch::randn({2, 3, 6, d_k}, options).requires_grad_();
    const auto value = torch::randn({2, 3, 6, d_v}, options).requires_grad_();
    const auto attended = attention(query, key, value, {.mask = mask, .weights = weights});
    CHECK(attended.values.select(0, 0).eq(0).all().item<bool>());
    CHECK(attended.values.select(0, 1).select(1, 2).eq(0).all().item<bool>());
    CHECK(attended.values.select(0, 1).select(1, 1).ne(0).all().item<bool>());
    if (weights) CHECK(attended.weights.select(0, 0).eq(0).all().item<bool>());
    attended.values.square().sum().backward();
    gradients.push_back({query.grad(), key.grad(), value.grad()});
    for (const auto& gradient : gradients.back()) {
      CHECK(gradient.isfinite().all().item<bool>());
      CHECK(gradient.select(0, 0).eq(0).all().item<bool>());
      CHECK(gradient.select(0, 1).abs().max().item<double>() > 0);
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    CHECK(difference(gradients[0][i], gradients[1][i]) < (type == torch::kBFloat16 ? 0.05 : tolerance(type)));
  }
}

TEST_CASE("attention dropout removes weights at its rate and scales up the rest") {
  torch::manual_seed(4);
  const int64_t S = 64;
  const double rate = 0.3;
  const auto query = torch::zeros({40, 1, S, 8}), key = torch::randn({40, 1, S, 8});  // equal weights, 1 / S
  const auto value = torch::eye(S).expand({40, 1, S, S});                             // so the result is the weights
  const auto some = torch::ones({40, 1, 1, S}, torch::kBool);
  for (const bool weights : {false, true}) {
    for (const bool masked : {false, true}) {
      AttentionOptions options{.mask = {}, .dropout = rate, .weights = weights};
      if (masked) options.mask = some;
      const auto attended = attention(query, key, value, options);
      const auto kept = attended.values.ne(0);
      const auto samples = static_cast<double>(kept.numel());
      const double deviation = std::sqrt(rate * (1 - rate) / samples);
      CHECK(std::abs(kept.to(torch::kFloat64).mean().item<double>() - (1 - rate)) < 5 * deviation);
      const auto values = attended.values.masked_select(kept);
      CHECK(difference(values, torch::full_like(values, 1 / (S * (1 - rate)))) < 1e-6);
      // The weights that are returned are those of the softmax.
      if (weights) CHECK(difference(attended.weights, torch::full({40, 1, S, S}, 1.0 / S)) < 1e-6);
    }
  }
}

TEST_CASE("multi-head attention equals PyTorch's module and the formula, with all gradients") {
  const Reference reference("attention.py");
  for (const std::string type : {"float32", "float64"}) {
    for (const std::string kind :
         {"self", "self-causal", "memory", "separate", "self-bias", "self-causal-bias", "memory-bias", "separate-bias",
          "formula-self", "formula-memory", "formula-separate"}) {
      for (const bool weights : {false, true}) {
        const std::string name = type + "-" + kind;
        INFO(name << ", weights " << weights);
        const bool formula = kind.rfind("formula", 0) == 0;
        const bool bias = formula || kind.find("bias") != std::string::npos;
        MultiHeadAttention module(
            formula ? MultiHeadAttentionOptions{.d_model = 10, .heads = 3, .d_k = 5, .d_v = 7, .bias = true}
                    : MultiHeadAttentionOptions{.d_model = 24, .heads = 4, .d_k = 6, .d_v = 6, .bias = bias});
        reference.load(*module, name);

        const auto query = reference.input(name + "/input/query");
        const bool self = kind.find("self") != std::string::npos, separate = kind.find("separate") != std::string::npos;
        const auto key = self ? query : reference.input(name + "/input/key");
        const auto value = separate ? reference.input(name + "/input/value") : key;
        const double close = tolerance(query.scalar_type());
        const auto attended = module->forward(query, key, value,
                                              {.mask = reference.at(name + "/input/mask"),
                                               .causal = kind.find("causal") != std::string::npos,
                                               .weights = weights});
        CHECK(difference(attended.values, reference.at(name + "/output/values")) < close);
        if (weights) CHECK(difference(attended.weights, reference.at(name + "/output/weights")) < close);

        (attended.values * reference.at(name + "/input/cotangent")).sum().backward();
        CHECK(difference(query.grad(), reference.at(name + "/gradient/query")) < close);
        CHECK(difference(key.grad(), reference.at(name + "/gradient/key")) < close);
        CHECK(difference(value.grad(), reference.at(name + "/gradient/value")) < close);
        check_gradients(*module, reference, name);
      }
    }
  }
}

TEST_CASE("multi-head attention's parameters have the documented names, shapes and initial ranges") {
  torch::manual_seed(5);
  const int64_t D = 96, H = 3, d_k = 40, d_v = 24;
  for (const bool bias : {false, true}) {
    MultiHeadAttention module(
        MultiHeadAttentionOptions{.d_model = D, .heads = H, .d_k = d_k, .d_v = d_v, .bias = bias});
    const auto parameters = module->named_parameters();
    REQUIRE(parameters.size() == (bias ? 4 : 2));
    const auto& input = parameters["input_weight"];
    const auto& output = parameters["output.weight"];
    REQUIRE(input.sizes() == at::IntArrayRef({(2 * d_k + d_v) * H, D}));
    REQUIRE(output.sizes() == at::IntArrayRef({D, d_v * H}));
    CHECK(input.requires_grad());
    if (bias) {
      REQUIRE(parameters["input_bias"].sizes() == at::IntArrayRef({(2 * d_k + d_v) * H}));
      CHECK(parameters["input_bias"].eq(0).all().item<bool>());
      CHECK(parameters["output.bias"].eq(0).all().item<bool>());
    }
    // Glorot's bound sqrt(6 / (in + out)) for every projection by itself; thousands of draws come close to it.
    const auto check = [](const Tensor& weight) {
      const double bound = std::sqrt(6.0 / static_cast<double>(weight.size(0) + weight.size(1)));
      const double largest = weight.abs().max().item<double>();
      CHECK(largest <= bound);
      CHECK(largest > 0.99 * bound);
      CHECK(std::abs(weight.mean().item<double>()) < 0.05 * bound);
    };
    const auto parts = input.split_with_sizes({H * d_k, H * d_k, H * d_v});
    for (const auto& part : parts) check(part);
    check(output);
  }
}

TEST_CASE("the parts of multi-head attention make up its forward") {
  torch::manual_seed(6);
  const bool bias = GENERATE(false, true);
  MultiHeadAttention module(MultiHeadAttentionOptions{.d_model = 12, .heads = 3, .d_k = 5, .d_v = 2, .bias = bias});
  module->to(torch::kFloat64);
  if (bias) {
    torch::NoGradGuard no_grad;
    module->named_parameters()["input_bias"].normal_();
  }
  const auto x = random({2, 4, 12}), memory = random({2, 6, 12});

  auto self = module->project(x);
  CHECK(self.query.sizes() == at::IntArrayRef({2, 3, 4, 5}));
  CHECK(self.key.sizes() == at::IntArrayRef({2, 3, 4, 5}));
  CHECK(self.value.sizes() == at::IntArrayRef({2, 3, 4, 2}));
  CHECK(difference(module->project_query(x), self.query) < 1e-12);
  CHECK(difference(module->project_memory(x).key, self.key) < 1e-12);
  CHECK(difference(module->project_memory(x).value, self.value) < 1e-12);
  CHECK_FALSE(module->project_memory(x).query.defined());
  CHECK(difference(module->attend(self, {}).values, module->forward(x, x, x).values) < 1e-12);
  CHECK(difference(module->forward(x, x.clone(), x.clone()).values, module->forward(x, x, x).values) < 1e-12);

  auto cross = module->project_memory(memory);
  cross.query = self.query;
  CHECK(difference(module->attend(cross, {}).values, module->forward(x, memory, memory).values) < 1e-12);
}

TEST_CASE("masks of any number of dimensions are broadcast, whichever way attention goes") {
  torch::manual_seed(8);
  const int64_t B = 2, H = 3, length = 5;
  const auto query = random({B, H, length, 4}), key = random({B, H, length, 4}), value = random({B, H, length, 6});
  const auto keys = torch::tensor({true, false, true, true, false});
  for (const auto& mask : {keys, keys[0], keys[1], keys.expand({length, length}), keys.expand({H, length, length})}) {
    for (const bool causal : {false, true}) {
      INFO(mask.dim() << " dimensions, causal " << causal);
      const auto allowed = causal ? mask & lower_triangle(length) : mask;
      const auto expected = slow_attention(query, key, value, allowed);
      CHECK(difference(attention(query, key, value, {.mask = mask, .causal = causal}).values, expected) < 1e-12);
      CHECK(difference(attention(query, key, value, {.mask = mask, .causal = causal, .weights = true}).values,
                       expected) < 1e-12);
      const auto near = torch::ones({length, length}, torch::kBool).tril(1).triu(-1);
      CHECK(difference(attention(query, key, value, {.mask = mask, .causal = causal, .window = 3}).values,
                       slow_attention(query, key, value, allowed & near)) < 1e-12);
      const auto bf16 = [](const Tensor& tensor) { return tensor.to(torch::kBFloat16); };
      CHECK(difference(attention(bf16(query), bf16(key), bf16(value), {.mask = mask, .causal = causal})
                           .values.to(torch::kFloat64),
                       expected) < 0.1);
    }
  }
}

TEST_CASE("dropout of everything leaves zeros, whichever way attention goes") {
  const auto x = random({2, 1, 8, 4});
  for (const int64_t window : {0, 3}) {
    CHECK(attention(x, x, x, {.dropout = 1, .window = window}).values.eq(0).all().item<bool>());
  }
  CHECK(attention(x, x, x, {.dropout = 1, .additive = random({1, 4})}).values.eq(0).all().item<bool>());
}
