#include "transformer/model/fused/gpu_layers.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "emulated_gpu.h"
#include "for_a_while.h"
#include "model/reference.h"
#include "model/variations.h"
#include "transformer/model/autocast.h"
#include "transformer/model/encoder.h"
#include "transformer/model/fused/gpu_kernels.h"
#include "transformer/model/transformer.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

using General = ChosenKernels<training_kernels, choose_training_kernels>;
using Normalization = ModelSettings::Normalization;

double error(const Tensor& found, const Tensor& expected) {
  const auto right = expected.to(torch::kDouble);
  return ((found.to(torch::kDouble) - right).norm() / right.norm()).item<double>();
}

template <class T>
T* data(const Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

ModelSettings small(Normalization normalization, int64_t heads = 2) {
  ModelSettings settings;
  settings.d_model = 64;
  settings.d_ff = 96;
  settings.heads = heads;
  settings.encoder_layers = settings.decoder_layers = 2;
  settings.vocabulary_size = 40;
  settings.dropout = 0;
  settings.normalization = normalization;
  return settings;
}

struct Pass {
  Tensor hidden;
  std::vector<std::pair<std::string, Tensor>> gradients;
};

Pass pass(Transformer& model, bool bf16) {
  torch::manual_seed(5);
  auto source = torch::randint(4, 40, {6, 20}), target = torch::randint(4, 40, {6, 24});
  source[1].narrow(0, 5, 4).zero_();  // padding
  model->zero_grad();
  Pass result;
  {
    const Autocast autocast(torch::kCPU, Autocast::State{.enabled = bf16}, /*cached=*/true);
    const auto memory = model->encode(source);
    result.hidden = model->decode(target, memory).values;
  }
  const auto weights = torch::randn(result.hidden.sizes());
  (result.hidden * weights).sum().backward();
  for (const auto& item : model->named_parameters()) {
    if (item.value().grad().defined()) result.gradients.emplace_back(item.key(), item.value().grad().clone());
  }
  return result;
}

}  // namespace

TEST_CASE("sub-layers as a GPU makes them are those of the modules", "[gpu]") {
  const auto normalization = GENERATE(Normalization::post, Normalization::pre);
  const bool biased = GENERATE(false, true);
  auto settings = small(normalization, biased ? 2 : 4);  // heads of 32 have their own attention
  settings.projection_bias = biased;
  torch::manual_seed(1);
  Transformer model(settings);
  model->train();
  {
    torch::NoGradGuard no_grad;  // gains and biases other than 1 and 0
    for (const auto& item : model->named_parameters()) item.value().add_(0.1 * torch::randn_like(item.value()));
  }
  Pass expected, rounded, found;
  {
    const General general(nullptr);
    expected = pass(model, false);
    rounded = pass(model, true);
  }
  {
    const ChosenEmulatedGpu gpu;
    const Autocast autocast(torch::kCPU, Autocast::State{.enabled = true}, true);
    REQUIRE(fusable_on_gpu(torch::zeros({1, 1, 64})));
    REQUIRE_FALSE(fusable_on_gpu(torch::zeros({1, 1, 65})));
    found = pass(model, true);
  }
  CHECK(error(found.hidden, expected.hidden) < 1.3 * error(rounded.hidden, expected.hidden));
  CHECK(error(found.hidden, expected.hidden) > 1e-5);  // bfloat16 has been at work
  REQUIRE(found.gradients.size() == expected.gradients.size());
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    INFO(expected.gradients[i].first);
    CHECK(found.gradients[i].second.scalar_type() == torch::kFloat);
    const double most = error(rounded.gradients[i].second, expected.gradients[i].second);
    CHECK(error(found.gradients[i].second, expected.gradients[i].second) < 1.5 * most + 0.01);
    CHECK(most < 0.2);
  }
}

