#include "transformer/training/trainer.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/types.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "model/reference.h"
#include "support.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/training/adam.h"
#include "transformer/training/average.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/corpus_batches.h"
#include "transformer/training/layer_drop.h"
#include "transformer/training/run.h"

using namespace transformer;
using transformer::test::message_of;
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

/// A `rate_factor` beyond what settings may have comes by the task's schedule.
Transformer trained(TrainingSettings settings, const ModelSettings& model_settings, const std::filesystem::path& run,
                    bool resume = false, const TrainerHooks& hooks = {}, TrainingSummary* summary = nullptr) {
  std::filesystem::create_directories(run);
  torch::manual_seed(settings.seed);
  Transformer model(model_settings, layer_drop(model_settings, settings.layer_drop));
  Communicator alone({}, {});
  const double beyond = settings.rate_factor > 1e6 ? std::exchange(settings.rate_factor, 1) : 1;
  auto task = translation_task(model, {*copy_task().corpus}, settings);
  task.schedule = [schedule = task.schedule, beyond](int64_t step) { return beyond * schedule(step); };
  Trainer trainer(alone, std::move(task), settings, run,
                  {.contents = {{"config.yaml", "format: 1\n"}, {"vocabulary.model", read_file(copy_task().model)}}},
                  hooks);
  if (resume) trainer.resume();
  const auto end = trainer.run();
  if (summary) *summary = end;
  return model;
}

std::vector<std::string> names_of(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> names;
  for (const auto& path : paths) names.push_back(path.filename().string());
  return names;
}

bool equal_bits(const Transformer& a, const Transformer& b) {
  const auto left = a->named_parameters(), right = b->named_parameters();
  for (const auto& item : left) {
    if (!torch::equal(item.value(), right[item.key()])) return false;
  }
  return left.size() == right.size();
}

// metrics.jsonl without what the clock and the machine say.
std::string metrics(const std::filesystem::path& run) {
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  std::string line, text;
  while (std::getline(lines, line)) {
    auto json = nlohmann::json::parse(line);
    json.erase("seconds");
    json.erase("tokens_per_second");
    json.erase("memory");
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

TEST_CASE("a step has as many tokens as it is to have, in whatever parts") {
  for (const auto& [batch, micro, at_once] : {std::tuple<int64_t, int64_t, int64_t>{600, 0, 600},
                                              {600, 300, 300},
                                              {600, 310, 300},
                                              {600, 299, 200},
                                              {7, 3, 2}}) {
    TrainingSettings settings;
    settings.batch_tokens = batch;
    settings.micro_batch_tokens = micro;
    CHECK(settings.tokens_at_once(1) == at_once);
    CHECK(batch - batch / at_once * at_once < at_once);
  }
  TrainingSettings settings;
  settings.batch_tokens = 1000;
  CHECK(settings.tokens_at_once(3) == 333);
}

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
  torch::rand({100});  // nothing may depend on the generator's state
  const auto parts = trained(settings, model, runs / "parts", /*resume=*/true);
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
    loss = loss + torch::cross_entropy_loss(
                      model->forward(tensor_of(batch->source), tensor_of(batch->target_input)).flatten(0, 1),
                      tensor_of(batch->target_output).flatten(), {}, at::Reduction::Sum, 0, 0.1);
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

TEST_CASE("recomputed layers train the same weights, in float32 and bfloat16") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto model = task.model_settings();  // with dropout
  model.attention_dropout = 0.1;
  auto settings = task.training_settings(6);
  settings.micro_batch_tokens = 128;
  for (const auto precision : {TrainingSettings::Precision::float32, TrainingSettings::Precision::bf16}) {
    settings.precision = precision;
    settings.recompute = false;
    const auto kept = trained(settings, model, runs / fmt::format("kept-{}", static_cast<int>(precision)));
    settings.recompute = true;
    const auto again = trained(settings, model, runs / fmt::format("again-{}", static_cast<int>(precision)));
    CHECK(equal_bits(kept, again));
  }
}

TEST_CASE("R-Drop and left-out layers follow from the seed: runs go on bit for bit, and layers may be recomputed") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto model = task.model_settings();  // with dropout
  model.encoder_layers = model.decoder_layers = 2;
  auto settings = task.training_settings(8);
  settings.micro_batch_tokens = 128;
  TrainingSummary plain_summary, dropped_summary, summary;
  const auto plain = trained(settings, model, runs / "plain", false, {}, &plain_summary);
  settings.layer_drop = 0.4;
  const auto dropped = trained(settings, model, runs / "dropped", false, {}, &dropped_summary);
  settings.rdrop = 5;
  const auto whole = trained(settings, model, runs / "whole", false, {}, &summary);
  CHECK_FALSE(equal_bits(plain, dropped));
  CHECK_FALSE(equal_bits(dropped, whole));
  auto quantized = settings;
  quantized.quantization = TrainingSettings::Quantization::int8;
  const auto rounded = trained(quantized, model, runs / "rounded");
  CHECK_FALSE(equal_bits(rounded, whole));
  quantized.steps = 3;
  trained(quantized, model, runs / "rounded parts");
  quantized.steps = 8;
  CHECK(equal_bits(trained(quantized, model, runs / "rounded parts", /*resume=*/true), rounded));
  CHECK(summary.flops == 2 * dropped_summary.flops);
  // What is left out costs nothing; the projection is not.
  CHECK(dropped_summary.flops > 0.6 * plain_summary.flops);
  CHECK(dropped_summary.flops < 0.9 * plain_summary.flops);
  CHECK(summary.target_tokens == plain_summary.target_tokens);
  settings.recompute = true;
  CHECK(equal_bits(trained(settings, model, runs / "recomputed"), whole));
  settings.steps = 3;
  trained(settings, model, runs / "parts");
  settings.steps = 8;
  CHECK(equal_bits(trained(settings, model, runs / "parts", /*resume=*/true), whole));

  model.dropout = 0;
  CHECK_THROWS_WITH(trained(settings, model, runs / "none"), StartsWith("training.rdrop: "));
}

