#include <ATen/CPUGeneratorImpl.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "transformer/base/error.h"
#include "transformer/model/transformer.h"
#include "transformer/training/adam.h"
#include "transformer/training/distributed/communicator.h"
#include "transformer/training/distributed/data_parallel.h"
#include "transformer/training/distributed/error_file.h"
#include "transformer/training/distributed/launch.h"
#include "transformer/training/distributed/processes.h"
#include "transformer/training/distributed/sharded_adam.h"
#include "transformer/training/distributed/store_host.h"
#include "transformer/training/label_smoothing_loss.h"
#include "transformer/training/moving_average.h"
#include "transformer/training/trainer.h"

// distributed_worker [key=value ..] MODE: one process of a run, or with processes=N the parent of N. What it finds out
// goes to standard output as a line of JSON, from rank 0 alone unless it says which rank.

using namespace transformer;

namespace {

using Arguments = std::map<std::string, std::string>;
using Json = nlohmann::ordered_json;

double number(const Arguments& arguments, const std::string& name, double otherwise) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? otherwise : std::stod(found->second);
}

// One write a line: the processes share a pipe.
void say(const Json& json) {
  const auto line = json.dump() + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) throw std::runtime_error("cannot write");
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void fail(const std::string& how) {
  if (how == "kill") raise(SIGKILL);
  if (how == "stop") raise(SIGSTOP);
  if (how == "sleep") sleep_seconds(1000);
  if (how == "throw") throw std::runtime_error("a made-up failure");
  if (how == "memory") throw std::bad_alloc();
  if (how == "exit") _exit(0);
  if (how == "once" && process_environment()["TORCHELASTIC_RESTART_COUNT"] == "0") throw std::runtime_error("at first");
}

// --- A little training --------------------------------------------------------------------------------------------

Transformer tiny_model(uint64_t seed) {
  ModelSettings settings;
  settings.d_model = 16;
  settings.d_ff = 32;
  settings.heads = 2;
  settings.encoder_layers = settings.decoder_layers = 2;
  settings.vocabulary_size = 40;
  settings.dropout = 0;
  settings.shared_embeddings = ModelSettings::SharedEmbeddings::all;
  torch::manual_seed(seed);
  Transformer model(settings);
  model->to(torch::kFloat64);
  model->train();
  return model;
}

using Sentence = std::pair<std::vector<int64_t>, std::vector<int64_t>>;

// Micro-batch `index` of `step`: of 1 to 4 sentences, the same for everyone.
std::vector<Sentence> micro_batch(int64_t step, int64_t index) {
  std::mt19937 random(static_cast<unsigned>(step * 1000 + index));
  std::vector<Sentence> batch(1 + random() % 4);
  for (auto& [source, target] : batch) {
    source.resize(1 + random() % 7);
    target.resize(2 + random() % 7);
    for (auto* ids : {&source, &target}) {
      for (auto& id : *ids) id = 1 + random() % 39;
    }
  }
  return batch;
}

// How many micro-batches a step has: in some only one, so that the other ranks have none.
int64_t micro_batches(int64_t step, int64_t most) {
  return step % 4 == 1 ? 1 : most - step % 2;
}

int64_t target_tokens(const std::vector<Sentence>& batch) {
  int64_t tokens = 0;
  for (const auto& sentence : batch) tokens += static_cast<int64_t>(sentence.second.size()) - 1;
  return tokens;
}

torch::Tensor padded(const std::vector<Sentence>& batch, std::vector<int64_t> Sentence::*side, size_t skip_first,
                     size_t skip_last) {
  size_t longest = 0;
  for (const auto& sentence : batch) longest = std::max(longest, (sentence.*side).size() - skip_first - skip_last);
  auto ids = torch::zeros({static_cast<int64_t>(batch.size()), static_cast<int64_t>(longest)}, torch::kLong);
  for (size_t row = 0; row < batch.size(); ++row) {
    const auto& side_ids = batch[row].*side;
    for (size_t i = skip_first; i + skip_last < side_ids.size(); ++i) {
      ids[static_cast<int64_t>(row)][static_cast<int64_t>(i - skip_first)] = side_ids[i];
    }
  }
  return ids;
}

