#include <torch/types.h>

#include <cmath>

#include "model/reference.h"
#include "transformer/model/decoder.h"
#include "transformer/model/embedding.h"
#include "transformer/model/encoder.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

ModelSettings reference_settings(bool bias, double epsilon) {
  ModelSettings settings;
  settings.d_model = 24;
  settings.heads = 4;
  settings.d_ff = 40;
  settings.dropout = 0;
  settings.projection_bias = bias;
  settings.layer_norm_epsilon = epsilon;
  return settings;
}

}  // namespace

TEST_CASE("encoder and decoder layers equal PyTorch's, with all gradients") {
  const Reference reference("layers.py");
  for (const std::string type : {"float32", "float64"}) {
    for (const bool bias : {false, true}) {
      for (const bool weights : {false, true}) {
        const std::string suffix = bias ? "-bias" : "";
        {
          const std::string name = type + "-encoder" + suffix;
          INFO(name);
          EncoderLayer layer(reference_settings(bias, 1e-5));
          reference.load(*layer, name);
          const auto x = reference.input(name + "/input/x");
          const auto output =
              layer->forward(x, {.mask = reference.at(name + "/input/mask"), .weights = weights}).values;
          CHECK(difference(output, reference.at(name + "/output/values")) < tolerance(x.scalar_type()));
          (output * reference.at(name + "/input/cotangent")).sum().backward();
          CHECK(difference(x.grad(), reference.at(name + "/gradient/x")) < tolerance(x.scalar_type()));
          check_gradients(*layer, reference, name);
        }
        {
          const std::string name = type + "-decoder" + suffix;
          INFO(name);
          DecoderLayer layer(reference_settings(bias, 1e-3));
          reference.load(*layer, name);
          const auto x = reference.input(name + "/input/x"), memory = reference.input(name + "/input/memory");
          const auto output = layer->forward(x, memory, reference.at(name + "/input/mask"), weights).values;
          CHECK(difference(output, reference.at(name + "/output/values")) < tolerance(x.scalar_type()));
          (output * reference.at(name + "/input/cotangent")).sum().backward();
          CHECK(difference(x.grad(), reference.at(name + "/gradient/x")) < tolerance(x.scalar_type()));
          CHECK(difference(memory.grad(), reference.at(name + "/gradient/memory")) < tolerance(x.scalar_type()));
          check_gradients(*layer, reference, name);
        }
      }
    }
  }
}

TEST_CASE("stacks of layers work by themselves") {
  torch::manual_seed(1);
  ModelSettings settings = reference_settings(false, 1e-5);
  settings.encoder_layers = 2;
  settings.decoder_layers = 3;
  Encoder encoder(settings);
  Decoder decoder(settings);
  const auto x = torch::randn({2, 5, 24}), y = torch::randn({2, 4, 24});
  const auto encoded = encoder->forward(x, {.mask = {}, .weights = true});
  CHECK(encoded.memory.sizes() == x.sizes());
  CHECK(encoded.weights.size() == 2);
  const auto decoded = decoder->forward(y, encoded.memory, {}, true);
  CHECK(decoded.values.sizes() == y.sizes());
  CHECK(decoded.self_weights.size() == 3);
  CHECK(decoded.memory_weights.size() == 3);
  CHECK(encoder->forward(x).weights.empty());
  CHECK(difference(encoder->forward(x).memory, encoded.memory) < 1e-5);

  // The decoder's own steps, without the model around it.
  auto cache = decoder->start(encoded.memory, {});
  for (int64_t t = 0; t < y.size(1); ++t) {
    CHECK(cache.length == t);
    CHECK(difference(decoder->step(y.narrow(1, t, 1), cache), decoded.values.narrow(1, t, 1)) < 1e-5);
  }
}