TEST_CASE("a deterministic run asks LibTorch for it, changes nothing on a CPU, and leaves the process as it was") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(3);
  settings.validate_every = 2;
  std::vector<bool> asked;
  TrainerHooks hooks;
  hooks.validate = [&](torch::nn::Module&, int64_t) {
    asked.push_back(at::globalContext().deterministicAlgorithms());
    return Validation{.loss = 1, .perplexity = 2, .bleu = {}, .signature = {}};
  };
  const auto plain = trained(settings, task.model_settings(), runs / "plain", false, hooks);
  settings.deterministic = true;
  CHECK(equal_bits(trained(settings, task.model_settings(), runs / "deterministic", false, hooks), plain));
  CHECK(asked == std::vector<bool>{false, true});
  CHECK_FALSE(at::globalContext().deterministicAlgorithms());
  CHECK(at::globalContext().deterministicFillUninitializedMemory());
}

TEST_CASE("how much fits into memory is measured with all layers, however many training leaves out") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto model_settings = task.model_settings();
  model_settings.encoder_layers = 2;
  model_settings.dropout = 0;
  auto settings = task.training_settings(2);
  settings.micro_batch = TrainingSettings::MicroBatch::automatic;
  settings.layer_drop = 0.99;
  Transformer model(model_settings, layer_drop(model_settings, settings.layer_drop));
  auto translating = translation_task(model, {*task.corpus}, settings);
  std::vector<bool> all_layers;  // of every pass
  translating.loss = [&, loss = translating.loss](const DeviceBatch& batch) {
    model->eval();
    const auto whole = model->encode(batch.tensors.at(0)).memory;
    model->train();
    all_layers.push_back(torch::allclose(model->encode(batch.tensors.at(0)).memory, whole, 1e-4, 1e-5));
    return loss(batch);
  };
  Communicator alone({}, {});
  Trainer(alone, translating, settings, runs.path()).run();
  REQUIRE(all_layers.size() > 2);
  CHECK(all_layers.front());
  CHECK_FALSE(all_layers.back());
}

TEST_CASE("a validation leaves every part of the model in the mode that it was in") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(4);
  settings.validate_every = 2;
  Transformer model(task.model_settings());
  auto translating = translation_task(model, {*task.corpus}, settings);
  const auto encoder = model->named_children()["encoder"];
  translating.loss = [&, loss = translating.loss](const DeviceBatch& batch) {
    encoder->eval();  // frozen, from the first step on
    return loss(batch);
  };
  std::vector<bool> evaluated;
  TrainerHooks hooks;
  hooks.validate = [&](torch::nn::Module& judged, int64_t) {
    evaluated.push_back(!judged.is_training() && !encoder->is_training());
    return Validation{.loss = 1, .perplexity = 2, .bleu = {}, .signature = {}};
  };
  Communicator alone({}, {});
  Trainer(alone, translating, settings, runs.path(), {}, hooks).run();
  REQUIRE_FALSE(evaluated.empty());
  CHECK(evaluated == std::vector<bool>(evaluated.size(), true));
  CHECK(model->is_training());
  CHECK_FALSE(encoder->is_training());
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
  CHECK(names_of(list_checkpoints(runs / "run")) ==
        std::vector<std::string>{"step-00000005", "step-00000006", "step-00000007"});
}

// With checkpoints every six steps, of which three are kept and averaged.
static TrainingSettings settings_of_20_steps() {
  auto settings = copy_task().training_settings(20);
  settings.checkpoint_every = 6;
  settings.keep_checkpoints = settings.average_checkpoints = 3;
  return settings;
}

static void check_same_checkpoints(const std::filesystem::path& run, const std::filesystem::path& other) {
  for (const auto& checkpoint : list_checkpoints(run)) {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      CHECK(read_file(checkpoint / file) == read_file(other / "checkpoints" / checkpoint.filename() / file));
    }
  }
}

// Stops a run that validates every step after step `at`, which may change; every validation is the best so far.
static TrainerHooks stopped_at(const int64_t& at, std::atomic<bool>& stop) {
  return {.validate =
              [&](torch::nn::Module&, int64_t step) {
                stop = step == at;
                return Validation{
                    .loss = 1, .perplexity = 100 - static_cast<double>(step), .bleu = {}, .signature = {}};
              },
          .stop = &stop};
}

TEST_CASE("an interruption's checkpoint is gone on from, and is no part of the schedule") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = settings_of_20_steps();
  settings.validate_every = 1;
  std::atomic<bool> stop{false};
  int64_t stop_at = -1;
  const auto hooks = stopped_at(stop_at, stop);
  trained(settings, task.model_settings(), runs / "whole", false, hooks);
  bool resume = false;
  for (const int64_t at : {2, 3, 9, 13}) {
    stop_at = at;
    stop = false;
    TrainingSummary summary;
    trained(settings, task.model_settings(), runs / "parts", resume, hooks, &summary);
    CHECK(summary.end == TrainingSummary::End::interruption);
    CHECK(summary.steps == at);
    const auto newest = resumable_checkpoints(runs / "parts").front();
    CHECK(newest.filename().string() == fmt::format("interrupted-step-{:08}", at));
    resume = true;
  }
  stop_at = -1;
  stop = false;
  trained(settings, task.model_settings(), runs / "parts", true, hooks);
  CHECK(names_of(resumable_checkpoints(runs / "parts")) == names_of(resumable_checkpoints(runs / "whole")));
  CHECK(names_of(list_checkpoints(runs / "parts")) ==
        std::vector<std::string>{"step-00000012", "step-00000018", "step-00000020"});
  CHECK(metrics(runs / "whole") == metrics(runs / "parts"));
  check_same_checkpoints(runs / "whole", runs / "parts");
}

