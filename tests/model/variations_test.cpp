#include "model/variations.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <cmath>

#include "model/finite_differences.h"
#include "model/reference.h"
#include "transformer/base/error.h"
#include "transformer/model/autocast.h"
#include "transformer/model/parameter_attention.h"
#include "transformer/model/transformer.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

Tensor some_ids(std::initializer_list<int64_t> lengths) {
  auto batch = torch::zeros({static_cast<int64_t>(lengths.size()), std::max(lengths)}, torch::kInt64);
  int64_t row = 0;
  for (const int64_t length : lengths) {
    batch[row++].narrow(0, 0, length).copy_(torch::randint(1, 19, {length}, torch::kInt64));
  }
  return batch;
}

int64_t numbers_of(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

int64_t layer_numbers(ModelSettings settings) {
  return numbers_of(*EncoderLayer(settings));
}

}  // namespace

TEST_CASE("pre-norm and GELU stacks equal PyTorch's, with all gradients") {
  const Reference reference("variations.py");
  for (const std::string type : {"float32", "float64"}) {
    for (const std::string kind : {"pre", "gelu", "pre-gelu"}) {
      ModelSettings settings;
      settings.d_model = 24;
      settings.heads = 4;
      settings.d_ff = 40;
      settings.dropout = 0;
      settings.encoder_layers = settings.decoder_layers = 2;
      if (kind != "gelu") settings.normalization = ModelSettings::Normalization::pre;
      if (kind != "pre") settings.activation = ModelSettings::Activation::gelu;
      for (const bool weights : {false, true}) {
        {
          const std::string name = type + "-" + kind + "-encoder";
          INFO(name);
          Encoder encoder(settings);
          reference.load(*encoder, name);
          const auto x = reference.input(name + "/input/x");
          const auto output =
              encoder->forward(x, {.mask = reference.at(name + "/input/mask"), .weights = weights}).memory;
          CHECK(difference(output, reference.at(name + "/output/values")) < tolerance(x.scalar_type()));
          (output * reference.at(name + "/input/cotangent")).sum().backward();
          CHECK(difference(x.grad(), reference.at(name + "/gradient/x")) < tolerance(x.scalar_type()));
          check_gradients(*encoder, reference, name);
        }
        {
          const std::string name = type + "-" + kind + "-decoder";
          INFO(name);
          Decoder decoder(settings);
          reference.load(*decoder, name);
          const auto x = reference.input(name + "/input/x"), memory = reference.input(name + "/input/memory");
          const auto output = decoder->forward(x, memory, reference.at(name + "/input/mask"), weights).values;
          CHECK(difference(output, reference.at(name + "/output/values")) < tolerance(x.scalar_type()));
          (output * reference.at(name + "/input/cotangent")).sum().backward();
          CHECK(difference(x.grad(), reference.at(name + "/gradient/x")) < tolerance(x.scalar_type()));
          CHECK(difference(memory.grad(), reference.at(name + "/gradient/memory")) < tolerance(x.scalar_type()));
          check_gradients(*decoder, reference, name);
        }
      }
    }
  }
}

TEST_CASE("SwiGLU and attention over parameters equal their formulas, with all gradients") {
  const Reference reference("variations.py");
  for (const std::string type : {"float32", "float64"}) {
    const auto check = [&](PositionWise& module, const std::string& name) {
      INFO(name);
      reference.load(module, name);
      const auto x = reference.input(name + "/input/x");
      const auto output = module.forward(x);
      CHECK(difference(output, reference.at(name + "/output/values")) < tolerance(x.scalar_type()));
      (output * reference.at(name + "/input/cotangent")).sum().backward();
      CHECK(difference(x.grad(), reference.at(name + "/gradient/x")) < tolerance(x.scalar_type()));
      check_gradients(module, reference, name);
    };
    check(*FeedForward(6, 9, ModelSettings::Activation::swiglu), type + "-swiglu");
    check(*ParameterAttention(ParameterAttentionOptions{.d_model = 10, .heads = 3, .d_k = 4, .d_v = 6, .pairs = 11}),
          type + "-parameters");
  }
}

