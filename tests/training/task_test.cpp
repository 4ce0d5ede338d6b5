// Training with tasks of one's own.
#include "transformer/training/task.h"

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "error_of.h"
#include "support.h"
#include "transformer/architecture/settings.h"
#include "transformer/model/blockwise_attention.h"
#include "transformer/model/recompute.h"
#include "transformer/model/transformer.h"
#include "transformer/text/corpus.h"
#include "transformer/training/layer_drop.h"
#include "transformer/training/trainer.h"

using namespace transformer;
using transformer::test::error_of;
using transformer::test::read_file;
using transformer::test::TemporaryDirectory;

namespace {

// Rows of three numbers whose sum is wanted. Its position is a text of its own.
struct Sums : BatchSource {
  void begin(const Plan& given) override { plan = given; }
  MicroBatch next(int64_t number, BatchPosition& position) override {
    position.state += 'x';
    ++position.batch;
    asked += plan.mine(number);
    const auto x = torch::arange(6, torch::kFloat).reshape({2, 3}) / static_cast<double>(position.state.size());
    return {.tensors = {x, x.sum(1, true)}, .items = 2};
  }
  Plan plan;
  int64_t asked = 0;
};

// The plainest: no state but a count.
struct GradientDescent : Optimizer {
  explicit GradientDescent(NamedParameters given) : Optimizer(std::move(given)) {}
  void step(double rate, const at::Tensor&) override {
    const torch::NoGradGuard no_grad;
    for (auto [name, parameter] : parameters()) parameter -= rate * parameter.grad();
    count += 1;
  }
  TensorMap state() const override { return {{"count", count}}; }
  at::Tensor count = torch::zeros({}, torch::kLong);
};

struct Run {
  torch::nn::Linear model{nullptr};
  std::shared_ptr<Sums> sums = std::make_shared<Sums>();
  GradientDescent* optimizer = nullptr;  // the trainer's
  int64_t counted = 0;                   // by it
  std::vector<ProgressReport> reports;
  std::vector<std::string> lines;
  TrainingSettings settings;

  explicit Run(int64_t steps) {
    settings.steps = steps;
    settings.batch_tokens = 2;
    settings.micro_batch_tokens = 1;
    settings.log_every = 2;
    settings.validate_every = 0;
    torch::manual_seed(3);
    model = torch::nn::Linear(3, 1);
  }

  TrainingTask task() {
    TrainingTask task{.model = model.ptr(), .batches = sums, .loss = {}, .schedule = [](int64_t step) {
                        return 0.01 / static_cast<double>(step);
                      }};
    task.loss = [this](const DeviceBatch& batch) -> LossSums {
      return {(model->forward(batch.tensors.at(0)) - batch.tensors.at(1)).square().sum(), {}};
    };
    task.optimizer = [this](NamedParameters parameters) {
      auto made = std::make_unique<GradientDescent>(std::move(parameters));
      optimizer = made.get();
      return made;
    };
    return task;
  }

  TrainingSummary train(const std::filesystem::path& folder, bool resume = false) {
    std::filesystem::create_directories(folder);
    Communicator alone({}, {});
    TrainerHooks hooks;
    hooks.progressed = [this](const ProgressReport& report) { reports.push_back(report); };
    hooks.log = Log([this](LogLevel, const std::string& line) { lines.push_back(line); });
    Trainer trainer(alone, task(), settings, folder, {}, hooks);
    if (resume) trainer.resume();
    const auto summary = trainer.run();
    counted = optimizer->count.item<int64_t>();
    return summary;
  }
};

}  // namespace