TEST_CASE("a validation that was told to stop is done when the run goes on, as if it had never stopped") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = settings_of_20_steps();
  settings.validate_every = 2;
  settings.keep_best = 2;
  std::atomic<bool> stop{false};
  int64_t stop_at = -1;
  auto hooks = stopped_at(stop_at, stop);
  hooks.validate = [&stop, judge = hooks.validate](torch::nn::Module& model, int64_t step) {
    auto validation = judge(model, step);
    validation.abandoned = stop;
    return validation;
  };
  trained(settings, task.model_settings(), runs / "whole", false, hooks);
  bool resume = false;
  for (const int64_t at : {2, 2, 6, 20}) {  // once again; where a checkpoint is due; at the end
    stop_at = at;
    stop = false;
    TrainingSummary summary;
    trained(settings, task.model_settings(), runs / "parts", resume, hooks, &summary);
    CHECK(summary.end == TrainingSummary::End::interruption);
    CHECK(summary.steps == at);
    resume = true;
  }
  stop_at = -1;
  stop = false;
  TrainingSummary summary;
  trained(settings, task.model_settings(), runs / "parts", true, hooks, &summary);
  CHECK(summary.end == TrainingSummary::End::steps);
  CHECK(metrics(runs / "whole") == metrics(runs / "parts"));
  CHECK(names_of(resumable_checkpoints(runs / "parts")) == names_of(resumable_checkpoints(runs / "whole")));
  check_same_checkpoints(runs / "whole", runs / "parts");
}

TEST_CASE("a run that ended and goes on has the checkpoints of one that never ended") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = settings_of_20_steps();
  trained(settings, task.model_settings(), runs / "whole");
  for (const int64_t steps : {3, 9, 12, 13, 20}) {
    settings.steps = steps;
    trained(settings, task.model_settings(), runs / "parts", /*resume=*/steps > 3);
    CHECK(checkpoint_step(list_checkpoints(runs / "parts").back()) == steps);  // the end is part of the average
  }
  CHECK(names_of(resumable_checkpoints(runs / "parts")) == names_of(resumable_checkpoints(runs / "whole")));
  CHECK(names_of(list_checkpoints(runs / "parts")) == names_of(list_checkpoints(runs / "whole")));
}

TEST_CASE("an interruption changes nothing about the checkpoints that there are, and the end before it is none later") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = settings_of_20_steps();
  settings.validate_every = 1;
  trained(settings, task.model_settings(), runs / "whole");
  std::atomic<bool> stop{false};
  const int64_t stop_at = 11;
  const auto hooks = stopped_at(stop_at, stop);
  settings.steps = 9;
  trained(settings, task.model_settings(), runs / "parts");
  settings.steps = 20;
  settings.keep_checkpoints = settings.average_checkpoints = 1;
  trained(settings, task.model_settings(), runs / "parts", true, hooks);
  CHECK(names_of(list_checkpoints(runs / "parts")) == std::vector<std::string>{"step-00000006", "step-00000009"});
  CHECK(names_of(resumable_checkpoints(runs / "parts")).front() == "interrupted-step-00000011");
  settings.keep_checkpoints = settings.average_checkpoints = 3;
  trained(settings, task.model_settings(), runs / "parts", true);
  CHECK(names_of(resumable_checkpoints(runs / "parts")) == names_of(resumable_checkpoints(runs / "whole")));
}

TEST_CASE("a checkpoint that could not be written leaves the run's end what it was") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = settings_of_20_steps();
  settings.steps = 9;
  trained(settings, task.model_settings(), runs / "run");
  const auto before = names_of(resumable_checkpoints(runs / "run"));
  settings.steps = 20;
  // A full disk, as far as large files go.
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  auto tight = limit;
  tight.rlim_cur = 1 << 14;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const auto message =
      message_of<Failure>([&] { trained(settings, task.model_settings(), runs / "run", /*resume=*/true); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(message, Contains("step-00000012"));
  CHECK(names_of(resumable_checkpoints(runs / "run")) == before);
  CHECK(names_of(list_checkpoints(runs / "run")).back() == "step-00000009");
}

TEST_CASE("a run goes on at the same place of its text in micro-batches of another size") {
  auto& task = copy_task();
  const auto settings = task.model_settings();
  BatchPosition position;
  const auto items = [&](int64_t tokens, bool all) {  // of the epoch, or of its first half
    CorpusBatches batches({*task.corpus}, settings);
    batches.begin({.tokens = tokens});
    int64_t sum = 0;
    for (int64_t half = task.corpus->report().target_tokens / 2; all || sum < half;) {
      const auto before = position;
      const auto batch = batches.next(0, position);
      if (position.epoch > before.epoch) break;
      sum += batch.items;
    }
    return sum;
  };
  const int64_t first = items(256, false);
  CHECK(position.tokens == 256);
  const int64_t whole = task.corpus->report().target_tokens + task.corpus->size();  // ends are counted
  for (const int64_t tokens : {64, 100, 256, 1000}) {
    position.tokens = 256;
    const auto kept = position;
    const int64_t rest = items(tokens, true);
    CAPTURE(tokens, first, rest, whole);
    CHECK(std::abs(first + rest - whole) < whole / 10 + tokens);  // it goes on before a whole batch
    position = kept;
  }
}

TEST_CASE("weights of less than a pair an epoch pass over empty epochs, and say so where there are no others") {
  auto& task = copy_task();
  const auto settings = task.model_settings();
  const auto share = [&](double pairs) { return pairs / static_cast<double>(task.corpus->size()); };
  BatchPosition position;
  CorpusBatches batches({*task.corpus, {share(0.16)}}, settings);
  batches.begin({.tokens = 256});
  std::vector<int64_t> epochs;
  for (int i = 0; i < 3; ++i) {
    CHECK(batches.next(0, position).items > 0);
    epochs.push_back(position.epoch);
  }
  CHECK(epochs == std::vector<int64_t>{3, 9, 15});  // where 0.16 times the number of epochs, rounded, grows
  CorpusBatches none({*task.corpus, {share(1e-9)}}, settings);
  none.begin({.tokens = 256});
  position = {};
  CHECK_THROWS_WITH(none.next(0, position), Contains("data.train_weights: are so small"));
  TemporaryDirectory folder;
  write_file(folder / "text", "a b\n");
  write_file(folder / "blank", "\n");
  const std::vector<std::string> files = {(folder / "text").string(), (folder / "blank").string()};
  const Vocabulary vocabulary(task.model);
  const auto half_empty = Corpus::read(files, files, vocabulary, vocabulary, {});
  CorpusBatches unused({half_empty, {0, 1}}, settings);
  unused.begin({.tokens = 256});
  position = {};
  CHECK_THROWS_WITH(unused.next(0, position),
                    Contains("data.train_weights: are 0 for each text that has a sentence pair"));
}

TEST_CASE("a micro-batch that holds not even one pair is refused by the setting that is too low") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(2);
  settings.micro_batch_tokens = 3;
  CHECK_THROWS_WITH(
      trained(settings, task.model_settings(), runs / "run"),
      Contains("training.micro_batch_tokens: 3 makes equal parts of 2 tokens") && Contains("raise it to"));
  settings.batch_tokens = 20;
  for (const auto micro_batch : {TrainingSettings::MicroBatch::fixed, TrainingSettings::MicroBatch::automatic}) {
    settings.micro_batch_tokens = 0;
    settings.micro_batch = micro_batch;
    CHECK_THROWS_WITH(trained(settings, task.model_settings(), runs / "run"),
                      Contains("training.batch_tokens: 20 are fewer than the 21 tokens") && Contains("raise it to 21"));
  }
  settings.micro_batch = TrainingSettings::MicroBatch::fixed;
  // What is asked for is enough, and one less is not.
  for (const int64_t batch : {40, 41, 50, 62, 63, 64}) {
    settings.batch_tokens = batch;
    settings.micro_batch_tokens = 1;
    std::string error;
    try {
      trained(settings, task.model_settings(), runs / "run");
    } catch (const Error& refused) {
      error = refused.what();
    }
    const auto enough = std::stoll(error.substr(error.find("raise it to ") + 12));
    settings.micro_batch_tokens = enough;
    CHECK(settings.tokens_at_once(1) >= 21);
    settings.micro_batch_tokens = enough - 1;
    CHECK(settings.tokens_at_once(1) < 21);
  }
}