torch::Tensor loss_of(Transformer& model, const std::vector<Sentence>& batch, int64_t tokens) {
  const auto hidden =
      model->decode(padded(batch, &Sentence::second, 0, 1), model->encode(padded(batch, &Sentence::first, 0, 0)));
  return projected_label_smoothing_loss(hidden.values, model->projection_weight(),
                                        padded(batch, &Sentence::second, 1, 0), 0.1, TransformerImpl::padding_id,
                                        torch::kFloat64, {}, model->projection_bias())
             .loss /
         static_cast<double>(tokens);
}

std::vector<std::pair<std::string, torch::Tensor>> parameters_of(const Transformer& model) {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  for (const auto& item : model->named_parameters()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

// The largest difference of two models' tensors, relative to the largest value of each tensor.
double difference(const std::vector<torch::Tensor>& these, const std::vector<torch::Tensor>& those) {
  double largest = 0;
  for (size_t i = 0; i < those.size(); ++i) {
    const double scale = std::max(1e-12, those[i].abs().max().item<double>());
    largest = std::max(largest, (these[i] - those[i]).abs().max().item<double>() / scale);
  }
  return largest;
}

std::vector<torch::Tensor> copies(const Transformer& model, bool gradients) {
  std::vector<torch::Tensor> tensors;
  for (const auto& parameter : model->parameters()) {
    tensors.push_back((gradients ? parameter.grad() : parameter.detach()).clone());
  }
  return tensors;
}

constexpr double rate = 0.01;

// What follows the gradients: clipping to clip=.., Adam's step, and the moving average.
struct Update {
  Update(const Transformer& model, const Arguments& arguments, std::unique_ptr<Optimizer> given)
      : limit(number(arguments, "clip", 0)),
        adam(std::move(given)),
        average(parameters_of(model), number(arguments, "average", 0.9)) {}

  void step(int64_t number) {
    if (limit > 0) adam->clip(limit, adam->gradient_norm());
    adam->step(rate, {});
    average.update(number);
  }

  double limit;
  std::unique_ptr<Optimizer> adam;
  MovingAverage average;
};

/// Trains in parallel, then again in this process alone on whole batches, and says how far apart they are.
void train(Communicator& communicator, const Arguments& arguments) {
  const auto steps = static_cast<int64_t>(number(arguments, "steps", 20));
  const auto most = static_cast<int64_t>(number(arguments, "micro_batches", 5));
  const int rank = communicator.rank(), world_size = communicator.world_size();

  auto model = tiny_model(1 + rank);  // rank 0's is the one that counts
  DistributedDataParallel parallel(communicator, *model, {.first_bucket_mb = 0.004, .bucket_mb = 0.02});
  if (arguments.contains("how") && rank == 1) fail(arguments.at("how"));
  auto adam = arguments.contains("shard") ? std::unique_ptr<Optimizer>(std::make_unique<ShardedAdam>(
                                                communicator, parameters_of(model), Adam::Options(), /*piece_mb=*/0.01))
                                          : std::make_unique<Adam>(parameters_of(model), Adam::Options());
  Update update(model, arguments, std::move(adam));
  std::vector<std::vector<torch::Tensor>> gradients;
  Json buckets, own;
  for (int64_t step = 0; step < steps; ++step) {
    int64_t tokens = 0;
    std::vector<std::vector<Sentence>> mine;
    for (int64_t index = 0; index < micro_batches(step, most); ++index) {
      const auto batch = micro_batch(step, index);
      tokens += target_tokens(batch);
      if (index % world_size == rank) mine.push_back(batch);
    }
    own.push_back(mine.size());
    update.adam->clear_gradients();
    for (size_t i = 0; i + 1 < mine.size(); ++i) parallel.accumulate(loss_of(model, mine[i], tokens));
    parallel.backward(mine.empty() ? torch::Tensor() : loss_of(model, mine.back(), tokens));
    gradients.push_back(copies(model, true));
    update.step(step + 1);
    buckets.push_back(parallel.statistics().buckets.size());
  }
  parallel.check_replicas();
  const auto statistics = parallel.statistics();

  communicator.on_rank_0([&] {
    auto reference = tiny_model(1);
    Update reference_update(reference, arguments, std::make_unique<Adam>(parameters_of(reference), Adam::Options()));
    double gradient_difference = 0, largest_norm = 0;
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<Sentence> whole;
      for (int64_t index = 0; index < micro_batches(step, most); ++index) {
        const auto batch = micro_batch(step, index);
        whole.insert(whole.end(), batch.begin(), batch.end());
      }
      reference->zero_grad();
      loss_of(reference, whole, target_tokens(whole)).backward();
      gradient_difference = std::max(gradient_difference, difference(gradients[step], copies(reference, true)));
      largest_norm = std::max(largest_norm, reference_update.adam->gradient_norm().item<double>());
      reference_update.step(step + 1);
    }
    // Weights, before the average takes their place.
    const double weight_difference = difference(copies(model, false), copies(reference, false));
    const double moved = difference(copies(model, false), copies(tiny_model(1), false));
    update.average.swap();
    reference_update.average.swap();
    const auto& last = statistics.buckets;
    int64_t last_bytes = 0;
    bool ordered = true;
    for (const auto& bucket : last) {
      last_bytes += bucket.bytes;
      ordered = ordered && bucket.begun >= 0 && bucket.ended >= bucket.begun && bucket.ended <= statistics.summed;
    }
    say({{"world_size", world_size},
         {"gradients", gradient_difference},
         {"weights", weight_difference},
         {"average", difference(copies(model, false), copies(reference, false))},
         {"largest_norm", largest_norm},
         {"moved", moved},
         {"parameters", model->parameter_count()},
         {"steps", statistics.steps},
         {"collectives", statistics.collectives},
         {"bytes", statistics.bytes},
         {"buckets", buckets},
         {"last_bytes", last_bytes},
         {"ordered", ordered},
         {"before_the_end", last.empty() ? 0 : statistics.computed - last.front().begun}});
  });
  if (rank == world_size - 1) say({{"rank", rank}, {"own", own}});
}

/// Sums of small numbers, exactly; a weight that is used twice; gradients that are kept between steps.
void sums(Communicator& communicator) {
  struct Twice : torch::nn::Module {
    Twice() { weight = register_parameter("weight", torch::full({3}, 0.5, torch::kFloat64)); }
    torch::Tensor weight;
  } module;
  const int rank = communicator.rank();
  DistributedDataParallel parallel(communicator, module);
  // 0.1 through a mean of three and back would not be 0.1.
  const auto factor = rank == 0 ? 0.1 : 0.0;
  parallel.backward((module.weight * factor).sum());
  const bool exact = module.weight.grad().eq(0.1).all().item<bool>();

  module.weight.mutable_grad().zero_();
  parallel.backward((module.weight * module.weight * (rank + 1)).sum() + module.weight.sum());
  const auto expected =
      2 * 0.5 * communicator.world_size() * (communicator.world_size() + 1) / 2.0 + communicator.world_size();
  const bool shared = module.weight.grad().eq(expected).all().item<bool>();

  module.weight.mutable_grad().reset();
  parallel.backward();
  const bool zeros = module.weight.grad().eq(0).all().item<bool>();
  // What was accumulated is summed even by a rank whose last part is missing.
  module.weight.mutable_grad().reset();
  parallel.accumulate(module.weight.sum());
  parallel.backward();
  const bool accumulated = module.weight.grad().eq(communicator.world_size()).all().item<bool>();

  auto tensor = torch::arange(6, torch::kLong).reshape({2, 3}).t() + rank;  // not contiguous
  communicator.all_reduce_sum(tensor);
  auto own = torch::full({2}, rank + 7);
  communicator.broadcast({own});
  communicator.check();
  communicator.barrier();
  const bool any = communicator.any(rank == communicator.world_size() - 1) && !communicator.any(false);
  say({{"rank", rank},
       {"exact", exact},
       {"shared", shared},
       {"zeros", zeros},
       {"accumulated", accumulated},
       {"any", any},
       {"all_reduce", tensor[2][1].item<int64_t>()},
       {"broadcast", own[1].item<int64_t>()}});
}

// --- A sharded optimizer -------------------------------------------------------------------------------------------

// Parameters of all sorts: smaller and larger than a rank's share, numbers, none at all, one that never has a gradient.
struct Assorted {
  explicit Assorted(at::ScalarType type) {
    torch::manual_seed(5);
    const std::vector<std::vector<int64_t>> shapes{{5}, {}, {0}, {37, 21}, {64}, {1}, {3, 2, 7}, {130}};
    for (size_t i = 0; i < shapes.size(); ++i) {
      auto parameter = torch::randn(shapes[i], type);
      parameters.emplace_back(fmt::format("p{}", i), parameter.requires_grad_(i != 4));
    }
  }

  void give_gradients(int64_t step) {
    torch::manual_seed(100 + step);
    for (auto& [name, parameter] : parameters) {
      if (parameter.requires_grad())
        parameter.mutable_grad() = torch::randn(parameter.sizes(), parameter.scalar_type());
    }
  }

  bool equals(const Assorted& other) const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!torch::equal(parameters[i].second, other.parameters[i].second)) return false;
    }
    return true;
  }

  NamedParameters parameters;
};

