// copy_task RUN STEPS [--processes N]: the paper's model learns to repeat sequences of ids that exist in memory alone.
// The same command with more STEPS goes on. At the end, how many of unseen sequences it repeats without a fault.

#include <random>

#include "program.h"

using namespace transformer;

namespace {

using Sequences = std::vector<std::vector<int64_t>>;

Sequences random_sequences(unsigned seed, size_t count) {
  std::mt19937 random(seed);
  Sequences sequences(count);
  for (auto& sequence : sequences) {
    sequence.resize(2 + random() % 4);
    for (auto& id : sequence) id = 4 + random() % 8;  // 0 to 3: padding, begin, end, unknown
  }
  return sequences;
}

// The share of target ids that the model finds most likely.
double accuracy(Transformer& model, const Corpus& corpus) {
  const torch::NoGradGuard no_grad;
  Batches batches(corpus, {.batch_tokens = 256, .shuffle = false}, /*epoch=*/0);
  int64_t right = 0, all = 0;
  for (Batch batch; batches.next(batch);) {
    const auto target = tensor_of(batch.target_output);
    const auto found = model->forward(tensor_of(batch.source), tensor_of(batch.target_input)).argmax(-1);
    right += (found.eq(target) & target.ne(TransformerImpl::padding_id)).sum().item<int64_t>();
    all += batch.target_tokens;
  }
  return static_cast<double>(right) / static_cast<double>(all);
}

void learn(const std::string& run, int64_t steps, const Launch& launch) {
  const auto sequences = random_sequences(1, 1000), unseen = random_sequences(2, 50);
  const auto corpus = Corpus::of(sequences, sequences), validation = Corpus::of(unseen, unseen);
  ModelSettings size;
  size.d_model = 32, size.d_ff = 64, size.heads = 4, size.encoder_layers = size.decoder_layers = 1;
  size.vocabulary_size = 12;
  TrainingSettings settings;
  settings.steps = steps, settings.batch_tokens = 512, settings.micro_batch_tokens = 256;
  settings.schedule = TrainingSettings::Schedule::constant, settings.rate = 3e-3, settings.warmup_steps = 50;
  settings.log_every = settings.validate_every = 50;
  torch::manual_seed(settings.seed);
  Transformer model(size);
  TrainerHooks hooks;
  hooks.log = Log([](LogLevel, const std::string& line) { std::cerr << line << "\n"; });
  hooks.validate = [&](torch::nn::Module&, int64_t) {
    const double right = accuracy(model, validation);
    return Validation{.loss = 1 - right, .perplexity = 1 / right};
  };
  train(launch, translation_task(model, {corpus}, settings), settings, run, hooks);
  model->eval();
  if (launch.rank == 0) std::cout << accuracy(model, validation) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  return program(argc, argv, 2,
                 [](char** argument, const Launch& launch) { learn(argument[1], std::stoll(argument[2]), launch); });
}
