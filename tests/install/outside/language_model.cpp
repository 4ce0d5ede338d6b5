// language_model RUN STEPS TEXT [--processes N]: a decoder without memory learns to write a text's bytes, from batches
// of this program's own making. The same command with more STEPS goes on. Now and then, its perplexity.

#include <transformer/training/learning_rate.h>

#include <fstream>
#include <random>

#include "program.h"

using namespace transformer;

namespace {

constexpr int64_t length = 32, vocabulary = 256, no_padding = -1;

struct LanguageModelImpl : torch::nn::Module {
  explicit LanguageModelImpl(const ModelSettings& size) {
    embedding = register_module("embedding", TokenEmbedding(vocabulary, size.d_model));
    positions = register_module("positions", PositionalEncoding(size.positions, size.d_model, length));
    layers = register_module("layers", Encoder(size));
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    const auto tokens = embedding->forward(ids);
    return layers->forward(tokens + positions->forward(0, ids.size(1), tokens), {.causal = true}).memory;
  }
  TokenEmbedding embedding{nullptr};
  PositionalEncoding positions{nullptr};
  Encoder layers{nullptr};
};
TORCH_MODULE(LanguageModel);

// Stretches of the text from random places. All that a run needs to go on is how many micro-batches there were.
struct Stretches : BatchSource {
  explicit Stretches(const std::string& text) : bytes(text.begin(), text.end()) {}
  void begin(const Plan& given) override { plan = given; }
  MicroBatch next(int64_t number, BatchPosition& position) override {
    std::mt19937_64 random(plan.seed + 1000003 * static_cast<uint64_t>(position.batch++));
    if (!plan.mine(number)) return {};
    std::vector<torch::Tensor> rows;
    for (int64_t row = 0; row < plan.tokens / length; ++row) {
      auto* first = bytes.data() + random() % (bytes.size() - length - 1);
      rows.push_back(torch::from_blob(first, {length + 1}, torch::kByte).to(torch::kLong));
    }
    const auto ids = torch::stack(rows);
    const int64_t items = ids.size(0) * length;
    return {.tensors = {ids.narrow(1, 0, length), ids.narrow(1, 1, length)}, .items = items, .target_tokens = items};
  }
  std::vector<uint8_t> bytes;
  Plan plan;
};

void learn(const std::string& run, int64_t steps, const std::string& file, const Launch& launch) {
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  ModelSettings size;
  size.d_model = 32, size.d_ff = 64, size.heads = 4, size.encoder_layers = 2;
  TrainingSettings settings;
  settings.steps = steps, settings.batch_tokens = 1024, settings.micro_batch_tokens = 512, settings.log_every = 10;
  torch::manual_seed(settings.seed);
  LanguageModel model(size.resolved());
  const auto loss = [&](const DeviceBatch& batch) {
    return projected_label_smoothing_loss(model->forward(batch.tensors[0]), model->embedding->weight(),
                                          batch.tensors[1],
                                          /*smoothing=*/0.0, no_padding, torch::kFloat, batch.items);
  };
  TrainerHooks hooks;
  hooks.progressed = [](const ProgressReport& report) { std::cout << *report.perplexity << "\n"; };
  train(launch, {model.ptr(), std::make_shared<Stretches>(text), loss, ConstantSchedule{3e-3, 20}}, settings, run,
        hooks);
}

}  // namespace

int main(int argc, char** argv) {
  return program(argc, argv, 3, [](char** argument, const Launch& launch) {
    learn(argument[1], std::stoll(argument[2]), argument[3], launch);
  });
}
