#include "transformer/training/trainer.h"

#include <spdlog/spdlog.h>
#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "support.h"
#include "transformer/base/error.h"
#include "transformer/decoding/translator.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/run.h"

using namespace transformer;
using transformer::test::read_file;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;

namespace {

// Sentences of digits-as-words in which the target repeats the source.
struct CopyTask {
  TemporaryDirectory directory;
  std::filesystem::path source = directory / "train.txt", model = directory / "vocabulary.model";
  std::shared_ptr<const Vocabulary> vocabulary;
  std::optional<Corpus> corpus;

  CopyTask() {
    spdlog::set_level(spdlog::level::off);
    static const char* words[] = {"red", "green", "blue", "white", "black", "one", "two", "three", "four", "five"};
    uint32_t state = 1;
    std::string text;
    for (int line = 0; line < 600; ++line) {
      const int length = 2 + line % 4;
      for (int i = 0; i < length; ++i) {
        state = state * 1664525u + 1013904223u;
        text += std::string(i ? " " : "") + words[(state >> 16) % 10];
      }
      text += "\n";
    }
    write_file(source, text);
    Vocabulary::train({source}, 300, {}, model);
    vocabulary = std::make_shared<const Vocabulary>(model);
    corpus = Corpus::read({source.string()}, {source.string()}, *vocabulary, *vocabulary, {});
  }

  ModelSettings model_settings() const {
    ModelSettings settings;
    settings.d_model = 32;
    settings.d_ff = 64;
    settings.heads = 4;
    settings.encoder_layers = settings.decoder_layers = 1;
    settings.vocabulary_size = vocabulary->size();
    return settings;
  }

  TrainingSettings training_settings(int64_t steps) const {
    TrainingSettings settings;
    settings.steps = steps;
    settings.batch_tokens = 256;
    settings.warmup_steps = 100;
    settings.log_every = 5;
    settings.validate_every = 0;
    settings.checkpoint_every = 0;
    settings.threads = 1;
    return settings;
  }
};

CopyTask& copy_task() {
  static CopyTask task;
  return task;
}

Transformer trained(const TrainingSettings& settings, const ModelSettings& model_settings,
                    const std::filesystem::path& run, const std::filesystem::path& resume = {}) {
  std::filesystem::create_directories(run);
  torch::manual_seed(settings.seed);
  Transformer model(model_settings);
  Trainer trainer(model, *copy_task().corpus, settings, run, {{"config.yaml", "format: 1\n"}}, {});
  if (!resume.empty()) trainer.resume(resume);
  trainer.run();
  return model;
}

bool equal_bits(const Transformer& a, const Transformer& b) {
  const auto left = a->named_parameters(), right = b->named_parameters();
  for (const auto& item : left) {
    if (!torch::equal(item.value(), right[item.key()])) return false;
  }
  return left.size() == right.size();
}

// metrics.jsonl without what the clock says.
std::string metrics(const std::filesystem::path& run) {
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  std::string line, text;
  while (std::getline(lines, line)) {
    auto json = nlohmann::json::parse(line);
    json.erase("seconds");
    json.erase("tokens_per_second");
    text += json.dump() + "\n";
  }
  return text;
}

double largest_difference(const Transformer& a, const Transformer& b) {
  double largest = 0;
  const auto right = b->named_parameters();
  for (const auto& item : a->named_parameters()) {
    largest = std::max(largest, (item.value() - right[item.key()]).abs().max().item<double>());
  }
  return largest;
}

}  // namespace

TEST_CASE("a run that goes on from a checkpoint ends like one that never stopped, bit for bit") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto model = task.model_settings();  // with dropout
  model.attention_dropout = 0.1;
  auto settings = task.training_settings(33);
  settings.micro_batch_tokens = 128;
  const auto whole = trained(settings, model, runs / "whole");
  settings.steps = 12;  // in the middle of a window of progress and of an epoch
  const auto half = trained(settings, model, runs / "parts");
  CHECK_FALSE(equal_bits(whole, half));
  settings.steps = 33;
  torch::rand({100});  // the generator's state must come from the checkpoint
  const auto parts = trained(settings, model, runs / "parts", list_checkpoints(runs / "parts").back());
  CHECK(equal_bits(whole, parts));
  CHECK(metrics(runs / "whole") == metrics(runs / "parts"));
}

TEST_CASE("the same seed gives the same weights, another seed others") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(5);
  const auto first = trained(settings, task.model_settings(), runs / "a");
  const auto second = trained(settings, task.model_settings(), runs / "b");
  settings.seed = 2;
  const auto other = trained(settings, task.model_settings(), runs / "c");
  CHECK(equal_bits(first, second));
  CHECK_FALSE(equal_bits(first, other));
}