bool equal(const TensorMap& these, const TensorMap& those) {
  return these.size() == those.size() && std::all_of(these.begin(), these.end(), [&](const auto& item) {
           const auto found = those.find(item.first);
           return found != those.end() && torch::equal(item.second, found->second);
         });
}

/// Adam in parts beside Adam in one piece: weights, what a checkpoint keeps, and going on from that.
void shard(Communicator& communicator) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    Assorted whole(type), parts(type);
    Adam adam(whole.parameters, {});
    ShardedAdam sharded(communicator, parts.parameters, {}, /*piece_mb=*/0.001);
    const auto step = [&](Optimizer& optimizer, Assorted& of, int64_t number, const at::Tensor& norm = {}) {
      of.give_gradients(number);
      optimizer.clip(0.5, optimizer.gradient_norm());
      optimizer.step(rate, norm);
      optimizer.clear_gradients();
    };
    for (int64_t number = 0; number < 4; ++number) {
      step(adam, whole, number);
      step(sharded, parts, number);
    }
    const bool stepped = parts.equals(whole) && !parts.equals(Assorted(type));
    step(sharded, parts, 4, torch::full({}, INFINITY));
    const bool skipped = parts.equals(whole);
    // Of rank 0 alone; an empty parameter has no owner that counts its steps.
    auto kept = sharded.gather_state(), expected = adam.state();
    kept.erase("step.p2");
    expected.erase("step.p2");
    const bool gathered = communicator.rank() == 0 ? equal(kept, expected) : kept.empty();
    int64_t own = 0;
    for (const auto& [name, tensor] : sharded.state()) {
      if (name.starts_with("first_moment.")) own += tensor.numel();
    }

    Assorted again(type);
    for (size_t i = 0; i < whole.parameters.size(); ++i) {
      again.parameters[i].second.detach().copy_(whole.parameters[i].second.detach());
    }
    ShardedAdam resumed(communicator, again.parameters, {}, /*piece_mb=*/25);
    resumed.load(adam.state(), "here");
    for (int64_t number = 4; number < 7; ++number) {
      step(adam, whole, number);
      step(sharded, parts, number);
      step(resumed, again, number);
    }
    std::string refused;
    auto damaged = adam.state();
    damaged["second_moment.p3"] = torch::zeros({3});
    try {
      resumed.load(damaged, "here");
    } catch (const Error& error) {
      refused = error.what();
    }
    say({{"rank", communicator.rank()},
         {"stepped", stepped},
         {"skipped", skipped},
         {"gathered", gathered},
         {"resumed", parts.equals(whole) && again.equals(whole)},
         {"own", own},
         {"refused", refused}});
  }
}

