#include "transformer/model/fused/fused_layers.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <functional>

#include "for_a_while.h"
#include "model/reference.h"
#include "model/variations.h"
#include "transformer/kernels/product_kernels.h"
#include "transformer/kernels/training_kernels.h"
#include "transformer/model/fused/products.h"
#include "transformer/model/transformer.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

using Chosen = ChosenKernels<training_kernels, choose_training_kernels>;

class Autocast {
 public:
  explicit Autocast(bool on) : on_(on) {
    if (!on) return;
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    if (!on_) return;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
};

using Normalization = ModelSettings::Normalization;

ModelSettings odd_sizes(Normalization normalization = Normalization::post) {
  ModelSettings settings;
  settings.d_model = 37;
  settings.d_ff = 51;
  settings.heads = 3;
  settings.d_k = 18;
  settings.d_v = 5;
  settings.encoder_layers = settings.decoder_layers = 2;
  settings.vocabulary_size = 23;
  settings.dropout = 0;
  settings.normalization = normalization;
  return settings;
}

struct Ids {
  Tensor source = torch::randint(1, 19, {5, 21}, torch::kInt64);
  Tensor target = torch::randint(1, 19, {5, 18}, torch::kInt64);

  Ids() {
    for (int64_t i = 0; i < 4; ++i) source[i].narrow(0, 4 + 4 * i, 17 - 4 * i).zero_();
    source[4].zero_();  // its memory is never attended to
    target[2].narrow(0, 3, 15).zero_();
  }
};

struct Pass {
  Tensor hidden;
  std::vector<std::pair<std::string, Tensor>> gradients;
};

/// The decoder's output for `ids` and all gradients of its scalar product with a fixed tensor.
Pass pass(Transformer& model, const Ids& ids, bool bf16, uint64_t seed = 1) {
  model->zero_grad();
  torch::manual_seed(seed);
  Tensor hidden;
  {
    const Autocast autocast(bf16);
    hidden = model->decode(ids.target, model->encode(ids.source)).values;
  }
  const auto cotangent = torch::linspace(-1, 1, hidden.numel()).sin().view(hidden.sizes());
  (hidden * cotangent).sum().backward();
  Pass result{hidden.detach(), {}};
  for (const auto& item : model->named_parameters()) {
    if (item.value().grad().defined()) result.gradients.emplace_back(item.key(), item.value().grad().clone());
  }
  return result;
}

bool same(const Pass& a, const Pass& b) {
  if (!a.hidden.equal(b.hidden) || a.gradients.size() != b.gradients.size()) return false;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (!a.gradients[i].second.equal(b.gradients[i].second)) return false;
  }
  return true;
}

double distance(const Tensor& a, const Tensor& b) {
  return (a.to(torch::kFloat64) - b.to(torch::kFloat64)).norm().item<double>();
}

}  // namespace

TEST_CASE("fused sub-layers compute what the modules compute, with all gradients, on every instruction set") {
  torch::manual_seed(2);
  const auto plain = odd_sizes(), before = odd_sizes(Normalization::pre);
  auto biased = plain;
  biased.projection_bias = true;
  biased.layer_norm_epsilon = 1e-3;
  biased.compatibility = ModelSettings::Compatibility::dot_product;
  auto biased_before = biased;
  biased_before.normalization = Normalization::pre;
  const Ids ids;
  for (const auto& settings : {plain, biased, before, biased_before}) {
    Transformer model(settings);
    {
      torch::NoGradGuard no_grad;
      for (auto& item : model->named_parameters()) item.value().add_(torch::randn_like(item.value()), 0.1);
    }
    const auto run = [&](const TrainingKernels* kernels) {
      const Chosen chosen(kernels);
      return pass(model, ids, false);
    };
    const auto expected = run(nullptr);
    for (const auto* kernels : runnable_training_kernels()) {
      INFO(kernels->name << ", bias " << settings.projection_bias << ", normalised before "
                         << (settings.normalization == Normalization::pre));
      const auto fused = run(kernels);
      CHECK_FALSE(fused.hidden.equal(expected.hidden));  // else nothing was fused
      CHECK(difference(fused.hidden, expected.hidden) < 2e-5);
      REQUIRE(fused.gradients.size() == model->named_parameters().size());
      for (size_t i = 0; i < fused.gradients.size(); ++i) {
        const auto& [name, gradient] = fused.gradients[i];
        INFO(name);
        const auto& want = expected.gradients[i].second;
        CHECK(want.abs().max().item<double>() > 1e-5);
        CHECK(difference(gradient, want) < 5e-5);
        CHECK(gradient.scalar_type() == torch::kFloat32);
      }
    }
  }
}