TEST_CASE("gradients accumulated over micro-batches are those of the mean over all their tokens") {
  auto& task = copy_task();
  auto settings = task.model_settings();
  settings.dropout = 0;
  torch::manual_seed(1);
  Transformer model(settings);
  // The first two micro-batches of the epoch, as the trainer will see them.
  Batches batches(*task.corpus, {.batch_tokens = 128, .seed = 1}, 0);
  Batch first, second;
  REQUIRE(batches.next(first));
  REQUIRE(batches.next(second));
  torch::Tensor loss = torch::zeros({});
  for (const auto* batch : {&first, &second}) {
    loss = loss + torch::cross_entropy_loss(model->forward(batch->source, batch->target_input).flatten(0, 1),
                                            batch->target_output.flatten(), {}, at::Reduction::Sum, 0, 0.1);
  }
  (loss / (first.target_tokens + second.target_tokens)).backward();

  TemporaryDirectory runs;
  auto training = task.training_settings(1);
  training.micro_batch_tokens = 128;
  const auto after = trained(training, settings, runs / "run");
  // One step of Adam from zero moments moves by rate · gradient / (|gradient| + ε'), so its first moment tells the
  // gradient: m = 0.1 g.
  const auto state = read_tensors(list_checkpoints(runs / "run").back() / "optimizer.safetensors").tensors;
  for (const auto& item : model->named_parameters()) {
    INFO(item.key());
    const auto moment = state.at("first_moment." + item.key());
    CHECK((moment - 0.1 * item.value().grad()).abs().max().item<double>() < 1e-6);
  }
}

TEST_CASE("averaged weights are the mean of the checkpoints' weights") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(6);
  settings.checkpoint_every = 2;
  trained(settings, task.model_settings(), runs / "run");
  const auto checkpoints = list_checkpoints(runs / "run");
  REQUIRE(checkpoints.size() == 3);
  const auto average = average_weights(checkpoints);
  for (const auto& [name, mean] : average) {
    auto sum = torch::zeros_like(mean, torch::kDouble);
    for (const auto& checkpoint : checkpoints) sum += read_tensors(checkpoint / "model.safetensors").tensors.at(name);
    CHECK(torch::allclose(mean.to(torch::kDouble), sum / 3, 1e-6, 1e-7));
  }
}

TEST_CASE("only the newest checkpoints are kept") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(7);
  settings.checkpoint_every = 1;
  settings.keep_checkpoints = 3;
  settings.average_checkpoints = 3;
  trained(settings, task.model_settings(), runs / "run");
  std::vector<std::string> names;
  for (const auto& path : list_checkpoints(runs / "run")) names.push_back(path.filename().string());
  CHECK(names == std::vector<std::string>{"step-00000005", "step-00000006", "step-00000007"});
}

TEST_CASE("a loss that is not finite ends the run and leaves the checkpoints") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(4);
  trained(settings, task.model_settings(), runs / "run");
  settings.steps = 40;
  settings.rate_factor = 1e30;
  CHECK_THROWS_AS(trained(settings, task.model_settings(), runs / "run", list_checkpoints(runs / "run").back()),
                  Failure);
  CHECK(list_checkpoints(runs / "run").size() == 1);
  CHECK_THROWS_WITH(trained(settings, task.model_settings(), runs / "run", list_checkpoints(runs / "run").back()),
                    Catch::Contains("not finite") && Catch::Contains("rate_factor"));
}

TEST_CASE("training in bfloat16 follows training in float32") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(20);
  auto model = task.model_settings();
  model.dropout = 0;
  const auto exact = trained(settings, model, runs / "float32");
  settings.precision = TrainingSettings::Precision::bf16;
  const auto rounded = trained(settings, model, runs / "bf16");
  const double apart = largest_difference(exact, rounded);
  CHECK(apart > 0);
  CHECK(apart < 0.02);
}

TEST_CASE("a copy task is learned to 100 %") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(1500);
  settings.batch_tokens = 512;
  settings.warmup_steps = 200;
  settings.rate_factor = 0.5;
  auto model_settings = task.model_settings();
  model_settings.d_model = 64;
  model_settings.dropout = 0;
  auto model = trained(settings, model_settings, runs / "run");
  model->eval();
  std::vector<std::string> lines;
  std::istringstream text(read_file(task.source));
  for (std::string line; std::getline(text, line) && lines.size() < 200;) lines.push_back(line);
  const Translator translator(model, {task.vocabulary, task.vocabulary}, {});
  const auto translations = translator.translate(lines);
  int64_t right = 0;
  for (size_t i = 0; i < lines.size(); ++i) right += translations[i].front().text == lines[i];
  CHECK(right == 200);
}