TEST_CASE("a size that was found out is kept while it divides the tokens of a step") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(2);
  settings.micro_batch = TrainingSettings::MicroBatch::automatic;
  const auto size_after = [&](int64_t tokens, int64_t steps) {
    settings.batch_tokens = tokens;
    settings.steps = steps;
    trained(settings, task.model_settings(), runs / "run", steps > 2);
    return nlohmann::json::parse(read_file(resumable_checkpoints(runs / "run").front() / "progress.json"))
        .at("micro_batch_tokens")
        .get<int64_t>();
  };
  CHECK(size_after(1600, 2) == 1600);
  CHECK(size_after(200, 4) == 200);   // 1600 are more than a step's
  CHECK(size_after(1600, 6) == 200);  // eight of them
  CHECK(size_after(700, 8) == 700);   // three and a half
}

TEST_CASE("a size that was found out is tried again where its tokens take other memory") {
  // Of which micro-batches of so many tokens and more fit into no memory.
  struct Swelling : CorpusBatches {
    int64_t from;
    mutable int asked = 0;
    Swelling(TrainingText text, const ModelSettings& model, int64_t tokens)
        : CorpusBatches(std::move(text), model), from(tokens) {}
    std::optional<Largest> largest() const override {
      auto found = CorpusBatches::largest();
      found->most = [this](int64_t tokens) {
        ++asked;
        return tokens >= from ? int64_t{1} << 50 : tokens;
      };
      return found;
    }
  };
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(2);
  settings.micro_batch = TrainingSettings::MicroBatch::automatic;
  settings.batch_tokens = 1600;
  int asked = 0;
  const auto size_after = [&](int64_t steps, int64_t from) {
    settings.steps = steps;
    Transformer model(task.model_settings());
    auto translating = translation_task(model, {*task.corpus}, settings);
    const auto batches = std::make_shared<Swelling>(TrainingText{*task.corpus}, model->settings(), from);
    translating.batches = batches;
    Communicator alone({}, {});
    Trainer trainer(alone, translating, settings, runs.path(),
                    {.contents = {{"config.yaml", "format: 1\n"}, {"vocabulary.model", read_file(task.model)}}});
    if (steps > 2) trainer.resume();
    trainer.run();
    asked = batches->asked;
    return nlohmann::json::parse(read_file(resumable_checkpoints(runs.path()).front() / "progress.json"))
        .at("micro_batch_tokens")
        .get<int64_t>();
  };
  CHECK(size_after(2, 1000) == 800);
  CHECK(size_after(4, 500) == 800);  // as it was begun
  CHECK(asked == 0);
  settings.recompute = true;
  CHECK(size_after(6, 500) == 400);
  settings.recompute = false;
  CHECK(size_after(8, 2000) == 400);  // smaller where it must be, and never larger
  CHECK(asked == 1);
}

TEST_CASE("sampling makes micro-batches as large as their longest row drawn") {
  auto& task = copy_task();
  const auto settings = task.model_settings().resolved();
  const double alpha = 0.3;
  const CorpusBatches source({*task.corpus, {}, {task.vocabulary, task.vocabulary}, alpha}, settings);
  const auto largest = source.largest();
  REQUIRE(largest);
  const auto most_of = [&](int64_t tokens, int64_t epoch) {
    Batches batches(*task.corpus, {.batch_tokens = tokens, .sampling = {{task.vocabulary, task.vocabulary}, alpha}},
                    epoch);
    int64_t most = 0;
    for (Batch batch; batches.next(batch);) {
      most = std::max(most, batch.source.rows * std::max(batch.source_length, batch.target_length));
    }
    return most;
  };
  for (const int64_t tokens : {100, 1000}) {
    const int64_t most = largest->most(tokens);
    CHECK(most > tokens);
    CHECK(most == most_of(tokens, 0) + most_of(tokens, 0) / 4);
    CHECK(most_of(tokens, 1) <= most);
  }
  CHECK(CorpusBatches({*task.corpus}, settings).largest()->most(1000) == 1000);
}