TEST_CASE("a GPU's sub-layers leave parameters that are not contiguous to the modules", "[gpu]") {
  const auto normalization = GENERATE(Normalization::post, Normalization::pre);
  torch::manual_seed(1);
  Transformer model(small(normalization));
  const auto expected = [&] {
    const ChosenEmulatedGpu gpu;
    return pass(model, true);
  }();
  for (auto& item : model->named_parameters()) {
    if (item.value().dim() > 1) continue;
    const auto before = item.value().detach().clone();
    model->zero_grad();
    item.value().set_data(torch::stack({before, before * 3}, 1).select(1, 0));
    CHECK_FALSE(item.value().is_contiguous());
  }
  const auto general = [&] {
    const General chosen(nullptr);
    return pass(model, true);
  }();
  const ChosenEmulatedGpu gpu;
  const auto found = pass(model, true);
  CHECK(error(found.hidden, expected.hidden) < 0.02);
  CHECK(error(found.hidden, general.hidden) < 1e-5);  // but for the embedding
  for (size_t i = 0; i < general.gradients.size(); ++i) {
    INFO(general.gradients[i].first);
    CHECK(error(found.gradients[i].second, general.gradients[i].second) < 1e-4);
  }
}

TEST_CASE("a GPU's residual connection is LibTorch's", "[gpu]") {
  const int64_t width = GENERATE(64, 128, 192, 512), rows = 37;
  torch::manual_seed(2);
  const ChosenEmulatedGpu gpu;
  const auto stream = torch::randn({rows, width}), branch = torch::randn({rows, width}).to(torch::kBFloat16);
  const auto gain = torch::randn({width}), bias = torch::randn({width});
  const auto result = torch::empty_like(stream), scale = torch::empty({rows});
  const auto rounded = torch::empty_like(branch), normalised = torch::empty_like(branch);
  gpu.kernels().start(gpu::ResidualForward{.stream = data<float>(stream),
                                           .branch = data<gpu::Bf16>(branch),
                                           .gain = data<float>(gain),
                                           .bias = data<float>(bias),
                                           .epsilon = 1e-5f,
                                           .result = data<float>(result),
                                           .rounded = data<gpu::Bf16>(rounded),
                                           .normalised = data<gpu::Bf16>(normalised),
                                           .scale = data<float>(scale),
                                           .rows = rows},
                      width);
  auto x = (stream.to(torch::kDouble) + branch.to(torch::kDouble)).requires_grad_();
  auto g = gain.to(torch::kDouble).requires_grad_(), b = bias.to(torch::kDouble).requires_grad_();
  const auto expected = torch::layer_norm(x, {width}, g, b, 1e-5);
  CHECK(error(result, expected.detach()) < 1e-6);
  CHECK(torch::equal(rounded, result.to(torch::kBFloat16)));

  // The way back, with a past.
  const auto given = torch::randn({rows, width}), past = torch::randn({rows, width});
  expected.backward(given.to(torch::kDouble));
  const int64_t blocks = GENERATE(1, 3);
  const auto sums = torch::empty({blocks, 3, width}), of_stream = torch::empty_like(stream);
  const auto of_branch = torch::empty_like(branch);
  gpu.kernels().start(gpu::ResidualBackward{.given = data<float>(given),
                                            .past = data<float>(past),
                                            .normalised = data<gpu::Bf16>(normalised),
                                            .scale = data<float>(scale),
                                            .gain = data<float>(gain),
                                            .stream = data<float>(of_stream),
                                            .branch = data<gpu::Bf16>(of_branch),
                                            .sums = data<float>(sums),
                                            .rows = rows},
                      width, blocks);
  // What it knows of the normalised values is bfloat16.
  CHECK(error(of_stream - past, x.grad()) < 5e-3);
  CHECK(error(of_branch, x.grad()) < 5e-3);
  const auto all = sums.sum(0);
  CHECK(error(all[0], x.grad().sum(0)) < 5e-3);
  CHECK(error(all[1], g.grad()) < 5e-3);
  CHECK(error(all[2], b.grad()) < 1e-6);
}