TEST_CASE("a recurrent unit equals its formula, with all gradients, and step by step") {
  const Reference reference("variations.py");
  for (const std::string type : {"float32", "float64"}) {
    const std::string name = type + "-ssru";
    INFO(name);
    RecurrentUnit module(10);
    reference.load(*module, name);
    const auto x = reference.input(name + "/input/x");
    const auto output = module->forward(x);
    CHECK(difference(output, reference.at(name + "/output/values")) < tolerance(x.scalar_type()));
    (output * reference.at(name + "/input/cotangent")).sum().backward();
    CHECK(difference(x.grad(), reference.at(name + "/gradient/x")) < tolerance(x.scalar_type()));
    check_gradients(*module, reference, name);

    torch::Tensor state;
    for (int64_t t = 0; t < x.size(1); ++t) {
      CHECK(difference(module->step(x.narrow(1, t, 1), state), output.narrow(1, t, 1)) < tolerance(x.scalar_type()));
    }
    const auto nothing = module->forward(x.narrow(1, 0, 0));
    CHECK(nothing.sizes() == at::IntArrayRef({x.size(0), 0, x.size(2)}));
    CHECK_NOTHROW(nothing.sum().backward());
  }
}

TEST_CASE("a recurrent unit's state is float32 where its products are bf16") {
  torch::manual_seed(3);
  RecurrentUnit module(16);
  const auto x = torch::randn({2, 200, 16});
  const auto exact = module->forward(x);
  torch::Tensor rounded;
  {
    const Autocast autocast(torch::kCPU, {.enabled = true, .type = torch::kBFloat16}, /*cached=*/false);
    rounded = module->forward(x.to(torch::kBFloat16));
  }
  CHECK(rounded.scalar_type() == torch::kBFloat16);
  // What a long memory adds up does not lose more than a product does.
  CHECK(difference(rounded.to(torch::kFloat), exact) < 0.03);
}

TEST_CASE("dot products without scaling and additive attention equal their formulas, with all gradients") {
  const Reference reference("variations.py");
  for (const std::string type : {"float32", "float64"}) {
    for (const std::string kind : {"dot_product", "additive"}) {
      for (const std::string sharing : {"self", "self-causal", "memory"}) {
        for (const bool weights : {false, true}) {
          const std::string name = type + "-" + kind + "-" + sharing;
          INFO(name << ", weights " << weights);
          MultiHeadAttention module(MultiHeadAttentionOptions{
              .d_model = 10,
              .heads = 3,
              .d_k = 5,
              .d_v = 7,
              .compatibility = kind == "additive" ? ModelSettings::Compatibility::additive
                                                  : ModelSettings::Compatibility::dot_product});
          reference.load(*module, name);
          const bool self = sharing != "memory";
          const auto query = reference.input(name + "/input/query");
          const auto memory = self ? query : reference.input(name + "/input/memory");
          const std::vector<int64_t> lengths = {7, 4, 1};  // LENGTHS in variations.py
          auto mask = torch::arange(7).lt(torch::tensor(lengths).unsqueeze(1)).reshape({3, 1, 1, 7});
          const auto output = module->forward(query, memory, memory,
                                              {.mask = mask, .causal = sharing == "self-causal", .weights = weights});
          const double close = tolerance(query.scalar_type());
          CHECK(difference(output.values, reference.at(name + "/output/values")) < close);
          (output.values * reference.at(name + "/input/cotangent")).sum().backward();
          CHECK(difference(query.grad(), reference.at(name + "/gradient/query")) < close);
          if (!self) CHECK(difference(memory.grad(), reference.at(name + "/gradient/memory")) < close);
          check_gradients(*module, reference, name);
        }
      }
    }
  }
}

TEST_CASE("attention over parameters has exactly the feed-forward network's number of weights, as published") {
  const auto count = [](int64_t heads, int64_t pairs) {
    return numbers_of(*ParameterAttention(
        ParameterAttentionOptions{.d_model = 512, .heads = heads, .d_k = 64, .d_v = 64, .pairs = pairs}));
  };
  CHECK(count(8, 1536) == 2097152);                                    // AOP1
  CHECK(count(16, 512) == 2097152);                                    // AOP2
  CHECK(numbers_of(*FeedForward(512, 2048)) == 2097152 + 2048 + 512);  // and its biases

  // The default settings of the model are AOP1's.
  ModelSettings settings;
  const int64_t network = layer_numbers(settings);
  settings.feed_forward = ModelSettings::FeedForward::attention_over_parameters;
  CHECK(network - layer_numbers(settings) == 2048 + 512);
}