// What is thrown where processes differ, on every rank.
void differ(Communicator& communicator) {
  const bool other = communicator.rank() == 1;
  Json found{{"rank", communicator.rank()}};
  auto note = [&](const std::string& name, const std::function<void()>& body) {
    try {
      body();
      found[name] = "nothing";
    } catch (const Error& error) {
      found[name] = fmt::format("Error: {}", error.what());
    } catch (const Failure& failure) {
      found[name] = fmt::format("Failure: {}", failure.what());
    }
  };
  note("text", [&] { communicator.check_same("settings", other ? "a: 1\nb: 3\nc: 4" : "a: 1\nb: 2\nc: 4"); });
  note("longer", [&] { communicator.check_same("settings", other ? "a: 1\nb: 3" : "a: 1"); });
  note("same", [&] { communicator.check_same("settings", "a: 1"); });
  const auto shared = [&](const std::string& seen) { communicator.check_shared("runs/a", "rank 0's file", seen); };
  note("seen", [&] { shared("a"); });
  note("unseen", [&] { shared(other ? "" : "a"); });
  note("another", [&] { shared(other ? "b" : "a"); });
  note("distinct", [&] { communicator.check_distinct("device 'cuda'", other ? "GPU-a" : "GPU-b"); });
  note("unknown", [&] { communicator.check_distinct("device 'cuda'", ""); });
  note("shared", [&] { communicator.check_distinct("device 'cuda'", "GPU-a"); });
  note("shape", [&] {
    torch::nn::Linear linear(2, other ? 4 : 3);
    DistributedDataParallel parallel(communicator, *linear);
  });
  note("values", [&] {
    torch::nn::Linear linear(2, 2);
    DistributedDataParallel parallel(communicator, *linear);
    torch::NoGradGuard no_grad;
    if (other) linear->bias[0] += 1;
    parallel.check_replicas();
  });
  note("unused", [&] {
    torch::nn::Linear linear(2, 2);
    DistributedDataParallel parallel(communicator, *linear);
    parallel.backward(linear->weight.sum());
  });
  say(found);
}