TEST_CASE("a damaged checkpoint is recognised, whatever byte it is, and the one before used") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(4);
  settings.checkpoint_every = 2;
  settings.moving_average = GENERATE(0.0, 0.9);
  const auto whole = trained(settings, task.model_settings(), runs / "run");
  const auto newest = list_checkpoints(runs / "run").back();
  Transformer model(task.model_settings());
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  for (const auto& item : model->named_parameters()) parameters.emplace_back(item.key(), item.value());
  Adam adam(parameters, {});
  MovingAverage average(parameters, 0.9);
  Progress progress;
  const TrainingState state{*model, adam, settings.moving_average > 0 ? &average : nullptr, progress};
  load_checkpoint(newest, state);
  CHECK(equal_bits(model, whole));
  uint32_t random = 1;
  for (const auto& entry : std::filesystem::directory_iterator(newest)) {
    const auto file = entry.path();
    const std::string bytes = read_file(file);
    for (int i = 0; i < 12; ++i) {
      random = random * 1664525u + 1013904223u;
      const size_t at = (static_cast<uint64_t>(random) * bytes.size()) >> 32;
      std::string damaged = bytes;
      if (i % 3 == 2) {
        damaged.resize(at);
      } else {
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << i % 8));
      }
      write_file(file, damaged);
      INFO(file << (i % 3 == 2 ? " cut to " : " flipped at ") << at);
      CHECK_THROWS_AS(load_checkpoint(newest, state), Error);
    }
    std::filesystem::remove(file);
    CHECK_THROWS_AS(load_checkpoint(newest, state), Error);
    write_file(file, bytes);
  }
  write_file(newest / "optimizer.safetensors", "nothing");
  CHECK(load_newest_checkpoint(runs / "run", state).filename() == "step-00000002");
  CHECK(progress.step == 2);
  CHECK(names_of(list_checkpoints(runs / "run")) == std::vector<std::string>{"step-00000002"});
  CHECK(std::filesystem::exists(runs / "run" / "checkpoints" / "damaged-step-00000004"));
  CHECK(equal_bits(trained(settings, task.model_settings(), runs / "run", true), whole));
  for (const auto& checkpoint : list_checkpoints(runs / "run")) write_file(checkpoint / "progress.json", "{}");
  CHECK_THROWS_WITH(load_newest_checkpoint(runs / "run", state), Contains("none") && Contains("--restart"));
}

TEST_CASE("the best checkpoints are kept besides the newest, and averaged where that is asked for") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(20);
  settings.validate_every = 2;
  settings.keep_checkpoints = 2;
  settings.keep_best = settings.average_checkpoints = 3;
  settings.average_of = TrainingSettings::Averaged::best;
  settings.checkpoint_every = 7;
  const bool by_bleu = GENERATE(false, true);
  settings.best_by = by_bleu ? TrainingSettings::Criterion::bleu : TrainingSettings::Criterion::perplexity;
  std::string log;
  // The third validation is the best, then the second and, of two equals, the earlier.
  const std::vector<double> perplexities = {9, 4, 3, 8, 7, 7, 9, 9, 9, 9};
  const TrainerHooks hooks{
      .validate =
          [&](torch::nn::Module&, int64_t step) {
            const double value = perplexities.at(step / 2 - 1);
            return Validation{
                .loss = std::log(value), .perplexity = by_bleu ? 5 : value, .bleu = 50 - value, .signature = "none"};
          },
      .stop = nullptr,
      .log = Log([&](LogLevel level, const std::string& line) { log += level == LogLevel::warning ? line : ""; })};
  torch::manual_seed(1);
  Transformer model(task.model_settings());
  std::filesystem::create_directories(runs / "run");
  Communicator alone({}, {});
  Trainer trainer(alone, translation_task(model, {*task.corpus}, settings), settings, runs / "run",
                  {.contents = {{"config.yaml", "format: 1\n"}, {"vocabulary.model", read_file(task.model)}}}, hooks);
  trainer.run();
  CHECK(names_of(list_checkpoints(runs / "run")) ==
        std::vector<std::string>{"step-00000004", "step-00000006", "step-00000010", "step-00000014", "step-00000020"});
  CHECK(names_of(trainer.final_checkpoints()) ==
        std::vector<std::string>{"step-00000006", "step-00000004", "step-00000010"});
  CHECK(log.empty());
  std::filesystem::remove_all(runs / "run" / "checkpoints" / "step-00000004");
  CHECK(names_of(trainer.final_checkpoints()) == std::vector<std::string>{"step-00000006", "step-00000010"});
  CHECK_THAT(log, Contains("of the 3 best checkpoints that are to be averaged, 2 are left"));
}

TEST_CASE("a best validation without its checkpoint takes no other's place, and is still what is to be beaten") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(8);
  settings.validate_every = settings.checkpoint_every = 2;
  settings.keep_checkpoints = settings.average_checkpoints = 1;
  const TrainerHooks hooks{.validate =
                               [](torch::nn::Module&, int64_t step) {  // worse and worse
                                 return Validation{.loss = 1, .perplexity = 2.0 + step, .bleu = {}, .signature = {}};
                               },
                           .stop = nullptr};
  trained(settings, task.model_settings(), runs / "run", false, hooks);
  settings.keep_best = 1;
  settings.average_of = TrainingSettings::Averaged::best;
  settings.patience = 4;  // two validations are behind it
  settings.steps = 14;
  torch::manual_seed(1);
  Transformer model(task.model_settings());
  Communicator alone({}, {});
  Trainer trainer(alone, translation_task(model, {*task.corpus}, settings), settings, runs / "run",
                  {.contents = {{"config.yaml", "format: 1\n"}, {"vocabulary.model", read_file(task.model)}}}, hooks);
  trainer.resume();
  trainer.run();
  CHECK(names_of(trainer.final_checkpoints()) == std::vector<std::string>{"step-00000010"});
  CHECK(names_of(list_checkpoints(runs / "run")) == std::vector<std::string>{"step-00000010", "step-00000012"});
}