TEST_CASE("a GPU's dropout drops its share, and the same on the way back", "[gpu]") {
  constexpr int64_t rows = 200, width = 128;
  const ChosenEmulatedGpu gpu;
  const auto kept = [&](uint64_t seed) {
    const auto stream = torch::zeros({rows, width}), result = torch::empty_like(stream);
    const auto branch = torch::ones({rows, width}, torch::kBFloat16);
    const gpu::Dropout dropout{seed, 16384, 4.0f / 3};
    gpu.kernels().start(gpu::ResidualForward{.stream = data<float>(stream),
                                             .branch = data<gpu::Bf16>(branch),
                                             .dropout = dropout,
                                             .result = data<float>(result),
                                             .rows = rows},
                        width);
    const auto given = torch::ones({rows, width}), sums = torch::empty({1, 3, width});
    const auto of_branch = torch::empty_like(branch);
    gpu.kernels().start(gpu::ResidualBackward{.given = data<float>(given),
                                              .dropout = dropout,
                                              .branch = data<gpu::Bf16>(of_branch),
                                              .sums = data<float>(sums),
                                              .rows = rows},
                        width, 1);
    CHECK(torch::equal(of_branch, result.to(torch::kBFloat16)));
    CHECK(error(sums[0][0], result.sum(0)) < 1e-6);
    CHECK(((result == 0) | (result == 4.0f / 3)).all().item<bool>());
    return result != 0;
  };
  const auto first = kept(1);
  // Five deviations of 25,600 draws; rows and columns are alike.
  CHECK(std::abs(first.to(torch::kDouble).mean().item<double>() - 0.75) < 0.0136);
  CHECK(first.to(torch::kDouble).mean(0).min().item<double>() > 0.55);
  CHECK(first.to(torch::kDouble).mean(1).min().item<double>() > 0.5);
  CHECK(torch::equal(first, kept(1)));
  // Another seed agrees by chance: 0.75^2 + 0.25^2.
  CHECK(std::abs((first == kept(2)).to(torch::kDouble).mean().item<double>() - 0.625) < 0.016);
}