TEST_CASE("variations have the documented parameters") {
  ModelSettings base;
  const int64_t plain = layer_numbers(base);
  auto settings = base;
  settings.activation = ModelSettings::Activation::gelu;
  CHECK(layer_numbers(settings) == plain);
  settings.activation = ModelSettings::Activation::swiglu;
  CHECK(layer_numbers(settings) == plain + 512 * 2048 + 2048);
  settings = base;
  settings.compatibility = ModelSettings::Compatibility::dot_product;
  CHECK(layer_numbers(settings) == plain);
  settings.compatibility = ModelSettings::Compatibility::additive;
  CHECK(layer_numbers(settings) == plain + 8 * (2 * 64 * 64 + 64));
  settings = base;
  settings.attention_window = 64;
  CHECK(layer_numbers(settings) == plain);
  settings.normalization = ModelSettings::Normalization::pre;
  CHECK(layer_numbers(settings) == plain);
  settings.encoder_layers = settings.decoder_layers = 1;
  settings.vocabulary_size = 5;
  auto post = settings;
  post.normalization = ModelSettings::Normalization::post;
  CHECK(Transformer(settings)->parameter_count() == Transformer(post)->parameter_count() + 2 * 2 * 512);
}

TEST_CASE("keys and values that are parameters resemble activations at first") {
  torch::manual_seed(1);
  ParameterAttention module(ParameterAttentionOptions{});
  const auto parameters = module->named_parameters();
  for (const std::string name : {"keys", "values"}) {
    CHECK(parameters[name].sizes() == at::IntArrayRef({8, 1536, 64}));
    CHECK(parameters[name].std().item<double>() * std::sqrt(512.0) == Approx(1).epsilon(0.01));
  }
}

TEST_CASE("every variation's gradients equal finite differences") {
  for (const auto& [name, settings] : variations()) {
    INFO(name);
    torch::manual_seed(5);
    Transformer model(settings);
    model->to(torch::kFloat64);
    const auto source = some_ids({4, 2, 6}), target = some_ids({3, 7, 1});
    const auto cotangent = torch::randn({3, 7, 19}, torch::kFloat64);
    check_finite_differences(*model, [&] { return (model->forward(source, target) * cotangent).sum(); });
  }
}

TEST_CASE("every variation decodes one token at a time as it decodes the whole sequence") {
  for (const auto& [name, settings] : variations()) {
    torch::manual_seed(6);
    Transformer model(settings);
    model->to(torch::kFloat64);
    model->eval();
    c10::InferenceMode inference;  // as the translator decodes
    const auto source = some_ids({3, 8, 1});
    const int64_t T = 12;
    auto encoded = model->encode(source);
    auto target = some_ids({T, T, T});
    auto cache = model->start(encoded);
    for (int64_t t = 0; t < T; ++t) {
      if (t == 5) {
        const auto rows = torch::tensor({2, 0, 0, 1}, torch::kInt64);
        cache.reorder(rows);
        target = target.index_select(0, rows).clone();
        target.narrow(1, t, T - t).random_(1, 19);
        encoded.memory = encoded.memory.index_select(0, rows);
        encoded.mask = encoded.mask->index_select(0, rows);
      }
      const auto logits = model->step(target.select(1, t), cache);
      const auto expected = model->project(model->decode(target, encoded).values).select(1, t);
      INFO(name << ", position " << t);
      CHECK(difference(logits, expected) < 1e-10);
      CHECK(cache.length == t + 1);
      const int64_t window = settings.attention_window;
      const bool recurrent = settings.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru;
      const int64_t kept = recurrent ? 0 : window > 0 ? std::min(t + 1, window / 2 + 1) : t + 1;
      for (const auto& layer : cache.layers) {
        CHECK(layer.self_keys.size() == kept);
        CHECK(layer.self_values.size() == kept);
        CHECK(layer.state.defined() == recurrent);
        if (recurrent) continue;
        const auto room = layer.self_keys.bytes() / (logits.size(0) * settings.heads * settings.d_k * 8);
        CHECK(room <= (window > 0 ? window / 2 + 1 : 16));
      }
    }
  }
}

TEST_CASE("in every variation a sentence's result does not depend on its batch, nor on later tokens") {
  for (const auto& [name, settings] : variations()) {
    INFO(name);
    torch::manual_seed(7);
    Transformer model(settings);
    model->to(torch::kFloat64);
    const std::vector<int64_t> source_lengths = {3, 9, 1}, target_lengths = {7, 2, 4};
    const auto source = some_ids({3, 9, 1}), target = some_ids({7, 2, 4});
    const auto together = model->forward(source, target);
    CHECK(together.isfinite().all().item<bool>());
    for (int64_t row = 0; row < 3; ++row) {
      const auto alone = model->forward(source.narrow(0, row, 1).narrow(1, 0, source_lengths[row]),
                                        target.narrow(0, row, 1).narrow(1, 0, target_lengths[row]));
      CHECK(difference(together[row].narrow(0, 0, target_lengths[row]), alone[0]) < 1e-12);
    }
    auto changed = target.clone();
    changed.select(1, 4).copy_(target.select(1, 4) % 18 + 1);
    const auto moved = (model->forward(source, changed) - together).abs().amax(-1);  // [B, T]
    CHECK(moved.narrow(1, 0, 4).eq(0).all().item<bool>());
    CHECK(moved.select(1, 4).gt(1e-6).all().item<bool>());
  }
}