TEST_CASE("how many of the best are kept changes nothing about the last ones") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = settings_of_20_steps();
  settings.validate_every = 1;
  const TrainerHooks hooks{
      .validate =
          [](torch::nn::Module&, int64_t step) {  // each the best so far
            return Validation{.loss = 1, .perplexity = 100.0 - static_cast<double>(step), .bleu = {}, .signature = {}};
          },
      .stop = nullptr};
  const auto last_of = [&](const char* name, int64_t keep_best) {
    settings.keep_best = keep_best;
    Transformer model(task.model_settings());
    Communicator alone({}, {});
    Trainer trainer(alone, translation_task(model, {*task.corpus}, settings), settings, runs / name,
                    {.contents = {{"config.yaml", "format: 1\n"}, {"vocabulary.model", read_file(task.model)}}}, hooks);
    trainer.run();
    return names_of(trainer.final_checkpoints());
  };
  const std::vector<std::string> last = {"step-00000020", "step-00000018", "step-00000012"};
  CHECK(last_of("none", 0) == last);
  CHECK(last_of("two", 2) == last);
  CHECK(names_of(list_checkpoints(runs / "two")) ==
        std::vector<std::string>{"step-00000012", "step-00000018", "step-00000019", "step-00000020"});
  CHECK(names_of(counted_checkpoints(runs / "two")) ==
        std::vector<std::string>{"step-00000012", "step-00000018", "step-00000020"});
  // One that cannot be read may be either: no other is taken, nor deleted, for it.
  const auto unread = runs / "two" / "checkpoints" / "step-00000019" / "progress.json";
  std::filesystem::rename(unread, runs / "aside");
  std::filesystem::create_symlink("progress.json", unread);
  CHECK_THROWS_AS(counted_checkpoints(runs / "two"), Failure);
  CHECK_THROWS_AS(prune_checkpoints(runs / "two", 2), Failure);
  CHECK(names_of(counted_checkpoints(runs / "two", 1)) == std::vector<std::string>{"step-00000020"});
  CHECK(list_checkpoints(runs / "two").size() == 4);
  std::filesystem::remove(unread);
  std::filesystem::rename(runs / "aside", unread);
  // Nor does the clock wait for them.
  settings.checkpoint_every = 0;
  settings.checkpoint_minutes = 1e-9;
  CHECK(last_of("clock", 2) == std::vector<std::string>{"step-00000020", "step-00000019", "step-00000018"});
  // Whatever the newest was written for, it is the last.
  std::filesystem::remove_all(runs / "two" / "checkpoints" / "step-00000020");
  CHECK(names_of(counted_checkpoints(runs / "two")).back() == "step-00000019");
}

TEST_CASE("a best validation is one of the same text") {
  auto& task = copy_task();
  auto settings = task.training_settings(6);
  settings.validate_every = settings.checkpoint_every = 2;
  settings.patience = 2;
  for (const bool same : {false, true}) {
    TemporaryDirectory runs;
    std::string log;
    double level = 5;
    TrainerHooks hooks{
        .validate =
            [&](torch::nn::Module&, int64_t step) {  // better and better
              return Validation{
                  .loss = 1, .perplexity = level - 0.1 * static_cast<double>(step), .bleu = {}, .signature = {}};
            },
        .judged_by = "a text",
        .log = Log([&](LogLevel, const std::string& line) { log += line + "\n"; })};
    settings.steps = 6;
    trained(settings, task.model_settings(), runs / "run", false, hooks);
    settings.steps = 14;
    level = 20;
    if (!same) hooks.judged_by = "a harder one";
    TrainingSummary summary;
    trained(settings, task.model_settings(), runs / "run", true, hooks, &summary);
    CHECK(summary.end == (same ? TrainingSummary::End::patience : TrainingSummary::End::steps));
    CHECK(summary.steps == (same ? 10 : 14));
    CHECK((log.find("the best begins anew") == log.npos) == same);
    // Without any text there is nothing that it could be compared with later but what it was.
    hooks.judged_by = "";
    hooks.validate = {};
    auto unjudged = settings;
    unjudged.steps = 16;
    unjudged.validate_every = unjudged.patience = 0;
    trained(unjudged, task.model_settings(), runs / "run", true, hooks);
    const auto progress =
        nlohmann::json::parse(read_file(resumable_checkpoints(runs / "run").front() / "progress.json"));
    CHECK(progress.at("judged_by") == (same ? "a text" : "a harder one"));
    CHECK(!progress.at("best").empty());
  }
}

TEST_CASE("where no step is left, the best stay what they are, and without any it is said") {
  auto& task = copy_task();
  for (const bool judged : {true, false}) {
    TemporaryDirectory runs;
    auto settings = task.training_settings(6);
    settings.checkpoint_every = 2;
    settings.validate_every = judged ? 2 : 100;
    settings.keep_best = settings.average_checkpoints = 1;
    settings.average_of = TrainingSettings::Averaged::best;
    std::string log;
    TrainerHooks hooks{.validate =
                           [&](torch::nn::Module&, int64_t step) {
                             return Validation{
                                 .loss = 1, .perplexity = step == 2 ? 1.0 : 5.0, .bleu = {}, .signature = {}};
                           },
                       .judged_by = "a text",
                       .log = Log([&](LogLevel, const std::string& line) { log += line + "\n"; })};
    trained(settings, task.model_settings(), runs / "run", false, hooks);
    hooks.judged_by = "a text, translated otherwise";
    torch::manual_seed(1);
    Transformer model(task.model_settings());
    Communicator alone({}, {});
    Trainer trainer(alone, translation_task(model, {*task.corpus}, settings), settings, runs / "run",
                    {.contents = {{"config.yaml", "format: 1\n"}, {"vocabulary.model", read_file(task.model)}}}, hooks);
    trainer.resume();
    trainer.run();
    const auto chosen = names_of(trainer.final_checkpoints());
    CHECK(chosen.front() == (judged ? "step-00000002" : "step-00000006"));
    CHECK((log.find("no checkpoint has been validated") == log.npos) == judged);
  }
}

