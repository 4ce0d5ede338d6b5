#include "transformer/model/recompute.h"

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include "for_a_while.h"
#include "model/reference.h"
#include "model/variations.h"
#include "transformer/model/fused/fused_layers.h"
#include "transformer/model/tensor_memory.h"
#include "transformer/model/transformer.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

class Bfloat16 {
 public:
  explicit Bfloat16(bool on) : on_(on) {
    if (!on) return;
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Bfloat16() {
    if (!on_) return;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }

 private:
  bool on_;
};

struct Step {
  double loss;
  std::vector<std::pair<std::string, Tensor>> gradients;
  Tensor next;  // the random number after it
};

// One training step's gradients; the backward pass within the autocast's scope, or after it.
Step step(Transformer& model, const Tensor& source, const Tensor& target, bool bf16, bool backward_within) {
  torch::manual_seed(3);
  model->zero_grad();
  Tensor loss;
  {
    const Bfloat16 autocast(bf16);
    loss = model->forward(source, target).to(torch::kFloat).square().mean();
    if (backward_within) loss.backward();
  }
  if (!backward_within) loss.backward();
  Step result{loss.item<double>(), {}, torch::rand({3})};
  for (const auto& item : model->named_parameters()) {
    INFO(item.key());
    REQUIRE(item.value().grad().defined());
    result.gradients.emplace_back(item.key(), item.value().grad().clone());
  }
  return result;
}

}  // namespace

TEST_CASE("recomputing layers gives the same gradients bit for bit, with dropout, in every variation") {
  for (auto& [name, settings] : variations()) {
    settings.dropout = 0.1;
    settings.attention_dropout = 0.1;
    settings.symbol_dropout = 0.1;
    if (settings.feed_forward == ModelSettings::FeedForward::network) settings.relu_dropout = 0.1;
    torch::manual_seed(1);
    Transformer model(settings);
    const auto source = torch::randint(1, 19, {4, 9}, torch::kInt64);
    auto target = torch::randint(1, 19, {4, 8}, torch::kInt64);
    source[1].narrow(0, 5, 4).zero_();
    target[2].narrow(0, 3, 5).zero_();
    for (const bool bf16 : {false, true}) {
      for (const bool within : {false, true}) {
        INFO(name << ", bf16 " << bf16 << ", backward within autocast " << within);
        model->set_recompute(false);
        const auto plain = step(model, source, target, bf16, within);
        model->set_recompute(true);
        const auto again = step(model, source, target, bf16, within);
        CHECK(plain.loss == again.loss);
        CHECK(torch::equal(plain.next, again.next));
        for (size_t i = 0; i < plain.gradients.size(); ++i) {
          INFO(plain.gradients[i].first);
          CHECK(torch::equal(plain.gradients[i].second, again.gradients[i].second));
        }
      }
    }
  }
}

TEST_CASE("recomputing layers keeps less for the backward pass") {
  ModelSettings settings;
  settings.d_model = 64;
  settings.d_ff = 256;
  settings.heads = 4;
  settings.vocabulary_size = 20;
  torch::manual_seed(2);
  Transformer model(settings);
  const auto ids = torch::randint(4, 20, {16, 40}, torch::kInt64);
  const auto peak = [&](bool recompute) {
    model->set_recompute(recompute);
    model->zero_grad();
    return static_cast<double>(peak_tensor_bytes([&] { model->forward(ids, ids).square().mean().backward(); }));
  };
  const double plain = peak(false), recomputed = peak(true);
  INFO("plain " << plain << ", recomputed " << recomputed);
  CHECK(recomputed < 0.4 * plain);
}

TEST_CASE("with recomputing a parameter's gradient arrives once, and evaluation is untouched") {
  auto settings = variations().front().second;
  torch::manual_seed(4);
  Transformer model(settings);
  model->set_recompute(true);
  std::map<std::string, int> arrivals;
  for (auto& item : model->named_parameters()) {
    item.value().register_hook([&arrivals, name = item.key()](const Tensor&) { ++arrivals[name]; });
  }
  const auto ids = torch::randint(4, 19, {2, 5}, torch::kInt64);
  model->forward(ids, ids).sum().backward();
  CHECK(arrivals.size() == model->named_parameters().size());
  for (const auto& [name, count] : arrivals) {
    INFO(name);
    CHECK(count == 1);
  }

  // Weights on request, and gradients in evaluation mode, take the plain way.
  CHECK(model->encode(ids, true).weights.size() == 2);
  model->eval();
  CHECK(difference(model->forward(ids, ids), model->forward(ids, ids)) == 0);
  // A layer whose input needs no gradient still gets those of its parameters.
  model->train();
  for (auto& item : model->named_parameters()) {
    if (item.key() == "embedding.weight") item.value().requires_grad_(false);
  }
  model->zero_grad();
  model->forward(ids, ids).square().sum().backward();
  for (const auto& item : model->named_parameters()) {
    if (item.key() == "embedding.weight") continue;
    INFO(item.key());
    REQUIRE(item.value().grad().defined());
    CHECK(item.value().grad().abs().max().item<double>() > 0);
  }
}

TEST_CASE(
    "a recomputed layer's backward pass is refused in another mode, and with other kernels, than its forward pass") {
  auto settings = variations().front().second;
  settings.dropout = 0.5;
  torch::manual_seed(5);
  Transformer model(settings);
  model->set_recompute(true);
  const auto ids = torch::randint(4, 19, {2, 5}, torch::kInt64);
  const auto loss = [&] { return model->forward(ids, ids).square().sum(); };
  auto of_training = loss();
  model->eval();
  CHECK_THAT(message_of<c10::Error>([&] { of_training.backward(); }), Contains("train()"));
  model->train();
  // A stack that trains around a layer that does not is as it was, too.
  model->named_modules()["encoder.layers.0"]->eval();
  CHECK_NOTHROW(loss().backward());
  auto of_others = loss();
  const ChosenKernels<training_kernels, choose_training_kernels> chosen(nullptr);
  CHECK_THAT(message_of<c10::Error>([&] { of_others.backward(); }), Contains("choose_training_kernels"));
  CHECK_NOTHROW(loss().backward());
}