TEST_CASE("feed-forward is max(0, x W1 + b1) W2 + b2, Glorot-initialised") {
  torch::manual_seed(2);
  FeedForward feed_forward(96, 160);
  const auto parameters = feed_forward->named_parameters();
  REQUIRE(parameters.size() == 4);
  for (const std::string name : {"inner", "outer"}) {
    const double bound = std::sqrt(6.0 / (96 + 160));
    const double largest = parameters[name + ".weight"].abs().max().item<double>();
    CHECK(largest <= bound);
    CHECK(largest > 0.99 * bound);
    CHECK(parameters[name + ".bias"].eq(0).all().item<bool>());
  }
  torch::NoGradGuard no_grad;
  feed_forward->to(torch::kFloat64);
  parameters["inner.bias"].normal_();
  parameters["outer.bias"].normal_();
  const auto x = torch::randn({2, 3, 96}, torch::kFloat64);
  const auto inner = torch::matmul(x, parameters["inner.weight"].t()) + parameters["inner.bias"];
  const auto expected =
      torch::matmul(torch::where(inner > 0, inner, torch::zeros_like(inner)), parameters["outer.weight"].t()) +
      parameters["outer.bias"];
  CHECK(difference(feed_forward->forward(x), expected) < 1e-12);
}

TEST_CASE("embeddings are scaled by sqrt(d_model), and project with the same matrix") {
  torch::manual_seed(3);
  TokenEmbedding embedding(500, 64);
  const auto& weight = embedding->weight();
  CHECK(weight.std().item<double>() == Approx(1 / 8.0).epsilon(0.02));
  CHECK(std::abs(weight.mean().item<double>()) < 0.005);
  const auto ids = torch::tensor({{3, 0}, {499, 3}}, torch::kInt64);
  CHECK(difference(embedding->forward(ids),
                   torch::stack({weight[3] * 8, weight[0] * 8, weight[499] * 8, weight[3] * 8}).unflatten(0, {2, 2})) <
        1e-7);
  const auto hidden = torch::randn({2, 3, 64});
  CHECK(difference(embedding->project(hidden), torch::matmul(hidden, weight.t())) < 1e-5);
}

TEST_CASE("residual dropout drops a sub-layer's output at its rate, scales up the rest, and spares the input") {
  torch::manual_seed(4);
  const int64_t D = 30000;
  const double rate = 0.2;
  ModelSettings settings = reference_settings(false, 1e-5);
  settings.d_model = D;
  settings.heads = 1;
  settings.dropout = rate;
  Residual residual(settings);
  // Thirds: x 0 and sub-layer 0; x 10 and sub-layer 0; x 0 and sub-layer 1. The normalisation is one affine function,
  // which the first two reveal.
  auto x = torch::zeros({1, D}), sublayer = torch::zeros({1, D});
  x.narrow(1, D / 3, D / 3).fill_(10);
  sublayer.narrow(1, 2 * D / 3, D / 3).fill_(1);
  const auto output = residual->forward(x, sublayer);
  const auto zero = output[0][0].item<double>(), ten = output[0][D / 3].item<double>();
  CHECK(output.narrow(1, 0, D / 3).eq(zero).all().item<bool>());
  CHECK(output.narrow(1, D / 3, D / 3).eq(ten).all().item<bool>());
  const auto dropped = (output.narrow(1, 2 * D / 3, D / 3) - zero) * (10 / (ten - zero));
  const auto kept = dropped.abs() > 0.5;
  CHECK(dropped.masked_select(~kept).abs().max().item<double>() < 1e-5);
  CHECK((dropped.masked_select(kept) - 1 / (1 - rate)).abs().max().item<double>() < 1e-4);
  const double share = kept.to(torch::kFloat64).mean().item<double>();
  CHECK(std::abs(share - (1 - rate)) < 5 * std::sqrt(rate * (1 - rate) / (D / 3.0)));

  residual->eval();
  const auto sum = x + sublayer;
  CHECK(difference(residual->forward(x, sublayer),
                   (sum - sum.mean()) / (sum.var(/*unbiased=*/false) + settings.layer_norm_epsilon).sqrt()) < 1e-5);
}