TEST_CASE("a task's source, loss, optimizer and schedule are what is trained by") {
  TemporaryDirectory folder;
  Run run(4);
  // The same by hand.
  torch::manual_seed(3);
  torch::nn::Linear expected(3, 1);
  for (int64_t step = 1; step <= 4; ++step) {
    expected->zero_grad();
    for (int64_t part = 2 * step - 1; part <= 2 * step; ++part) {
      const auto x = torch::arange(6, torch::kFloat).reshape({2, 3}) / static_cast<double>(part);
      ((expected->forward(x) - x.sum(1, true)).square().sum() / 4).backward();
    }
    const torch::NoGradGuard no_grad;
    for (auto& parameter : expected->parameters()) parameter -= 0.01 / static_cast<double>(step) * parameter.grad();
  }
  const auto summary = run.train(folder / "run");
  CHECK(summary.end == TrainingSummary::End::steps);
  CHECK(torch::allclose(run.model->weight, expected->weight, 1e-6, 1e-7));
  CHECK(torch::allclose(run.model->bias, expected->bias, 1e-6, 1e-7));
  // Without a likelihood there is no perplexity, in no record.
  REQUIRE(run.reports.size() == 2);
  CHECK(run.reports[1].step == 4);
  CHECK_FALSE(run.reports[1].perplexity.has_value());
  CHECK(run.reports[1].loss < run.reports[0].loss);
  CHECK(read_file(folder / "run/metrics.jsonl").find("perplexity") == std::string::npos);
  CHECK(run.lines.size() == 3);  // two of progress, one of the checkpoint

  // Its state is the checkpoint's, and the run goes on from it.
  const auto progress = nlohmann::json::parse(read_file(folder / "run/checkpoints/step-00000004/progress.json"));
  CHECK(progress.at("batch_state") == std::string(8, 'x'));
  Run parts(1), rest(4);
  parts.train(folder / "parts");
  rest.train(folder / "parts", /*resume=*/true);
  CHECK(torch::equal(rest.model->weight, run.model->weight));
  CHECK(torch::equal(rest.model->bias, run.model->bias));
  CHECK(rest.counted == 4);
  CHECK(rest.sums->asked == 6);
}

TEST_CASE("a task that lacks something, or cannot say how large its batches get, is refused") {
  TemporaryDirectory folder;
  Communicator alone({}, {});
  Run run(1);
  auto task = run.task();
  task.schedule = {};
  CHECK_THROWS_AS(Trainer(alone, task, run.settings, folder.path()), std::invalid_argument);
  run.settings.micro_batch = TrainingSettings::MicroBatch::automatic;
  run.settings.micro_batch_tokens = 0;
  CHECK_THAT(error_of([&] { run.train(folder / "run"); }), Contains("set training.micro_batch_tokens"));
}

TEST_CASE("a run without checkpoints cannot be gone on with") {
  TemporaryDirectory folder;
  Run run(1);
  CHECK_THAT(error_of([&] { run.train(folder / "run", /*resume=*/true); }),
             Contains("has no checkpoint to go on from"));
}

TEST_CASE("settings that no file gave are checked all the same") {
  TemporaryDirectory folder;
  const auto refusal = [&](const auto& change) {
    Run run(1);
    change(run.settings);
    return error_of([&] { run.train(folder / "run"); });
  };
  CHECK_THAT(refusal([](auto& settings) { settings.keep_checkpoints = settings.average_checkpoints = 0; }),
             StartsWith("training.keep_checkpoints: ") || StartsWith("training.average_checkpoints: "));
  CHECK_THAT(refusal([](auto& settings) { settings.keep_checkpoints = settings.average_checkpoints = -3; }),
             StartsWith("training.keep_checkpoints: ") || StartsWith("training.average_checkpoints: "));
  CHECK_THAT(refusal([](auto& settings) { settings.label_smoothing = 5; }), StartsWith("training.label_smoothing: "));
  CHECK_THAT(refusal([](auto& settings) { settings.clip_norm = std::nan(""); }), StartsWith("training.clip_norm: "));
  CHECK_THAT(refusal([](auto& settings) { settings.steps = -5; }), StartsWith("training.steps: "));
}

TEST_CASE("text is sampled as the settings say, or the task is refused") {
  const auto corpus = Corpus::of({{5, 6}}, {{7, 8}});
  ModelSettings tiny;
  tiny.vocabulary_size = 12;
  tiny.encoder_layers = tiny.decoder_layers = 1;
  tiny.d_model = tiny.d_ff = 8;
  tiny.heads = 2;
  const Transformer model(tiny.resolved());
  TrainingSettings settings;
  CHECK(translation_task(model, {corpus}, settings).batches);
  settings.subword_sampling = 0.5;
  CHECK_THAT(error_of([&] { translation_task(model, {corpus}, settings); }), Contains("TrainingText::sampling"));
  const TrainingText sampled{.corpus = corpus, .weights = {}, .vocabularies = {}, .sampling = 0.5};
  CHECK_THAT(error_of([&] { translation_task(model, sampled, settings); }), Contains("TrainingText::vocabularies"));
}

TEST_CASE("the library writes to no log unless it is given one") {
  TemporaryDirectory folder;
  Run run(2);
  Communicator alone({}, {});
  std::filesystem::create_directories(folder / "run");
  std::ostringstream out;
  auto* const before = std::cout.rdbuf(out.rdbuf());
  Trainer(alone, run.task(), run.settings, folder / "run").run();
  std::cout.rdbuf(before);
  CHECK(out.str().empty());
}