TEST_CASE("in bfloat16 fused sub-layers are as close to float32 as the modules are") {
  // Of many models: how rounding errors of a single one add up is chance.
  constexpr int models = 12;
  double hidden_errors = 0, module_hidden_errors = 0, errors = 0, module_errors = 0;
  for (int i = 0; i < models; ++i) {
    torch::manual_seed(20 + i);
    Transformer model(odd_sizes(i % 2 == 0 ? Normalization::post : Normalization::pre));
    const Ids ids;
    const auto run = [&](const TrainingKernels* kernels, bool bf16) {
      const Chosen chosen(kernels);
      return pass(model, ids, bf16);
    };
    const auto expected = run(nullptr, false), modules = run(nullptr, true), fused = run(training_kernels(), true);
    const double size = expected.hidden.norm().item<double>();
    hidden_errors += distance(fused.hidden, expected.hidden) / size / models;
    module_hidden_errors += distance(modules.hidden, expected.hidden) / size / models;
    for (size_t k = 0; k < expected.gradients.size(); ++k) {
      const auto& want = expected.gradients[k].second;
      const double share = 1 / (want.norm().item<double>() * models * static_cast<double>(expected.gradients.size()));
      errors += distance(fused.gradients[k].second, want) * share;
      module_errors += distance(modules.gradients[k].second, want) * share;
    }
  }
  INFO("values " << hidden_errors << ", modules " << module_hidden_errors << "; gradients " << errors << ", modules "
                 << module_errors);
  CHECK(hidden_errors > 1e-5);  // else nothing was rounded
  CHECK(hidden_errors < 1.2 * module_hidden_errors);
  CHECK(errors < 1.2 * module_errors);
}

TEST_CASE("what is not fused takes the modules' way, bit for bit") {
  const Ids ids;
  const auto with = [&](Transformer& model, const TrainingKernels* kernels) {
    const Chosen chosen(kernels);
    return pass(model, ids, false);
  };
  SECTION("evaluation") {
    torch::manual_seed(3);
    Transformer model(odd_sizes());
    model->eval();
    CHECK(same(with(model, training_kernels()), with(model, nullptr)));
  }
  SECTION("double precision") {
    torch::manual_seed(3);
    Transformer model(odd_sizes());
    model->to(torch::kFloat64);
    CHECK(same(with(model, training_kernels()), with(model, nullptr)));
  }
  SECTION("other functions") {
    for (auto& [name, settings] : variations()) {
      INFO(name);
      settings.positions = ModelSettings::Positions::learned;
      torch::manual_seed(3);
      Transformer model(settings);
      const auto modules = with(model, nullptr), fused = with(model, training_kernels());
      CHECK(difference(fused.hidden, modules.hidden) < 1e-5);
      for (size_t i = 0; i < fused.gradients.size(); ++i) {
        INFO(fused.gradients[i].first);
        CHECK(difference(fused.gradients[i].second, modules.gradients[i].second) < 5e-5);
      }
    }
  }
  SECTION("matrices that lie column by column") {
    torch::manual_seed(3);
    Transformer model(odd_sizes());
    for (auto& item : model->named_parameters()) {
      if (item.value().dim() == 2) item.value().set_data(item.value().t().contiguous().t());
    }
    CHECK(same(with(model, training_kernels()), with(model, nullptr)));
  }
  SECTION("float16, masks of other shapes, long sentences") {
    const auto x = torch::zeros({2, 4, 8});
    CHECK(fusable(x));
    CHECK_FALSE(fusable(x.to(torch::kFloat64)));
    CHECK_FALSE(fusable(x.to(torch::kBFloat16)));
    CHECK_FALSE(fusable(x[0]));
    at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    CHECK_FALSE(fusable(x));
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    CHECK(fusable_attention(x, {}, {}));
    CHECK(fusable_attention(x, {}, torch::ones({2, 1, 1, 4}, torch::kBool)));
    CHECK_FALSE(fusable_attention(x, {}, torch::ones({4, 4}, torch::kBool)));
    CHECK_FALSE(fusable_attention(x, {}, torch::ones({2, 1, 4, 4}, torch::kBool)));
    CHECK_FALSE(fusable_attention(torch::zeros({1, 4097, 8}), torch::zeros({1, 16, 8}), {}));
  }
}

