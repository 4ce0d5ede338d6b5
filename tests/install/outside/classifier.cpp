// classifier RUN STEPS [--processes N]: an encoder learns which of two ids a sequence has more of, by an optimizer of
// this program's own. The same command with more STEPS goes on. At the end, how many unseen sequences it gets right.
#include <torch/nn/modules/linear.h>

#include "program.h"

using namespace transformer;

namespace {

struct ClassifierImpl : torch::nn::Module {
  explicit ClassifierImpl(const ModelSettings& size) {
    embedding = register_module("embedding", TokenEmbedding(2, size.d_model));
    encoder = register_module("encoder", Encoder(size));
    head = register_module("head", torch::nn::Linear(size.d_model, 2));
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    return head->forward(encoder->forward(embedding->forward(ids)).memory.mean(1));
  }
  TokenEmbedding embedding{nullptr};
  Encoder encoder{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Classifier);

MicroBatch examples(int64_t seed) {
  const auto ids = torch::randint(2, {32, 9}, at::make_generator<at::CPUGeneratorImpl>(uint64_t(seed)), torch::kLong);
  return {.tensors = {ids, ids.sum(1).gt(4).to(torch::kLong)}, .items = 32};
}

struct Examples : BatchSource {
  void begin(const Plan& given) override { plan = given; }
  MicroBatch next(int64_t number, BatchPosition& position) override {
    const int64_t first = position.batch++;
    return plan.mine(number) ? examples(1000 + first) : MicroBatch();
  }
  Plan plan;
};

struct Momentum : Optimizer {
  explicit Momentum(NamedParameters given) : Optimizer(std::move(given)) {
    for (const auto& [name, parameter] : parameters()) velocities.emplace(name, torch::zeros_like(parameter));
  }
  void step(double rate, const at::Tensor& norm) override {
    const torch::NoGradGuard no_grad;
    const auto finite = norm.isfinite();  // on the device: no step waits for it
    for (auto [name, weight] : parameters()) {
      const auto velocity = velocities.at(name), next = 0.9 * velocity + weight.grad();
      velocity.copy_(torch::where(finite, next, velocity));
      weight -= rate * torch::where(finite, next, 0);
    }
  }
  TensorMap state() const override { return velocities; }
  TensorMap velocities;
};

void learn(const std::string& run, int64_t steps, const Launch& launch) {
  ModelSettings size;
  size.d_model = 16, size.d_ff = 32, size.heads = 2, size.encoder_layers = 1;
  TrainingSettings settings;
  settings.steps = steps, settings.batch_tokens = 2, settings.micro_batch_tokens = 1, settings.clip_norm = 1;
  torch::manual_seed(1);
  Classifier model(size.resolved());
  TrainingTask task{.model = model.ptr(), .batches = std::make_shared<Examples>()};
  task.loss = [&](const DeviceBatch& batch) -> LossSums {
    const auto logits = model->forward(batch.tensors[0]);
    return {at::cross_entropy_loss(logits, batch.tensors[1], {}, at::Reduction::Sum)};
  };
  task.schedule = [](int64_t step) { return step < 20 ? 0.0025 * double(step) : 0.05; };
  task.optimizer = [](NamedParameters parameters) { return std::make_unique<Momentum>(std::move(parameters)); };
  train(launch, task, settings, run);
  model->eval();
  const auto unseen = examples(1).tensors;
  const auto right = model->forward(unseen[0]).argmax(1).eq(unseen[1]).sum().item<int64_t>();
  if (launch.rank == 0) std::cout << right / 32.0 << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  return program(argc, argv, 2,
                 [](char** argument, const Launch& launch) { learn(argument[1], std::stoll(argument[2]), launch); });
}