// --- A task of one's own ------------------------------------------------------------------------------------------

struct Rows : BatchSource {
  void begin(const Plan& given) override { plan = given; }
  MicroBatch next(int64_t number, BatchPosition& position) override {
    const auto seed = static_cast<uint64_t>(1000 + position.batch++);
    if (!plan.mine(number)) return {};
    const auto rows = torch::randn({16, 8}, at::make_generator<at::CPUGeneratorImpl>(seed));
    return {.tensors = {rows, rows.sum(1)}, .items = 16};
  }
  Plan plan;
};

// Most of it is frozen, so that of an optimizer in parts one has nothing to do.
struct Tuned : torch::nn::Module {
  Tuned() {
    frozen = register_parameter("frozen", torch::ones({1000, 8}), /*requires_grad=*/false);
    linear = register_module("linear", torch::nn::Linear(8, 1));
  }
  torch::Tensor forward(const torch::Tensor& rows) { return linear(rows + frozen.mean(0)).squeeze(-1); }
  torch::Tensor frozen;
  torch::nn::Linear linear{nullptr};
};

// An optimizer whose state is damaged on rank 1, as where it is shared out and the damage lies in that rank's part.
struct DamagedAdam : Adam {
  DamagedAdam(NamedParameters parameters, bool is_damaged) : Adam(std::move(parameters), {}), damaged(is_damaged) {}
  TensorMap state() const override {
    auto state = Adam::state();
    if (damaged) state["second_moment.linear.bias"] = torch::full({1}, INFINITY);
    return state;
  }
  bool damaged;
};