TEST_CASE("a rate of dropout next to one keeps next to nothing") {
  const auto weight = torch::ones({1, 100});
  const auto ids = torch::zeros({30, 20}, torch::kInt64);
  for (const auto* kernels : runnable_training_kernels()) {
    const Chosen chosen(kernels);
    const auto values = fused_embedding(weight, ids, torch::zeros({20, 100}), 1, 0.9999999999);
    CHECK(values.ne(0).sum().item<int64_t>() <= 1);
    CHECK(fused_embedding(weight, ids, torch::zeros({20, 100}), 1, 1).eq(0).all().item<bool>());
  }
}

TEST_CASE("the embedding's dropout has its rate, its scale and no pattern, and the gradient its mask") {
  const double rate = 0.1;
  const int64_t B = 300, T = 20, D = 100;
  const auto ids = torch::zeros({B, T}, torch::kInt64);
  const auto positions = torch::zeros({T, D});
  std::vector<Tensor> outputs;
  for (const auto* kernels : runnable_training_kernels()) {
    const Chosen chosen(kernels);
    const auto weight = torch::ones({1, D}, torch::requires_grad());
    torch::manual_seed(4);
    const auto values = fused_embedding(weight, ids, positions, 3, rate);
    outputs.push_back(values.detach());
    const auto kept = values.detach().ne(0);
    const auto left = values.detach().masked_select(kept);
    CHECK(difference(left, torch::full_like(left, 3 / (1 - rate))) < 1e-6);
    const auto within = [&](const Tensor& shares, double samples) {  // six deviations: thousands are looked at
      return (shares - (1 - rate)).abs().max().item<double>() < 6 * std::sqrt(rate * (1 - rate) / samples);
    };
    const auto rows = kept.view({B * T, D}).to(torch::kFloat64);
    CHECK(within(rows.mean(), static_cast<double>(rows.numel())));
    CHECK(within(rows.mean(0), B * T));
    CHECK(within(rows.view({B, T * D}).mean(1), T * D));
    // Neighbours in a row and in a column are dropped independently of each other.
    const auto correlation = [&](const Tensor& a, const Tensor& b) {
      return ((a - (1 - rate)) * (b - (1 - rate))).mean().item<double>() / (rate * (1 - rate));
    };
    const double deviation = 1 / std::sqrt(static_cast<double>(rows.numel()));
    for (const int64_t shift : {1, 2, 16}) {
      CHECK(std::abs(correlation(rows.narrow(1, 0, D - shift), rows.narrow(1, shift, D - shift))) < 5 * deviation);
      CHECK(std::abs(correlation(rows.narrow(0, 0, B * T - shift), rows.narrow(0, shift, B * T - shift))) <
            5 * deviation);
    }
    // Every row's gradient went where the row came from: to the one embedding, by the same mask.
    values.sum().backward();
    CHECK(difference(weight.grad()[0], values.detach().sum(at::IntArrayRef({0, 1}))) < 1e-4);
    // The next call drops others.
    const auto next = fused_embedding(weight.detach(), ids, positions, 3, rate).ne(0).view({B * T, D});
    CHECK(std::abs(correlation(rows, next.to(torch::kFloat64))) < 5 * deviation);
  }
  for (const auto& output : outputs) CHECK(output.equal(outputs[0]));  // on every instruction set
  CHECK_THROWS(fused_embedding(torch::ones({1, D}), ids + 1, positions, 1, 0));
}