TEST_CASE("products that round otherwise than those of the machine that a run comes from are told of") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(2);
  settings.precision = TrainingSettings::Precision::automatic;
  settings.checkpoint_every = 1;
  trained(settings, task.model_settings(), runs / "run");
  const auto checkpoint = resumable_checkpoints(runs / "run").front();
  auto progress = nlohmann::json::parse(read_file(checkpoint / "progress.json"));
  const bool here = progress.at("products") == "bf16";
  std::string log;
  const TrainerHooks hooks{.log = Log([&](LogLevel, const std::string& line) { log += line + "\n"; })};
  for (const bool other : {false, true}) {
    progress["products"] = here != other ? "bf16" : "float32";
    write_file(checkpoint / "progress.json", progress.dump());
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
      if (const auto name = entry.path().filename().string(); name != "checksums.xxh128") names.push_back(name);
    }
    write_checksums(checkpoint, names);
    log.clear();
    trained(settings, task.model_settings(), runs / "run", true, hooks);  // there is no step left to be taken
    CHECK((log.find("training.precision: auto is") != log.npos) == other);
  }
}

TEST_CASE("training ends when patience does, resumed or not") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(100);
  settings.validate_every = 2;
  settings.patience = 3;
  const std::vector<double> perplexities = {9, 8, 8, 8.5, 7, 7.1, 7.2, 7, 1, 1};
  const TrainerHooks hooks{
      .validate =
          [&](torch::nn::Module&, int64_t step) {
            return Validation{.loss = 1, .perplexity = perplexities.at(step / 2 - 1), .bleu = {}, .signature = {}};
          },
      .stop = nullptr};
  TrainingSummary summary;
  trained(settings, task.model_settings(), runs / "run", false, hooks, &summary);
  CHECK(summary.end == TrainingSummary::End::patience);
  CHECK(summary.steps == 16);
  trained(settings, task.model_settings(), runs / "run", true, hooks, &summary);
  CHECK(summary.end == TrainingSummary::End::patience);
  CHECK(summary.steps == 16);
}

TEST_CASE("the moving average of weights is what its formula says, in checkpoints and validations") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(6);
  settings.checkpoint_every = settings.validate_every = 1;
  settings.keep_checkpoints = 10;
  const auto plain = trained(settings, task.model_settings(), runs / "plain");
  torch::manual_seed(settings.seed);
  auto expected = weights_of(*Transformer(task.model_settings()));
  settings.moving_average = 0.25;
  TensorMap validated;
  const TrainerHooks hooks{.validate =
                               [&](torch::nn::Module& model, int64_t) {
                                 validated.clear();
                                 for (const auto& [name, value] : weights_of(model)) validated[name] = value.clone();
                                 return Validation{.loss = 1, .perplexity = 2, .bleu = {}, .signature = {}};
                               },
                           .stop = nullptr};
  const auto averaged = trained(settings, task.model_settings(), runs / "run", false, hooks);
  CHECK(equal_bits(plain, averaged));  // training itself is the same
  const auto weights = list_checkpoints(runs / "plain"), averages = list_checkpoints(runs / "run");
  REQUIRE(averages.size() == 6);
  for (size_t i = 0; i < averages.size(); ++i) {
    const double step = i + 1, decay = std::min(0.25, (1 + step) / (10 + step));
    const auto now = read_tensors(weights[i] / "model.safetensors").tensors;
    const auto saved = read_tensors(averages[i] / "model.safetensors").tensors;
    for (auto& [name, value] : expected) {
      value = decay * value + (1 - decay) * now.at(name);
      CHECK(torch::allclose(saved.at(name), value, 1e-5, 1e-7));
      // The last validation was that of the last step but one.
      if (i + 2 == averages.size()) CHECK(torch::equal(validated.at(name), saved.at(name)));
    }
  }
  settings.steps = 9;
  trained(settings, task.model_settings(), runs / "run", true, hooks);
  const auto whole = trained(settings, task.model_settings(), runs / "whole", false, hooks);
  CHECK(read_file(list_checkpoints(runs / "run").back() / "model.safetensors") ==
        read_file(list_checkpoints(runs / "whole").back() / "model.safetensors"));
}

TEST_CASE("dropout depends on the micro-batch alone, not on what was computed before") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(4);
  settings.validate_every = 2;
  const TrainerHooks hooks{.validate =
                               [](torch::nn::Module&, int64_t) {
                                 torch::rand({1000});
                                 return Validation{.loss = 1, .perplexity = 2, .bleu = {}, .signature = {}};
                               },
                           .stop = nullptr};
  CHECK(equal_bits(trained(settings, task.model_settings(), runs / "a"),
                   trained(settings, task.model_settings(), runs / "b", false, hooks)));
}

TEST_CASE("a loss that is not finite ends the run and leaves the checkpoints") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  auto settings = task.training_settings(4);
  trained(settings, task.model_settings(), runs / "run");
  settings.steps = 40;
  settings.rate_factor = 1e30;
  CHECK_THROWS_AS(trained(settings, task.model_settings(), runs / "run", /*resume=*/true), Failure);
  CHECK(resumable_checkpoints(runs / "run").size() == 1);
  CHECK_THROWS_WITH(trained(settings, task.model_settings(), runs / "run", /*resume=*/true),
                    Contains("not finite") && Contains("rate_factor"));
}