TEST_CASE("NaN passes through a GPU's sub-layers, and recomputed layers drop the same", "[gpu]") {
  auto settings = small(GENERATE(Normalization::post, Normalization::pre));
  settings.dropout = 0.3;
  torch::manual_seed(1);
  Transformer model(settings);
  model->train();
  const ChosenEmulatedGpu gpu;
  const auto kept = pass(model, true);
  model->set_recompute(true);
  const auto again = pass(model, true);
  CHECK(torch::equal(again.hidden, kept.hidden));
  for (size_t i = 0; i < kept.gradients.size(); ++i) {
    INFO(kept.gradients[i].first);
    CHECK(error(again.gradients[i].second, kept.gradients[i].second) < 1e-2);  // casts are rounded once more
  }
  model->set_recompute(false);
  for (const auto& item : model->named_parameters()) {
    if (item.key() == "encoder.layers.0.feed_forward.inner.bias") {
      torch::NoGradGuard no_grad;
      item.value().fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
  CHECK(pass(model, true).hidden.isnan().all().item<bool>());
}

TEST_CASE("a GPU's sub-layers refuse second derivatives", "[gpu]") {
  torch::manual_seed(1);
  Transformer model(small(Normalization::post));
  model->train();
  const ChosenEmulatedGpu gpu;
  const Autocast autocast(torch::kCPU, Autocast::State{.enabled = true}, true);
  const auto source = torch::randint(4, 40, {2, 5});
  const auto memory = model->encode(source);
  const auto hidden = model->decode(source, memory).values;
  CHECK_THROWS_WITH(torch::autograd::grad({hidden.sum()}, {model->parameters().front()}, {}, {}, /*create_graph=*/true),
                    Catch::Matchers::Contains("derivatives of derivatives"));
}

TEST_CASE("a GPU's attention does not take what overflows for what is masked", "[gpu]") {
  const auto all = torch::zeros({1, 2, 3 * 32}).to(torch::kBFloat16);
  all.narrow(2, 0, 32).fill_(1e30);
  all.narrow(2, 32, 32).fill_(-1e30);
  const auto result = torch::zeros({1, 2, 32}, torch::kBFloat16), normaliser = torch::zeros({1, 1, 2});
  const ChosenEmulatedGpu gpu;
  gpu.kernels().start(gpu::AttentionForward{.query = data<gpu::Bf16>(all),
                                            .key = data<gpu::Bf16>(all) + 32,
                                            .value = data<gpu::Bf16>(all) + 64,
                                            .query_row = 96,
                                            .query_sentence = 192,
                                            .key_row = 96,
                                            .key_sentence = 192,
                                            .allowed = nullptr,
                                            .heads = 1,
                                            .queries = 2,
                                            .keys = 2,
                                            .causal = false,
                                            .scale = 1,
                                            .result = data<gpu::Bf16>(result),
                                            .normaliser = data<float>(normaliser)},
                      32, 1);
  CHECK(result.isnan().all().item<bool>());
}

TEST_CASE("a GPU's attention of short sentences is softmax(Q K^T) V", "[gpu]") {
  struct Case {
    int64_t width, queries, keys;
    bool causal, masked;
  };
  const auto c = GENERATE(Case{32, 20, 20, false, false}, Case{32, 33, 33, true, false}, Case{32, 7, 40, false, true},
                          Case{64, 70, 70, true, true}, Case{64, 65, 18, false, true}, Case{32, 1, 1, true, false});
  constexpr int64_t batch = 3, heads = 2;
  CAPTURE(c.width, c.queries, c.keys, c.causal, c.masked);
  torch::manual_seed(4);
  const int64_t row = heads * c.width;
  const bool together = c.queries == c.keys;  // in one projection
  const auto query = torch::randn({batch, c.queries, together ? 3 * row : row}).to(torch::kBFloat16);
  const auto memory = together ? query : torch::randn({batch, c.keys, 2 * row}).to(torch::kBFloat16);
  auto allowed = torch::ones({batch, c.keys}, torch::kBool);
  allowed[1].narrow(0, c.keys / 2, c.keys - c.keys / 2).fill_(false);
  allowed[2].fill_(false);  // nothing to attend to
  const double scale = 1 / std::sqrt(static_cast<double>(c.width));

  auto q = query.to(torch::kDouble).requires_grad_();
  auto m = together ? q : memory.to(torch::kDouble).requires_grad_();
  const auto part = [&](const Tensor& of, int64_t index) {
    return of.narrow(2, index * row, row).unflatten(2, {heads, c.width}).transpose(1, 2);
  };
  const int64_t first = together ? 1 : 0;
  auto seen = torch::ones({batch, 1, c.queries, c.keys}, torch::kBool);
  if (c.causal) seen = seen.tril();
  if (c.masked) seen = seen & allowed.view({batch, 1, 1, c.keys});
  auto scores = part(q, 0).matmul(part(m, first).mT()) * scale;
  const auto hopeless = ~seen.any(-1, true);
  scores = scores.masked_fill(~(seen | hopeless), -std::numeric_limits<double>::infinity());
  const auto expected =
      scores.softmax(-1).masked_fill(hopeless, 0.0).matmul(part(m, first + 1)).transpose(1, 2).flatten(2);
  const auto given = torch::randn({batch, c.queries, row}).to(torch::kBFloat16);
  expected.backward(given.to(torch::kDouble));

  const ChosenEmulatedGpu gpu;
  const auto result = torch::full({batch, c.queries, row}, 7.0, torch::kBFloat16);
  const auto normaliser = torch::empty({batch, heads, c.queries});
  auto* const keys = data<gpu::Bf16>(memory) + (together ? row : 0);
  const gpu::AttentionForward forward{.query = data<gpu::Bf16>(query),
                                      .key = keys,
                                      .value = keys + row,
                                      .query_row = query.stride(1),
                                      .query_sentence = query.stride(0),
                                      .key_row = memory.stride(1),
                                      .key_sentence = memory.stride(0),
                                      .allowed = c.masked ? data<bool>(allowed) : nullptr,
                                      .heads = heads,
                                      .queries = static_cast<int>(c.queries),
                                      .keys = static_cast<int>(c.keys),
                                      .causal = c.causal,
                                      .scale = static_cast<float>(scale),
                                      .result = data<gpu::Bf16>(result),
                                      .normaliser = data<float>(normaliser)};
  gpu.kernels().start(forward, c.width, batch);
  CHECK(error(result, expected.detach()) < 5e-3);
  const auto of_query = torch::full_like(query, 7), of_memory = together ? of_query : torch::full_like(memory, 7);
  auto* const of_keys = data<gpu::Bf16>(of_memory) + (together ? row : 0);
  gpu.kernels().start(gpu::AttentionBackward{.forward = forward,
                                             .given = data<gpu::Bf16>(given),
                                             .query = data<gpu::Bf16>(of_query),
                                             .key = of_keys,
                                             .value = of_keys + row},
                      c.width, batch);
  CHECK(error(of_query, q.grad()) < 1e-2);
  CHECK(error(of_memory, m.grad()) < 1e-2);
  if (c.masked) {
    CHECK(result[2].eq(0).all().item<bool>());
    CHECK(of_memory[2].narrow(1, together ? row : 0, 2 * row).eq(0).all().item<bool>());
  }
}

TEST_CASE("a GPU's way back through an activation is LibTorch's, and its sum over rows", "[gpu]") {
  const int64_t rows = GENERATE(1, 6, 37), columns = GENERATE(8, 1032, 2048);
  torch::manual_seed(6);
  const auto given = torch::randn({rows, columns}).to(torch::kBFloat16);
  const auto activated = torch::randn({rows, columns}).relu().to(torch::kBFloat16);
  activated[0][3] = std::numeric_limits<double>::quiet_NaN();
  const auto expected = torch::threshold_backward(given, activated, 0);
  const int blocks = relu_backward_blocks(rows, columns);
  const auto result = torch::empty_like(given), sums = torch::empty({blocks, columns});
  const ChosenEmulatedGpu gpu;
  gpu.kernels().start(gpu::ReluBackward{.given = data<gpu::Bf16>(given),
                                        .activated = data<gpu::Bf16>(activated),
                                        .result = data<gpu::Bf16>(result),
                                        .sums = data<float>(sums),
                                        .rows = rows,
                                        .columns = static_cast<int>(columns),
                                        .row_blocks = blocks});
  CHECK(torch::equal(result, expected));
  CHECK(torch::allclose(sums.sum(0), expected.to(torch::kFloat).sum(0), 1e-5, 1e-5));
  CHECK(relu_backward_blocks(0, columns) == 1);
}

TEST_CASE("a GPU's sub-layers take a memory of one sentence for all, and tensors that begin anywhere", "[gpu]") {
  torch::manual_seed(7);
  const auto settings = small(Normalization::post);
  Residual residual(settings);
  MultiHeadAttention attention(attention_options(settings.resolved()));
  residual->train();
  attention->train();
  const auto x = torch::randn({3 * 5 * 64 + 1}).narrow(0, 1, 3 * 5 * 64).view({3, 5, 64}).requires_grad_();
  const auto memory = torch::randn({1, 4, 64}).requires_grad_();
  const auto given = torch::randn({3 * 5 * 64 + 1}).narrow(0, 1, 3 * 5 * 64).view({3, 5, 64});
  const auto all = [&](bool bf16) {
    const Autocast autocast(torch::kCPU, Autocast::State{.enabled = bf16}, true);
    const auto values = residual->around(attention, x, memory, {}).values;
    auto found = torch::autograd::grad({values}, {x, memory}, {given});
    found.push_back(values.detach());
    return found;
  };
  std::vector<Tensor> expected;
  {
    const General general(nullptr);
    expected = all(false);
  }
  const ChosenEmulatedGpu gpu;
  const auto found = all(true);
  for (size_t i = 0; i < expected.size(); ++i) CHECK(error(found[i], expected[i]) < 0.03);
}