TEST_CASE("with dropout everywhere gradients are those of the function that was computed") {
  const auto normalization = GENERATE(Normalization::post, Normalization::pre);
  auto settings = odd_sizes(normalization);
  settings.dropout = settings.attention_dropout = settings.relu_dropout = 0.3;
  torch::manual_seed(5);
  Transformer model(settings);
  const Ids ids;
  for (const auto* kernels : runnable_training_kernels()) {
    const Chosen chosen(kernels);
    const auto gradients = pass(model, ids, false, 6).gradients;
    const auto value = [&] {
      const auto hidden = pass(model, ids, false, 6).hidden.to(torch::kFloat64);
      return (hidden * torch::linspace(-1, 1, hidden.numel()).sin().view(hidden.sizes())).sum().item<double>();
    };
    for (const auto& [name, gradient] : gradients) {
      INFO(kernels->name << ", " << name);
      auto weight = model->named_parameters()[name].detach();
      // Along the gradient, so that the difference is far above float32's rounding.
      const double norm = gradient.norm().item<double>(), step = 2e-3;
      REQUIRE(norm > 1e-4);
      const auto before = weight.clone();
      weight.add_(gradient, step / norm);
      const double above = value();
      weight.copy_(before).sub_(gradient, step / norm);
      const double below = value();
      weight.copy_(before);
      CHECK((above - below) / (2 * step) == Approx(norm).epsilon(0.03).margin(0.005));
    }
  }
}

TEST_CASE("dropout follows from the seed, whatever the number of threads") {
  auto settings = odd_sizes();
  settings.dropout = settings.attention_dropout = settings.relu_dropout = 0.2;
  torch::manual_seed(7);
  Transformer model(settings);
  const Ids ids;
  const auto once = pass(model, ids, false, 8);
  CHECK(same(pass(model, ids, false, 8), once));
  CHECK(difference(pass(model, ids, false, 9).hidden, once.hidden) > 0.1);
  const Threads three(3);
  const auto in_threads = pass(model, ids, false, 8);
  CHECK(difference(in_threads.hidden, once.hidden) < 1e-5);  // products may be split otherwise
  for (size_t i = 0; i < once.gradients.size(); ++i) {
    INFO(once.gradients[i].first);
    CHECK(difference(in_threads.gradients[i].second, once.gradients[i].second) < 1e-5);
  }
}