TEST_CASE("encoder and decoder are stacks of whatever layers they are given") {
  // A layer that lets a part of its input through beside another layer.
  struct Gated : AnyEncoderLayer {
    explicit Gated(const ModelSettings& settings) {
      inner = register_module("inner", EncoderLayer(settings));
      gate = register_parameter("gate", torch::full({1}, 0.5));
    }
    Attended forward(const torch::Tensor& x, AttentionOptions call) override {
      auto [values, weights] = inner->forward(x, std::move(call));
      return {gate * values + (1 - gate) * x, weights};
    }
    EncoderLayer inner{nullptr};
    torch::Tensor gate;
  };
  ModelSettings settings;
  settings.d_model = 8;
  settings.d_ff = 16;
  settings.heads = 2;
  settings.encoder_layers = 3;
  settings.decoder_layers = 2;
  settings.vocabulary_size = 20;
  settings.dropout = 0;
  std::vector<int64_t> made;
  LayerFactories layers;
  layers.encoder = [&](int64_t index) -> std::shared_ptr<AnyEncoderLayer> {
    made.push_back(index);
    return index == 1 ? std::static_pointer_cast<AnyEncoderLayer>(std::make_shared<Gated>(settings.resolved()))
                      : std::make_shared<EncoderLayerImpl>(settings);
  };
  layers.decoder = [&](int64_t) { return std::make_shared<DecoderLayerImpl>(settings); };
  torch::manual_seed(1);
  Transformer model(settings, layers);
  CHECK(made == std::vector<int64_t>{0, 1, 2});
  const auto names = model->named_parameters();
  REQUIRE(names.contains("encoder.layers.1.gate"));
  REQUIRE(names.contains("encoder.layers.1.inner.feed_forward.inner.weight") ==
          names.contains("encoder.layers.0.feed_forward.inner.weight"));
  torch::manual_seed(1);
  Transformer plain(settings);
  CHECK(plain->named_parameters().size() + 1 == names.size());

  // With the gate open it is the paper's layer; it is recomputed, trained and decoded like one.
  const auto source = torch::randint(4, 20, {2, 5}, torch::kLong), target = torch::randint(4, 20, {2, 4}, torch::kLong);
  {
    const torch::NoGradGuard no_grad;
    for (const auto& item : plain->named_parameters()) {
      const auto inner = item.key().rfind("encoder.layers.1.", 0) == 0
                             ? "encoder.layers.1.inner." + item.key().substr(std::string("encoder.layers.1.").size())
                             : item.key();
      model->named_parameters()[inner].copy_(item.value());
    }
    model->named_parameters()["encoder.layers.1.gate"].fill_(1);
  }
  model->train();
  plain->train();
  const auto expected = plain->forward(source, target);
  CHECK(torch::equal(model->forward(source, target), expected));
  for (const bool recompute : {false, true}) {
    model->zero_grad();
    model->set_recompute(recompute);
    model->forward(source, target).sum().backward();
    CHECK(model->named_parameters()["encoder.layers.1.gate"].grad().abs().item<float>() > 0);
  }
}