// Ranks have rates of their own, and validate where validates=all or, on rank 0, validates=one.
void train_own(Communicator& communicator, const Arguments& arguments) {
  TrainingSettings settings;
  settings.steps = 6;
  settings.batch_tokens = 2;
  settings.micro_batch_tokens = 1;
  settings.threads = 1;
  settings.log_every = settings.validate_every = 2;
  settings.checkpoint_every = 0;
  settings.clip_norm = 1;
  settings.shard_optimizer = arguments.contains("shard");
  torch::manual_seed(1);
  const auto model = std::make_shared<Tuned>();
  std::function<std::unique_ptr<Optimizer>(NamedParameters)> optimizer;
  if (arguments.contains("damaged")) {
    optimizer = [&](NamedParameters parameters) {
      return std::make_unique<DamagedAdam>(std::move(parameters), communicator.rank() == 1);
    };
  }
  const TrainingTask task{.model = model,
                          .batches = std::make_shared<Rows>(),
                          .loss = [model](const DeviceBatch& batch) -> LossSums {
                            return {(model->forward(batch.tensors[0]) - batch.tensors[1]).pow(2).sum(), {}};
                          },
                          .schedule = [&](int64_t) { return 1e-3 * (1 + communicator.rank()); },
                          .optimizer = optimizer};
  const auto validation = [] { return Validation{.loss = 1, .perplexity = 2, .bleu = {}, .signature = {}}; };
  TrainerHooks hooks;
  const auto validates = arguments.find("validates");
  if (validates != arguments.end() && (validates->second == "all" || communicator.rank() == 0)) {
    hooks.validate = [&](torch::nn::Module&, int64_t) { return validation(); };
  }
  Trainer trainer(communicator, task, settings, arguments.at("folder"), {}, hooks);
  trainer.run();
  trainer.record_final(validation());
  say({{"rank", communicator.rank()}, {"weights", model->linear->weight.sum().item<double>()}});
}

// --- Failures -----------------------------------------------------------------------------------------------------

void train_and_fail(Communicator& communicator, const Arguments& arguments) {
  const bool culprit = communicator.rank() == number(arguments, "rank", 1);
  auto model = tiny_model(1);
  DistributedDataParallel parallel(communicator, *model, {.first_bucket_mb = 0.004, .bucket_mb = 0.02});
  for (int64_t step = 0; step < number(arguments, "steps", 1e6); ++step) {
    const auto batch = micro_batch(step, communicator.rank());
    const auto loss = loss_of(model, batch, 100);
    if (step == 3 && culprit) {
      // In the middle of the backward pass: some buckets are on their way.
      model->parameters().front().register_hook([&](const torch::Tensor&) { fail(arguments.at("how")); });
    }
    parallel.backward(loss);
    model->zero_grad();
  }
}

void work_alone(Communicator& communicator, const Arguments& arguments) {
  const double seconds = number(arguments, "seconds", 3);
  if (communicator.rank() > 0 && arguments.contains("meanwhile")) {
    sleep_seconds(1.5);
    fail(arguments.at("meanwhile"));
  }
  ::signal(SIGTERM, SIG_IGN);  // as a program does that ends when its work is done
  communicator.on_rank_0([&] {
    if (arguments.contains("begins")) say({{"begun", true}});
    sleep_seconds(seconds);
    if (arguments.contains("meanwhile")) say({{"written", true}});
  });
  communicator.on_rank_0([&] {
    if (arguments.contains("how")) fail(arguments.at("how"));
  });
  communicator.barrier();
  if (communicator.rank() == 0) say({{"done", true}});
}

// A mistake of one rank, which the others hear of and end before it does.
void make_mistake(Communicator& communicator, int rank) {
  try {
    communicator.guard([&] {
      if (communicator.rank() == rank) throw Error("made-up", "is a mistake");
      communicator.barrier();
    });
  } catch (const Error&) {
    sleep_seconds(1);
    throw;
  }
}

// --- The parent's tests -------------------------------------------------------------------------------------------

std::atomic<int> received{0};