TEST_CASE("derivatives of derivatives need the modules' way, and the error says so") {
  torch::manual_seed(10);
  Transformer model(odd_sizes());
  const Ids ids;
  const auto second = [&] {
    const auto loss = model->forward(ids.source, ids.target).square().mean();
    const auto weight = model->named_parameters()["encoder.layers.0.feed_forward.inner.weight"];
    const auto gradient = torch::autograd::grad({loss}, {weight}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return torch::autograd::grad({gradient.square().sum()}, {weight})[0];
  };
  CHECK_THAT(message_of<c10::Error>(second), Contains("choose_training_kernels(nullptr) before the forward pass"));
  const Chosen chosen(nullptr);
  // LibTorch's own fused attention has none either; with the weights asked for it is not used.
  EncoderLayer encoder_layer(odd_sizes());
  const auto x = torch::randn({2, 3, 37}, torch::requires_grad());
  const auto values = encoder_layer->forward(x, {.mask = {}, .weights = true}).values;
  const auto gradient = torch::autograd::grad({values.square().sum()}, {x}, {}, true, true)[0];
  CHECK(torch::autograd::grad({gradient.square().sum()}, {x})[0].abs().max().item<double>() > 0);
}

TEST_CASE("not a number goes through fused sub-layers, and is not hidden") {
  torch::manual_seed(11);
  const Ids ids;
  for (const char* name : {"encoder.layers.0.feed_forward.inner.weight", "decoder.layers.1.self_attention.input_weight",
                           "embedding.weight"}) {
    INFO(name);
    Transformer damaged(odd_sizes());
    torch::NoGradGuard no_grad;
    damaged->named_parameters()[name].fill_(NAN);
    CHECK(damaged->decode(ids.target, damaged->encode(ids.source)).values.isnan().any().item<bool>());
  }
}

namespace {

using Inputs = std::vector<std::pair<std::string, Tensor>>;
using Function = std::function<Tensor(const Inputs&)>;

struct Case {
  std::string name;
  Inputs inputs;  // those that are given gradients
  Function fused, plain;
};

/// Of the function's values and then of every input's gradient: which numbers are finite.
std::vector<Tensor> finite_numbers(const Function& function, const Inputs& given) {
  Inputs inputs;
  for (const auto& [name, tensor] : given) inputs.emplace_back(name, tensor.clone().requires_grad_());
  const auto values = function(inputs);
  (values * torch::linspace(0.5, 1, values.numel()).view(values.sizes())).sum().backward();
  std::vector<Tensor> finite{values.isfinite()};
  for (const auto& [name, tensor] : inputs) finite.push_back(tensor.grad().isfinite());
  return finite;
}

Tensor plain_residual(const Tensor& x, const Tensor& gain, const Tensor& bias, bool before,
                      const std::function<Tensor(const Tensor&)>& sublayer) {
  const auto norm = [&](const Tensor& y) { return torch::layer_norm(y, {y.size(-1)}, gain, bias, 1e-5); };
  return before ? x + sublayer(norm(x)) : norm(x + sublayer(x));
}

constexpr int64_t width = 21, heads = 2, d_k = 3, d_v = 5;

// The paper's equations, one LibTorch operation each.
Tensor plain_attention(const Tensor& x, const Tensor& memory, const std::optional<Tensor>& mask, bool causal,
                       const FusedProjections& p) {
  const auto& over = memory.defined() ? memory : x;
  const auto part = [&](const Tensor& from, int64_t first, int64_t size) {
    return torch::linear(from, p.input_weight.narrow(0, first, heads * size),
                         p.input_bias.narrow(0, first, heads * size))
        .unflatten(2, {heads, size})
        .transpose(1, 2);
  };
  const auto query = part(x, 0, d_k), key = part(over, heads * d_k, d_k), value = part(over, 2 * heads * d_k, d_v);
  auto scores = query.matmul(key.mT()) * p.scale;
  auto seen = torch::ones({x.size(1), over.size(1)}, torch::kBool);
  if (causal) seen = seen.tril();
  if (mask) seen = seen & *mask;
  scores = scores.masked_fill(~seen, -INFINITY);
  const auto weights = scores.softmax(-1).masked_fill(~seen.any(-1, true), 0.0);
  return torch::linear(weights.matmul(value).transpose(1, 2).flatten(2), p.output_weight, p.output_bias);
}

std::vector<Case> fused_functions() {
  std::vector<Case> cases;
  const int64_t batch = 3, length = 4, source = 18, inner = 19;
  auto mask = torch::ones({batch, 1, 1, source}, torch::kBool);
  mask[0].narrow(-1, 11, 7).fill_(false);
  mask[1].fill_(false);
  const auto own_mask = mask.narrow(-1, 8, length).contiguous();
  for (const bool before : {false, true}) {
    for (const bool over_memory : {false, true}) {
      const bool causal = !over_memory;
      const auto call = [=](const Inputs& in, bool fused) {
        const FusedProjections projections{.input_weight = in[1].second,
                                           .input_bias = in[2].second,
                                           .output_weight = in[3].second,
                                           .output_bias = in[4].second,
                                           .heads = heads,
                                           .d_k = d_k,
                                           .d_v = d_v,
                                           .scale = 0.5,
                                           .dropout = 0};
        const auto memory = over_memory ? in[7].second : Tensor();
        const auto& seen = over_memory ? mask : own_mask;
        if (fused) {
          return fused_attention(in[0].second, memory, seen, causal, projections,
                                 {in[5].second, in[6].second, 1e-5, 0, before});
        }
        return plain_residual(in[0].second, in[5].second, in[6].second, before,
                              [&](const Tensor& x) { return plain_attention(x, memory, seen, causal, projections); });
      };
      Inputs inputs{{"x", torch::randn({batch, length, width})},
                    {"input weight", torch::randn({heads * (2 * d_k + d_v), width})},
                    {"input bias", torch::randn({heads * (2 * d_k + d_v)})},
                    {"output weight", torch::randn({width, heads * d_v})},
                    {"output bias", torch::randn({width})},
                    {"gain", torch::randn({width})},
                    {"bias", torch::randn({width})}};
      if (over_memory) inputs.emplace_back("memory", torch::randn({batch, source, width}));
      cases.push_back({over_memory ? "cross attention" : "self-attention", inputs,
                       [=](const Inputs& in) { return call(in, true); },
                       [=](const Inputs& in) { return call(in, false); }});
    }
    cases.push_back(
        {"feed-forward network",
         {{"x", torch::randn({batch, length, width})},
          {"inner weight", torch::randn({inner, width})},
          {"inner bias", torch::randn({inner})},
          {"outer weight", torch::randn({width, inner})},
          {"outer bias", torch::randn({width})},
          {"gain", torch::randn({width})},
          {"bias", torch::randn({width})}},
         [=](const Inputs& in) {
           return fused_feed_forward(in[0].second, {in[1].second, in[2].second, in[3].second, in[4].second, 0},
                                     {in[5].second, in[6].second, 1e-5, 0, before});
         },
         [=](const Inputs& in) {
           return plain_residual(in[0].second, in[5].second, in[6].second, before, [&](const Tensor& x) {
             return torch::linear(torch::linear(x, in[1].second, in[2].second).relu(), in[3].second, in[4].second);
           });
         }});
  }
  const auto ids = torch::arange(0, 12, torch::kInt64).view({3, 4});
  const auto positions = torch::randn({4, width});
  cases.push_back({"embedding",
                   {{"weight", torch::randn({14, width})}},
                   [=](const Inputs& in) { return fused_embedding(in[0].second, ids, positions, 3, 0); },
                   [=](const Inputs& in) { return torch::embedding(in[0].second, ids) * 3 + positions; }});
  return cases;
}

}  // namespace

TEST_CASE("what is not finite spreads through fused functions and their gradients as through the plain ones") {
  torch::manual_seed(12);
  auto product_ways = runnable_product_kernels();
  product_ways.push_back(nullptr);
  for (const auto& [function, inputs, fused, plain] : fused_functions()) {
    for (size_t input = 0; input < inputs.size(); ++input) {
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        auto damaged = inputs;
        auto& tensor = damaged[input].second;
        tensor = tensor.clone();
        const int64_t place = tensor.numel() * 2 / 5;
        tensor.view({-1})[place] = bad;
        const auto expected = finite_numbers(plain, damaged);
        if (std::isnan(bad)) CHECK_FALSE(expected[0].all().item<bool>());
        for (const auto* kernels : runnable_training_kernels()) {
          const Chosen chosen(kernels);
          for (const auto* products : product_ways) {
            const ChosenKernels<product_kernels, choose_product_kernels> chosen_products(products);
            for (const bool bf16 : {false, true}) {
              const auto actual = [&, &fused = fused] {
                const Autocast autocast(bf16);
                return finite_numbers(fused, damaged);
              }();
              INFO(function << ", " << inputs[input].first << " = " << bad << ", " << kernels->name << ", "
                            << (products ? products->name : "LibTorch") << ", bf16 " << bf16);
              for (size_t i = 0; i < actual.size(); ++i) {
                INFO((i == 0 ? "values" : "gradient of " + inputs[i - 1].first));
                INFO("finite here alone " << (actual[i] & ~expected[i]).sum().item<int64_t>() << ", there alone "
                                          << (~actual[i] & expected[i]).sum().item<int64_t>());
                CHECK(actual[i].equal(expected[i]));
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a backward pass takes the kernels of its forward pass, whatever was chosen meanwhile") {
  const Ids ids;
  for (const auto normalization : {Normalization::post, Normalization::pre}) {
    torch::manual_seed(11);
    Transformer model(odd_sizes(normalization));
    const auto gradients = [&](bool changed) {
      model->zero_grad();
      const auto loss = model->forward(ids.source, ids.target).square().mean();
      const Chosen chosen(changed ? nullptr : training_kernels());
      loss.backward();
      std::vector<Tensor> found;
      for (const auto& parameter : model->parameters()) found.push_back(parameter.grad().clone());
      return found;
    };
    const auto expected = gradients(false), found = gradients(true);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(torch::equal(found[i], expected[i]));
  }
}

TEST_CASE("models compute the same however their parameters lie in memory") {
  for (const auto normalization : {Normalization::post, Normalization::pre}) {
    auto settings = odd_sizes(normalization);
    settings.projection_bias = true;
    torch::manual_seed(13);
    Transformer model(settings);
    const Ids ids;
    {
      torch::NoGradGuard no_grad;
      for (auto& item : model->named_parameters()) item.value().add_(torch::randn_like(item.value()), 0.1);
    }
    const auto expected = pass(model, ids, false);
    for (const auto& name : model->named_parameters().keys()) {
      INFO(name << ", normalised before " << (normalization == Normalization::pre));
      auto parameter = model->named_parameters()[name];
      const auto before = parameter.detach();
      model->zero_grad();
      parameter.set_data(torch::stack({before, before * 3}, -1).select(-1, 0));
      const auto found = pass(model, ids, false);
      CHECK(difference(found.hidden, expected.hidden) < 2e-5);
      REQUIRE(found.gradients.size() == expected.gradients.size());
      for (size_t i = 0; i < expected.gradients.size(); ++i) {
        CHECK(difference(found.gradients[i].second, expected.gradients[i].second) < 5e-5);
      }
      model->zero_grad();
      parameter.set_data(before);
    }
  }
}

TEST_CASE("a fused feed-forward network does without biases, or one of them") {
  torch::manual_seed(14);
  const int64_t inner = 19;
  for (const bool before : {false, true}) {
    for (const bool has_inner : {false, true}) {
      for (const bool has_outer : {false, true}) {
        INFO("inner " << has_inner << ", outer " << has_outer << ", normalised before " << before);
        const auto bias = [](bool there, int64_t size) { return there ? torch::randn({size}) : Tensor(); };
        const std::vector<Tensor> given{torch::randn({3, 4, width}),  torch::randn({inner, width}),
                                        torch::randn({width, inner}), torch::randn({width}),
                                        torch::randn({width}),        bias(has_inner, inner),
                                        bias(has_outer, width)};
        const auto run = [&](torch::ScalarType type, auto function) {
          std::vector<Tensor> in, defined;
          for (const auto& tensor : given) {
            in.push_back(tensor.defined() ? tensor.detach().to(type).requires_grad_() : tensor);
            if (tensor.defined()) defined.push_back(in.back());
          }
          const auto values = function(in);
          const auto cotangent = torch::linspace(-1, 1, values.numel()).sin().view(values.sizes()).to(type);
          auto results = torch::autograd::grad({(values * cotangent).sum()}, defined);
          results.push_back(values.detach());
          return results;
        };
        const auto expected = run(torch::kFloat64, [&](const std::vector<Tensor>& in) {
          return plain_residual(in[0], in[3], in[4], before, [&](const Tensor& x) {
            return torch::linear(torch::linear(x, in[1], in[5]).relu(), in[2], in[6]);
          });
        });
        const auto found = run(torch::kFloat32, [&](const std::vector<Tensor>& in) {
          return fused_feed_forward(in[0], {in[1], in[5], in[2], in[6], 0}, {in[3], in[4], 1e-5, 0, before});
        });
        for (size_t i = 0; i < expected.size(); ++i) {
          CHECK(difference(found[i], expected[i].to(torch::kFloat32)) < 5e-5);
        }
      }
    }
  }
}

TEST_CASE("parameters of sizes that do not fit are refused, and so is what kernels would misread") {
  const auto x = torch::randn({3, 4, width});
  const auto strided = [](int64_t size) { return torch::randn({size, 2}).select(1, 0); };
  const std::vector<Tensor> sizes{torch::randn({19, width}), torch::randn({19}),    torch::randn({width, 19}),
                                  torch::randn({width}),     torch::randn({width}), torch::randn({width})};
  const auto network = [&](const std::vector<Tensor>& p) {
    fused_feed_forward(x, {p[0], p[1], p[2], p[3], 0}, {p[4], p[5], 1e-5, 0, false});
  };
  CHECK_NOTHROW(network(sizes));
  const int64_t rows = heads * (2 * d_k + d_v);
  const std::vector<Tensor> attention_sizes{
      torch::randn({rows, width}), torch::randn({rows}),  torch::randn({width, heads * d_v}),
      torch::randn({width}),       torch::randn({width}), torch::randn({width})};
  const auto attend = [&](const std::vector<Tensor>& p) {
    fused_attention(x, {}, {}, false, {p[0], p[1], p[2], p[3], heads, d_k, d_v, 0.5, 0}, {p[4], p[5], 1e-5, 0, false});
  };
  CHECK_NOTHROW(attend(attention_sizes));
  for (size_t i = 0; i < sizes.size(); ++i) {
    INFO("parameter " << i);
    const auto refused = [&](const auto& call, std::vector<Tensor> parameters, const Tensor& other) {
      parameters[i] = other;
      CHECK_THROWS_AS(call(parameters), c10::Error);
    };
    for (const int64_t dimension : {0, 1}) {
      if (dimension == sizes[i].dim()) continue;
      refused(network, sizes, sizes[i].narrow(dimension, 1, sizes[i].size(dimension) - 1));
      refused(attend, attention_sizes, attention_sizes[i].narrow(dimension, 1, attention_sizes[i].size(dimension) - 1));
    }
    if (i < 4) continue;
    for (const auto& other : {strided(width), torch::randn({width}, torch::kFloat64)}) {
      refused(network, sizes, other);
      refused(attend, attention_sizes, other);
    }
  }
  const auto weight = torch::randn({14, width}), positions = torch::randn({4, width});
  const auto ids = torch::arange(0, 12, torch::kInt64).view({3, 4});
  CHECK_NOTHROW(fused_embedding(weight, ids, positions, 3, 0));
  for (const auto& other : {positions.narrow(0, 0, 2), positions.narrow(1, 0, width - 1), positions.to(torch::kFloat64),
                            positions.flatten()}) {
    CHECK_THROWS_AS(fused_embedding(weight, ids, other, 3, 0), c10::Error);
  }
  const auto turned = weight.t().contiguous().t();
  CHECK(fusable_embedding(weight, ids));
  CHECK_FALSE(fusable_embedding(turned, ids));
  CHECK_THROWS_AS(fused_embedding(turned, ids, positions, 3, 0), c10::Error);
}

TEST_CASE("parameters that are not float32 are not fused, and refused as outside training") {
  const auto x = torch::randn({2, 5, 37});
  for (const auto normalization : {Normalization::post, Normalization::pre}) {
    for (const auto type : {torch::kFloat64, torch::kBFloat16}) {
      INFO(type);
      EncoderLayer layer(odd_sizes(normalization));
      layer->to(type);
      CHECK_THROWS(layer->forward(x));
      layer->eval();
      CHECK_THROWS(layer->forward(x));
    }
  }
  // One alone is enough.
  EncoderLayer layer(odd_sizes());
  layer->named_children()["after_feed_forward"]->to(torch::kFloat64);
  CHECK_THROWS(layer->forward(x));
}

TEST_CASE("inputs and memories of another width than the model's are refused in training as outside of it") {
  const bool trains = GENERATE(false, true), bf16 = GENERATE(false, true);
  const auto normalization = GENERATE(Normalization::post, Normalization::pre);
  const Autocast autocast(bf16);
  EncoderLayer encoder_layer(odd_sizes(normalization));
  DecoderLayer decoder_layer(odd_sizes(normalization));
  encoder_layer->train(trains);
  decoder_layer->train(trains);
  const auto x = torch::randn({2, 5, 37});
  CHECK_NOTHROW(decoder_layer->forward(x, torch::randn({2, 300, 37})));
  for (const int64_t width : {1, 8, 38, 4096}) {
    INFO("width " << width << ", training " << trains << ", bf16 " << bf16);
    CHECK_THROWS_AS(encoder_layer->forward(torch::randn({2, 5, width})), c10::Error);
    CHECK_THROWS_AS(decoder_layer->forward(x, torch::randn({2, 300, width})), c10::Error);
    CHECK_THROWS_AS(decoder_layer->forward(torch::randn({2, 5, width}), x), c10::Error);
  }
}