TEST_CASE("every variation's attention weights come back on request, and change nothing") {
  for (const auto& [name, settings] : variations()) {
    INFO(name);
    torch::manual_seed(8);
    Transformer model(settings);
    model->to(torch::kFloat64);
    const auto source = some_ids({6, 9, 4}), target = some_ids({8, 5, 3});
    const auto encoded = model->encode(source, true);
    const auto decoded = model->decode(target, encoded, true);
    CHECK(difference(encoded.memory, model->encode(source).memory) < 1e-12);
    CHECK(difference(decoded.values, model->decode(target, encoded).values) < 1e-12);
    if (settings.attention_window == 0) continue;
    const auto far = [window = settings.attention_window](int64_t length) {
      const auto positions = torch::arange(length);
      return (positions - positions.unsqueeze(1)).abs() > window / 2;
    };
    for (const auto& weights : encoded.weights) {
      REQUIRE(weights.sizes() == at::IntArrayRef({3, 3, 9, 9}));
      CHECK(weights.masked_select(far(9)).eq(0).all().item<bool>());
    }
    for (const auto& weights : decoded.self_weights) CHECK(weights.masked_select(far(8)).eq(0).all().item<bool>());
  }
}

TEST_CASE("every variation's weights are saved and loaded back exactly, and fit no other variation's model") {
  const TemporaryDirectory folder;
  const auto file = folder / "model.safetensors";
  const auto source = some_ids({5, 8}), target = some_ids({4, 6});
  Transformer plain(variations().front().second);
  for (const auto& [name, settings] : variations()) {
    INFO(name);
    Transformer model(settings), other(settings);
    model->eval();
    other->eval();
    CHECK(difference(other->forward(source, target), model->forward(source, target)) > 1e-3);
    save_weights(*model, file);
    load_weights(*other, file);
    CHECK(difference(other->forward(source, target), model->forward(source, target)) == 0);
    if (model->parameter_count() != plain->parameter_count()) CHECK_THROWS_AS(load_weights(*plain, file), Error);

    auto written = settings;
    Settings yaml;
    yaml.section("model", written, "The model");
    write_file(folder / "config.yaml", yaml.yaml());
    auto loaded = load_transformer(folder.path());
    CHECK(difference(loaded->forward(source, target), model->forward(source, target)) == 0);
  }
}