int wait_for_signal(const Launch& launch) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ::signal(signal, [](int number) { received = received * 100 + number; });
  }
  say({{"rank", launch.rank}, {"pid", getpid()}});
  while (received == 0) sleep_seconds(0.01);
  sleep_seconds(0.3);  // for a second one
  say({{"rank", launch.rank}, {"signal", received.load()}});
  return 130;
}

// Holds a store as torchrun's agents do, for as long as standard input is open.
int hold_store() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  if (descriptor < 0 || bind(descriptor, generic, length) != 0 || listen(descriptor, SOMAXCONN) != 0 ||
      getsockname(descriptor, generic, &length) != 0) {
    throw std::runtime_error("cannot listen");
  }
  Launch launch;
  launch.address = "127.0.0.1";
  launch.port = ntohs(address.sin_port);
  const StoreHost store(launch, descriptor);
  say({{"port", launch.port}});
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}

int run(const std::vector<std::string>& given) {
  Arguments arguments;
  for (size_t i = 1; i + 1 < given.size(); ++i) {
    const auto equals = given[i].find('=');
    arguments[given[i].substr(0, equals)] = given[i].substr(equals + 1);
  }
  const auto mode = given.back();
  const auto launch = read_launch(process_environment());
  if (arguments.contains("processes") && launch.launcher != Launch::Launcher::processes) {
    return run_processes(static_cast<int>(number(arguments, "processes", 0)), given,
                         {.grace_seconds = number(arguments, "grace", 10), .kill_seconds = 1});
  }

  if (mode == "launch" || arguments.contains("launch")) {
    say({{"launcher", launcher_name(launch.launcher)},
         {"rank", launch.rank},
         {"world_size", launch.world_size},
         {"local_rank", launch.local_rank},
         {"local_world_size", launch.local_world_size},
         {"agent_store", launch.agent_store},
         {"run", launch.run},
         {"threads", std::getenv("OMP_NUM_THREADS") ? std::getenv("OMP_NUM_THREADS") : ""}});
    if (mode == "launch") return 0;
  }
  if (mode == "signal") return wait_for_signal(launch);
  if (mode == "store") return hold_store();
  if (mode == "late") {  // a rank that never comes, and does not know of signals yet
    if (launch.rank > 0) ::signal(SIGINT, SIG_IGN);
    say({{"rank", launch.rank}});
    if (launch.rank == 0) sleep_seconds(1000);
  }
  if (mode == "exit") {
    if (launch.rank != number(arguments, "rank", 0))
      sleep_seconds(number(arguments, "others", 0));
    else if (arguments.contains("how"))
      fail(arguments.at("how"));
    return launch.rank == number(arguments, "rank", 0) ? static_cast<int>(number(arguments, "status", 0)) : 0;
  }

  const bool nccl = arguments.contains("nccl");
  Communicator communicator(
      launch, {.backend = nccl ? Backend::nccl : Backend::gloo, .timeout_seconds = number(arguments, "timeout", 60)});
  communicator.guard([&] {
    if (mode == "train") return train(communicator, arguments);
    if (mode == "sums") return sums(communicator);
    if (mode == "shard") return shard(communicator);
    if (mode == "differ") return differ(communicator);
    if (mode == "trainer") return train_own(communicator, arguments);
    if (mode == "fail") return train_and_fail(communicator, arguments);
    if (mode == "alone") return work_alone(communicator, arguments);
    if (mode == "mistake") return make_mistake(communicator, static_cast<int>(number(arguments, "rank", 0)));
    throw Error(mode, "is no mode");
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto fail_with = [](const std::string& text, int status) {
    std::cerr << fmt::format("distributed_worker: error: {}\n", text.substr(0, text.find('\n'))) << std::flush;
    return status;
  };
  try {
    int status = 0;
    with_error_file([&] { status = run({argv, argv + argc}); });
    return status;
  } catch (const Error& error) {
    return fail_with(error.what(), 2);
  } catch (const std::exception& error) {
    return fail_with(error.what(), 1);
  }
}