TEST_CASE("no checkpoint is written of weights that are ruined, whatever ruins them") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  const auto ruined = [&](TrainingSettings settings, const std::string& name, const TrainerHooks& hooks = {}) {
    const double factor = settings.rate_factor;
    settings.rate_factor = 1;
    settings.steps = 4;
    trained(settings, task.model_settings(), runs / name);
    settings.steps = 40;
    settings.rate_factor = factor;
    std::string message;
    try {
      trained(settings, task.model_settings(), runs / name, /*resume=*/true, hooks);
    } catch (const Failure& failure) {
      message = failure.what();
    }
    CHECK(message.find('\n') == std::string::npos);
    CHECK(checkpoint_step(resumable_checkpoints(runs / name).front()) == 4);
    // What is left is fit to go on from.
    settings.rate_factor = 1;
    settings.steps = 8;
    trained(settings, task.model_settings(), runs / name, /*resume=*/true);
    CHECK(list_checkpoints(runs / name).back().filename() == "step-00000008");
    return message;
  };
  const auto settings = task.training_settings(4);
  SECTION("an update that no later step judges") {
    auto every = settings;
    every.checkpoint_every = 1;
    for (const double factor : {1e9, 1e25, 1e38}) {
      every.rate_factor = factor;
      const auto message = ruined(every, fmt::format("factor-{}", factor));
      INFO(message);
      CHECK_THAT(message, StartsWith("step 5: ") && Contains("finite") && Contains("checkpoint of step 4") &&
                              Contains("--from 4") && Contains("training.rate_factor="));
    }
  }
  SECTION("with a moving average") {
    auto averaged = settings;
    averaged.moving_average = 0.9;
    averaged.rate_factor = 1e30;
    CHECK_THAT(ruined(averaged, "average"), Contains("finite"));
  }
  SECTION("a validation that finds it") {
    auto validated = settings;
    validated.validate_every = 6;
    for (const double perplexity : {NAN, INFINITY}) {
      const TrainerHooks hooks{.validate =
                                   [&](torch::nn::Module&, int64_t) {
                                     return Validation{
                                         .loss = 1e3, .perplexity = perplexity, .bleu = {}, .signature = {}};
                                   },
                               .stop = nullptr};
      CHECK_THAT(ruined(validated, fmt::format("validation-{}", perplexity), hooks),
                 StartsWith("step 6: ") && Contains("validation") && Contains("--from 4"));
    }
  }
  SECTION("before the first checkpoint") {
    auto first = settings;
    first.rate_factor = 1e38;
    CHECK_THROWS_WITH(trained(first, task.model_settings(), runs / "first"),
                      Contains("no checkpoint") && Contains("--restart") && !Contains("--from"));
    CHECK(resumable_checkpoints(runs / "first").empty());
  }
}

TEST_CASE("the final model's validation must be finite") {
  auto& task = copy_task();
  TemporaryDirectory runs;
  std::filesystem::create_directories(runs / "run");
  Transformer model(task.model_settings());
  Communicator alone({}, {});
  const auto settings = task.training_settings(2);
  Trainer trainer(alone, translation_task(model, {*task.corpus}, settings), settings, runs / "run",
                  {.contents = {{"config.yaml", "format: 1\n"}, {"vocabulary.model", read_file(task.model)}}}, {});
  trainer.run();
  Validation validation{.loss = 1, .perplexity = std::exp(1), .bleu = {}, .signature = {}};
  trainer.record_final(validation);
  validation.perplexity = NAN;
  CHECK_THROWS_AS(trainer.record_final(validation), Failure);
}

TEST_CASE("the gradient's norm is recorded, before clipping") {
  auto& task = copy_task();
  auto model_settings = task.model_settings();
  model_settings.dropout = 0;
  TemporaryDirectory runs;
  auto settings = task.training_settings(1);
  settings.log_every = 1;
  settings.clip_norm = 0.01;
  torch::manual_seed(settings.seed);
  Transformer model(model_settings);
  Batches batches(*task.corpus, {.batch_tokens = settings.batch_tokens, .seed = settings.seed}, 0);
  Batch batch;
  REQUIRE(batches.next(batch));
  torch::cross_entropy_loss(model->forward(tensor_of(batch.source), tensor_of(batch.target_input)).flatten(0, 1),
                            tensor_of(batch.target_output).flatten(), {}, at::Reduction::Mean, 0,
                            settings.label_smoothing)
      .backward();
  double squares = 0;
  for (const auto& parameter : model->parameters()) squares += parameter.grad().square().sum().item<double>();
  const double norm = std::sqrt(squares);
  REQUIRE(norm > 2 * settings.clip_norm);

  trained(settings, model_settings, runs / "run");
  std::istringstream lines(read_file(runs / "run" / "metrics.jsonl"));
  std::string header, line;
  std::getline(lines, header);
  std::getline(lines, line);
  const auto json = nlohmann::json::parse(line);
  CHECK(json.at("gradient_norm").get<double>() == Approx(norm).epsilon(1e-4));
  CHECK(json.at("largest_gradient_norm").get<double>() == json.at("gradient_norm").get<double>());
  // Adam's first moment tells the gradient that it was given: m = 0.1 g.
  const auto state = read_tensors(list_checkpoints(runs / "run").back() / "optimizer.safetensors").tensors;
  for (const auto& item : model->named_parameters()) {
    INFO(item.key());
    const auto expected = 0.1 * item.value().grad() * (settings.clip_norm / norm);
    const auto moment = state.at("first_moment." + item.key());
    CHECK((moment - expected).abs().max().item<double>() < 1e-3 * expected.abs().max().item<double>() + 1e-9);
  }
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
  settings.schedule = TrainingSettings::Schedule::linear;  // the last steps are small ones, whatever was drawn before
  settings.rate = 3e-3;
  settings.warmup_steps = 200;
  auto model_settings = task.model_settings();
  model_settings.d_model = 64;
  model_settings.dropout = 0;
  auto model = trained(settings, model_settings, runs / "run");
  model->eval();
  std::vector<std::string> lines;
  std::istringstream text(read_file(task.source));
  for (std::string line; std::getline(text, line) && lines.size() < 200;) lines.push_back(line);
  const auto translator = module_translator(model, {task.vocabulary, task.vocabulary}, {});
  const auto translations = translator.translate(lines);
  int64_t right = 0;
  for (size_t i = 0; i < lines.size(); ++i) right += translations[i].front().text == lines[i];
  CHECK(right == 200);
}