TEST_CASE("weights of the paper's model keep their names") {
  std::vector<std::string> names;
  for (const auto& item : Transformer(variations().front().second)->named_parameters()) {
    if (item.key().find("layers.1.") == std::string::npos) names.push_back(item.key());
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> expected = {"embedding.weight"};
  for (const std::string stack : {"encoder", "decoder"}) {
    const std::string layer = stack + ".layers.0.";
    for (const std::string part : {"self_attention", "memory_attention", "feed_forward"}) {
      if (stack == "encoder" && part == "memory_attention") continue;
      if (part == "feed_forward") {
        for (const std::string map : {"inner", "outer"}) {
          for (const std::string kind : {"weight", "bias"}) expected.push_back(layer + part + "." + map + "." + kind);
        }
      } else {
        expected.push_back(layer + part + ".input_weight");
        expected.push_back(layer + part + ".output.weight");
      }
      for (const std::string kind : {"weight", "bias"}) expected.push_back(layer + "after_" + part + ".norm." + kind);
    }
  }
  std::sort(expected.begin(), expected.end());
  CHECK(names == expected);
}

TEST_CASE("ReLU dropout acts after the activation, at its rate, in training alone") {
  torch::manual_seed(9);
  const double rate = 0.3;
  const int64_t width = 200;
  const auto activation = GENERATE(ModelSettings::Activation::relu, ModelSettings::Activation::gelu);
  FeedForward module(width, width, activation, rate), plain(width, width, activation);
  torch::NoGradGuard no_grad;
  for (auto& feed_forward : {module, plain}) {
    auto parameters = feed_forward->named_parameters();
    parameters["inner.weight"].zero_();
    parameters["inner.bias"].fill_(1);
    parameters["outer.weight"].copy_(torch::eye(width));
  }
  const auto x = torch::randn({300, width});
  const auto expected = plain->forward(x), dropped = module->forward(x);
  const auto kept = dropped.ne(0);
  CHECK(difference(dropped.masked_select(kept), (expected / (1 - rate)).masked_select(kept)) < 1e-6);
  const auto samples = static_cast<double>(kept.numel());
  CHECK(std::abs(kept.to(torch::kFloat64).mean().item<double>() - (1 - rate)) <
        5 * std::sqrt(rate * (1 - rate) / samples));
  module->eval();
  CHECK(difference(module->forward(x), expected) == 0);
}

TEST_CASE("attention over parameters drops weights at the rate of attention dropout, in training alone") {
  torch::manual_seed(10);
  auto settings = variations().front().second;
  settings.feed_forward = ModelSettings::FeedForward::attention_over_parameters;
  settings.attention_dropout = 0.3;
  const auto module = position_wise(settings);
  const auto x = torch::randn({4, 5, settings.d_model});
  CHECK(difference(module->forward(x), module->forward(x)) > 1e-3);
  module->eval();
  CHECK(difference(module->forward(x), module->forward(x)) == 0);
}

TEST_CASE("symbol dropout replaces ids by the unknown id at its rate, never padding or begin, in training alone") {
  torch::manual_seed(11);
  const double rate = 0.25;
  auto settings = variations().front().second;
  settings.symbol_dropout = rate;
  settings.d_model = 16;
  settings.encoder_layers = settings.decoder_layers = 1;
  Transformer model(settings);
  // Sub-layers add nothing, so that every position shows its own token alone.
  torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    if (item.key().ends_with("output.weight") || item.key().ends_with("outer.weight")) item.value().zero_();
  }
  auto ids = torch::randint(4, 19, {200, 40}, torch::kInt64);
  ids.select(1, 0).fill_(TransformerImpl::begin_id);
  ids.narrow(1, 30, 10).fill_(TransformerImpl::padding_id);
  const auto given = ids.clone();
  const auto hidden = [&](const Tensor& tokens, bool target) {
    const auto encoded = model->encode(tokens);
    return target ? model->decode(tokens, encoded).values : encoded.memory;
  };
  for (const bool target : {false, true}) {
    INFO((target ? "target" : "source"));
    model->eval();
    const auto whole = hidden(ids, target),
               unknown = hidden(torch::full_like(ids, TransformerImpl::unknown_id), target);
    model->train();
    const auto dropped = hidden(ids, target);
    const auto stayed = (dropped - whole).abs().amax(-1) < 1e-5, replaced = (dropped - unknown).abs().amax(-1) < 1e-5;
    CHECK(stayed.ne(replaced).all().item<bool>());
    CHECK(stayed.select(1, 0).all().item<bool>());
    CHECK(stayed.narrow(1, 30, 10).all().item<bool>());
    const auto words = replaced.narrow(1, 1, 29);
    const double share = words.to(torch::kFloat64).mean().item<double>();
    CHECK(std::abs(share - rate) < 5 * std::sqrt(rate * (1 - rate) / static_cast<double>(words.numel())));
    CHECK(difference(hidden(ids, target), dropped) > 0.1);  // drawn anew each time
    CHECK(torch::equal(ids, given));                        // the caller's ids, from which the loss takes its targets
  }
}

TEST_CASE("settings that contradict each other are refused by name, and variations are listed") {
  ModelSettings settings;
  CHECK(settings.variations().empty());
  settings.feed_forward = ModelSettings::FeedForward::attention_over_parameters;
  CHECK_NOTHROW(settings.resolved());
  CHECK_THAT(settings.variations(), Contains("8 heads") && Contains("1536 pairs"));
  settings.relu_dropout = 0.1;
  CHECK_THAT(message_of<Error>([&] { settings.resolved(); }), Contains("model.relu_dropout"));
  settings.relu_dropout = 0;
  settings.activation = ModelSettings::Activation::swiglu;
  CHECK_THAT(message_of<Error>([&] { settings.resolved(); }), Contains("model.activation"));
  settings.feed_forward = ModelSettings::FeedForward::network;
  settings.relu_dropout = 0.1;
  CHECK_NOTHROW(settings.resolved());
  CHECK_THAT(settings.variations(), Contains("SwiGLU"));
  for (const auto& [name, member] : {std::pair{"model.attention_window", &ModelSettings::attention_window},
                                     {"model.parameter_heads", &ModelSettings::parameter_heads},
                                     {"model.parameter_d_k", &ModelSettings::parameter_d_k},
                                     {"model.parameter_d_v", &ModelSettings::parameter_d_v},
                                     {"model.parameter_pairs", &ModelSettings::parameter_pairs}}) {
    ModelSettings wrong;
    wrong.*member = -1;
    CHECK_THAT(message_of<Error>([&] { wrong.resolved(); }), Contains(name));
  }
}