TEST_CASE("layers that may be left out are the paper's, and as often left out as was asked for") {
  ModelSettings settings;
  settings.d_model = 8;
  settings.d_ff = 16;
  settings.heads = 2;
  settings.encoder_layers = settings.decoder_layers = 2;
  settings.vocabulary_size = 20;
  settings.dropout = 0;
  settings = settings.resolved();
  CHECK_FALSE(layer_drop(settings, 0).encoder);
  for (const double none : {-0.5, 1.0, 1.5, std::nan("")}) {
    CHECK_THROWS_AS(layer_drop(settings, none), std::invalid_argument);
  }
  const auto source = torch::randint(4, 20, {2, 5}, torch::kLong), target = torch::randint(4, 20, {2, 4}, torch::kLong);
  torch::manual_seed(1);
  Transformer plain(settings);
  torch::manual_seed(1);
  Transformer model(settings, layer_drop(settings, 0.5));
  plain->eval();
  model->eval();
  CHECK(torch::equal(model->forward(source, target), plain->forward(source, target)));
  REQUIRE(model->named_parameters().keys() == plain->named_parameters().keys());

  // In training, 600 draws for each of four layers: none is left out more or less often than six deviations allow. The
  // encoder's have no gradient either where the whole decoder, which alone looks at them, is left out.
  model->train();
  std::vector<int64_t> out(4);
  for (int64_t draw = 0; draw < 600; ++draw) {
    model->zero_grad();
    torch::manual_seed(draw);
    const bool recomputes = draw % 3 == 0;
    model->set_recompute(recomputes);
    model->forward(source, target).sum().backward();
    size_t layer = 0;
    for (const char* name : {"encoder.layers.0", "encoder.layers.1", "decoder.layers.0", "decoder.layers.1"}) {
      const auto gradient = model->named_parameters()[name + std::string(".feed_forward.inner.weight")].grad();
      out[layer++] += !gradient.defined() || gradient.eq(0).all().item<bool>();
    }
    if (draw >= 20 || !recomputes) continue;
    // The same, when the inside of layers is kept.
    std::vector<torch::Tensor> recomputed;
    for (const auto& parameter : model->parameters()) recomputed.push_back(parameter.grad());
    model->zero_grad();
    torch::manual_seed(draw);
    model->set_recompute(false);
    model->forward(source, target).sum().backward();
    for (size_t i = 0; i < recomputed.size(); ++i) {
      const auto gradient = model->parameters()[i].grad();
      REQUIRE(gradient.defined() == recomputed[i].defined());
      if (gradient.defined()) CHECK(torch::equal(gradient, recomputed[i]));
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const double share = i < 2 ? 1 - 0.5 * (1 - 0.5 * 0.5) : 0.5;
    CHECK(std::abs(static_cast<double>(out[i]) - 600 * share) < 6 * std::sqrt(600 * share * (1 - share)));
  }

  // Where every layer is left out, what comes in goes out, and so does its gradient.
  Encoder stack(settings, layer_drop(settings, 1 - 1e-12).encoder);
  const auto x = torch::randn({2, 3, 8}, torch::requires_grad()), upstream = torch::randn({2, 3, 8});
  const auto values = stack->forward(x).memory;
  CHECK(torch::equal(values, x));
  values.backward(upstream);
  CHECK(torch::equal(x.grad(), upstream));
  for (const auto& parameter : stack->parameters()) CHECK_FALSE(parameter.grad().defined());
}

TEST_CASE("an encoder whose attention is causal is a language model's stack") {
  ModelSettings settings;
  settings.d_model = 8;
  settings.d_ff = 16;
  settings.heads = 2;
  settings.encoder_layers = 2;
  Encoder stack(settings.resolved());
  const auto x = torch::randn({1, 6, 8});
  for (const bool training : {false, true}) {
    stack->train(training);
    torch::manual_seed(5);
    const auto whole = stack->forward(x, {.causal = true}).memory;
    auto other = x.clone();
    other.narrow(1, 4, 2).fill_(9);
    torch::manual_seed(5);
    const auto changed = stack->forward(other, {.causal = true}).memory;
    CHECK(torch::equal(whole.narrow(1, 0, 4), changed.narrow(1, 0, 4)));
    CHECK_FALSE(torch::equal(whole.narrow(1, 4, 2), changed.narrow(1, 4, 2)));
  }
}

TEST_CASE("derivatives of derivatives are refused by every part that would get them wrong") {
  const auto twice = [](const torch::Tensor& value, const torch::Tensor& input) {
    torch::autograd::grad({value.sum()}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  };
  const auto refused = Contains("no derivatives of derivatives");
  const auto hidden = torch::randn({4, 3}, torch::requires_grad()), weight = torch::randn({7, 3});
  const auto targets = torch::tensor({1, 2, 3, 4});
  CHECK_THROWS_WITH(twice(projected_label_smoothing_loss(hidden, weight, targets, 0.1, 0, torch::kFloat).loss, hidden),
                    refused);
  CHECK_NOTHROW(twice(label_smoothing_loss(hidden.matmul(weight.t()), targets, 0.1, 0).loss, hidden));

  const auto heads = torch::randn({1, 2, 5, 4}, torch::requires_grad());
  AttentionOptions near;
  near.window = 2;
  CHECK_THROWS_WITH(twice(attention(heads, heads, heads, near).values, heads), refused);
  near.weights = true;
  CHECK_NOTHROW(twice(attention(heads, heads, heads, near).values, heads));

  const auto layer = [](const torch::Tensor& x, const torch::Tensor&) { return x.sin(); };
  CHECK_THROWS_WITH(twice(recomputed(layer, hidden), hidden), refused);
}
