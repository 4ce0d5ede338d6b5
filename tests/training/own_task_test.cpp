// A Trainer with a model, batches, a loss, an optimizer and a schedule of somebody else's, and their mistakes.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "model/reference.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/base/process.h"
#include "transformer/base/threads.h"
#include "transformer/training/adam.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/learning_rate.h"
#include "transformer/training/metrics.h"
#include "transformer/training/trainer.h"

using namespace transformer;
using Catch::Matchers::Contains;
using transformer::test::message_of;
using transformer::test::read_file;
using transformer::test::TemporaryDirectory;

namespace {

// Sixteen rows of eight numbers, which follow from the position, and their sums.
struct Rows : BatchSource {
  void begin(const Plan& given) override { plan = given; }
  MicroBatch next(int64_t number, BatchPosition& position) override {
    const int64_t at = position.batch++;
    position.state = state;
    if (ends > 0 && at >= ends) return {};
    if (!plan.mine(number)) return {};
    const auto rows =
        torch::randn({16, 8}, at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(1000 + at))) * 3 + 5;
    return {.tensors = {rows, rows.sum(1)}, .items = items, .flops = flops};
  }
  Plan plan;
  std::string state;
  int64_t ends = 0, items = 16;
  double flops = 0;
};

struct Net : torch::nn::Module {
  explicit Net(bool normalized = false) {
    if (normalized) norm = register_module("norm", torch::nn::BatchNorm1d(8));
    first = register_module("first", torch::nn::Linear(8, 1));
  }
  torch::Tensor forward(const torch::Tensor& rows) {
    const auto given = norm ? norm(rows) : rows;
    return (extra ? first(given) + extra(given) : first(given)).squeeze(-1);
  }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear first{nullptr}, extra{nullptr};
};

// One matrix under two names, or under one.
struct Twice : torch::nn::Module {
  explicit Twice(bool tied) {
    in = register_module("in", torch::nn::Linear(torch::nn::LinearOptions(8, 8).bias(false)));
    if (tied) register_module("out", in);
  }
  torch::Tensor forward(const torch::Tensor& rows) { return in(in(rows)).sum(-1); }
  torch::nn::Linear in{nullptr};
};

// Stochastic gradient descent with momentum.
struct Momentum : Optimizer {
  Momentum(NamedParameters given, bool at_first_step) : Optimizer(std::move(given)) {
    if (!at_first_step) make();
  }
  void make() {
    for (const auto& [name, weight] : parameters()) velocities.emplace(name, torch::zeros_like(weight));
  }
  void step(double rate, const at::Tensor&) override {
    const torch::NoGradGuard no_grad;
    if (velocities.empty()) make();
    for (auto [name, weight] : parameters()) weight -= rate * velocities.at(name).mul_(0.9).add_(weight.grad());
  }
  TensorMap state() const override { return velocities; }
  TensorMap velocities;
};

TrainingSettings settings_of(int64_t steps) {
  TrainingSettings settings;
  settings.steps = steps;
  settings.batch_tokens = 2;
  settings.micro_batch_tokens = 1;
  settings.threads = 1;
  settings.log_every = 5;
  settings.checkpoint_every = settings.validate_every = 0;
  return settings;
}

Validation validation(std::optional<double> bleu = {}) {
  return {.loss = 1, .perplexity = 2, .bleu = bleu, .signature = "made up"};
}

template <class Model>
TrainingTask task_of(const std::shared_ptr<Model>& model,
                     const std::shared_ptr<Rows>& rows = std::make_shared<Rows>()) {
  return {.model = model,
          .batches = rows,
          .loss = [model](const DeviceBatch& batch) -> LossSums {
            return {(model->forward(batch.tensors[0]) - batch.tensors[1]).pow(2).sum(), {}};
          },
          .schedule = ConstantSchedule{1e-3, 0}};
}

template <class Model = Net, class... Arguments>
std::shared_ptr<Model> seeded(Arguments... arguments) {
  torch::manual_seed(1);
  return std::make_shared<Model>(arguments...);
}

void train(TrainingTask task, const std::filesystem::path& run, const TrainingSettings& settings, bool resume = false,
           const TrainerHooks& hooks = {}) {
  Communicator alone({}, {});
  Trainer trainer(alone, std::move(task), settings, run, {}, hooks);
  if (resume) trainer.resume();
  trainer.run();
}

// LibTorch's, of a program that had `before`.
int threads_after(int before) {
  TemporaryDirectory folder;
  auto settings = settings_of(1);
  settings.threads = 0;
  at::set_num_threads(before);
  train(task_of(seeded()), folder / "run", settings);
  return at::get_num_threads();
}

// The variable that a test sees which has begun in a process of its own.
constexpr const char* own_process = "TRANSFORMER_TEST_OWN_PROCESS";

// How a process ended that does nothing but this test, behind the words of `launcher`, if any; empty where those did
// not come to it.
std::string end_of_own_process(const std::string& test, std::vector<std::string> launcher,
                               std::map<std::string, std::string> environment = {}) {
  TemporaryDirectory folder;
  launcher.insert(launcher.end(), {"sh", "-c", "touch \"$0\" && exec \"$@\"", (folder / "begun").string(),
                                   this_program(test).string(), test});
  environment.emplace(own_process, "1");
  ProcessOptions options{.command = launcher, .environment = environment, .log = folder / "log", .signals = {}};
  int status = 0;
  const pid_t process = start_process(options);
  REQUIRE(::waitpid(process, &status, 0) == process);
  UNSCOPED_INFO(read_file(folder / "log"));
  return std::filesystem::exists(folder / "begun") ? process_end(status) : "";
}

}  // namespace

TEST_CASE("a trainer makes its folder, and finds out that it cannot be written before the first step") {
  TemporaryDirectory folder;
  const auto net = seeded();
  train(task_of(net), folder / "not" / "there", settings_of(6));
  CHECK(list_checkpoints(folder / "not" / "there").size() == 1);

  std::ofstream(folder / "file") << "text";
  auto rows = std::make_shared<Rows>();
  CHECK_THAT(message_of<Error>([&] { train(task_of(net, rows), folder / "file" / "run", settings_of(6)); }),
             Contains("cannot create the folder"));
  CHECK(read_file(folder / "file") == "text");
}

TEST_CASE("a trainer that was not told to go on leaves another run's checkpoints and figures alone") {
  TemporaryDirectory folder;
  auto settings = settings_of(10);
  settings.checkpoint_every = 2;
  train(task_of(seeded()), folder / "run", settings);
  const auto before = list_checkpoints(folder / "run");
  const auto figures = read_file(folder / "run" / metrics_name);
  settings.steps = 4;
  CHECK_THAT(message_of<Error>([&] { train(task_of(seeded()), folder / "run", settings); }),
             Contains("holds the checkpoints of a run already") && Contains("resume()"));
  CHECK(list_checkpoints(folder / "run") == before);
  CHECK(read_file(folder / "run" / metrics_name) == figures);
}

TEST_CASE("one trainer at a time works in a folder") {
  TemporaryDirectory folder;
  auto settings = settings_of(3);
  settings.validate_every = 1;
  std::string other;
  TrainerHooks hooks{.validate = [&](torch::nn::Module&, int64_t) {
    if (other.empty()) {
      other = message_of<Error>([&] { train(task_of(seeded()), folder / "run", settings_of(2)); });
    }
    return validation();
  }};
  train(task_of(seeded()), folder / "run", settings, false, hooks);
  CHECK_THAT(other, Contains("another run is working in this folder"));
}

TEST_CASE("a trainer whose folder was moved away makes no other, and goes on where it is back") {
  const bool replaced = GENERATE(false, true);
  TemporaryDirectory folder;
  const auto run = folder / "run", moved = folder / "moved";
  auto settings = settings_of(4);
  settings.checkpoint_every = 1;
  TrainerHooks hooks{.checkpointed = [&] {
    std::filesystem::rename(run, moved);
    if (replaced) std::filesystem::create_directory(run);
  }};
  CHECK_THAT(message_of<Failure>([&] { train(task_of(seeded()), run, settings, false, hooks); }),
             Contains(run.string()) && Contains("is not the folder any more that the run began in"));
  CHECK(std::filesystem::exists(run) == replaced);
  if (replaced) CHECK(std::filesystem::remove(run));  // as empty as it was
  std::filesystem::rename(moved, run);
  train(task_of(seeded()), run, settings, true);
  CHECK(list_checkpoints(run).size() == 4);
}

TEST_CASE("a trainer whose folder was moved away before its first step makes no other") {
  const bool resumed = GENERATE(false, true);
  TemporaryDirectory folder;
  const auto run = folder / "run";
  train(task_of(seeded()), run, settings_of(2));
  Communicator alone({}, {});
  Trainer trainer(alone, task_of(seeded()), settings_of(4), run);
  if (resumed) trainer.resume();
  std::filesystem::rename(run, folder / "moved");
  const auto go_on = [&] {
    if (!resumed) trainer.resume();
    trainer.run();
  };
  CHECK_THAT(message_of<Failure>(go_on), Contains("is not the folder any more that the run began in"));
  CHECK_FALSE(std::filesystem::exists(run));
}

TEST_CASE("a trace is not written where a run's folder was moved away") {
  TemporaryDirectory folder;
  const auto run = folder / "run";
  auto settings = settings_of(4);
  settings.log_every = 1;
  const TrainerHooks hooks{.progressed = [&](const ProgressReport&) {
    std::filesystem::rename(run, folder / "moved");
    std::filesystem::create_directory(run);
  }};
  Communicator alone({}, {});
  Trainer trainer(alone, task_of(seeded()), settings, run, {}, hooks);
  CHECK_THAT(message_of<Failure>([&] { trainer.run(/*profile_steps=*/1); }),
             Contains("is not the folder any more that the run began in"));
  CHECK(std::filesystem::is_empty(run));
}

TEST_CASE("a program's own number of threads stays but for what exceeds a container's unasked") {
  if (!::getenv(own_process)) {
    const std::string limited =
        "mount -t tmpfs none /sys/fs/cgroup && echo 150000 100000 >/sys/fs/cgroup/cpu.max && exec \"$@\"";
    const auto end =
        end_of_own_process("a program's own number of threads stays but for what exceeds a container's unasked",
                           {"unshare", "--user", "--map-root-user", "--mount", "sh", "-c", limited, "-"});
    if (end.empty()) {
      WARN("no test with limits: not allowed here");
      return;
    }
    CHECK(end == "ended with status 0");
    return;
  }
  ::setenv("OMP_NUM_THREADS", "1", /*overwrite=*/1);
  CHECK(threads_after(3) == 3);
  ::unsetenv("OMP_NUM_THREADS");
  CHECK(threads_after(3) == 2);
  CHECK(threads_after(1) == 1);
}

TEST_CASE("what OpenMP binds its first thread to is not all that a process may use") {
  const auto processors = [] {
    cpu_set_t allowed;
    return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  };
  if (!::getenv(own_process)) {
    CHECK(end_of_own_process("what OpenMP binds its first thread to is not all that a process may use", {},
                             {{"OMP_PROC_BIND", "true"},
                              {"CORES", std::to_string(usable_cores())},
                              {"PROCESSORS", std::to_string(processors())}}) == "ended with status 0");
    return;
  }
  const int cores = std::stoi(::getenv("CORES")), all = std::stoi(::getenv("PROCESSORS"));
  ::unsetenv("OMP_NUM_THREADS");
  CHECK(processors() == 1);
  CHECK(usable_cores() == cores);
  CHECK(default_threads() == std::min(cores, 1024));
  CHECK(threads_after(cores) == cores);
  // Threads and processes that are none of OpenMP's.
  int of_thread = 0;
  std::vector<std::jthread> threads;
  start_threads(
      threads, 1, [&](size_t) { return [&] { of_thread = processors(); }; }, [] {});
  threads.clear();
  CHECK(of_thread == all);
  std::atomic<int> here = 0, widest = 0;
  in_parallel(2, 1, 2, [&](size_t, size_t) {
    if (++here == 1) {
      while (here < 2) std::this_thread::yield();  // the other part is another's
    }
    if (processors() > widest) widest = processors();
  });
  CHECK(widest == all);
  TemporaryDirectory folder;
  ProcessOptions options{.command = {"nproc"}, .environment = {}, .log = folder / "log", .signals = {}};
  ::waitpid(start_process(options), nullptr, 0);
  CHECK(read_file(folder / "log") == fmt::format("{}\n", all));
}

TEST_CASE("a model's buffers go on with it") {
  TemporaryDirectory folder;
  const auto eval_of = [](Net& net) {
    net.eval();
    return net.forward(torch::full({1, 8}, 5.0)).item<float>();
  };
  const auto whole = seeded(true), begun = seeded(true), gone_on = seeded(true);
  train(task_of(whole), folder / "whole", settings_of(20));
  train(task_of(begun), folder / "parts", settings_of(13));
  train(task_of(gone_on), folder / "parts", settings_of(20), /*resume=*/true);
  CHECK(torch::equal(gone_on->norm->running_mean, whole->norm->running_mean));
  CHECK(torch::equal(gone_on->norm->num_batches_tracked, whole->norm->num_batches_tracked));
  CHECK(whole->norm->num_batches_tracked.item<int64_t>() >= 40);
  CHECK(eval_of(*gone_on) == eval_of(*whole));
}

TEST_CASE("a parameter of two modules is one: it is updated, clipped and averaged once") {
  TemporaryDirectory folder;
  auto settings = settings_of(3);
  settings.clip_norm = 1;
  settings.moving_average = 0.9;
  for (const bool own_optimizer : {false, true}) {
    std::vector<torch::Tensor> ends;
    for (const bool tied : {false, true}) {
      const auto model = seeded<Twice>(tied);
      auto task = task_of(model);
      if (own_optimizer) {
        task.optimizer = [](NamedParameters given) { return std::make_unique<Momentum>(std::move(given), false); };
      }
      const auto run = folder / fmt::format("{}-{}", own_optimizer, tied);
      train(task, run, settings);
      ends.push_back(model->in->weight.detach().clone());
      const auto again = seeded<Twice>(tied);
      auto more = settings;
      more.steps = 4;
      task = task_of(again);
      if (own_optimizer) {
        task.optimizer = [](NamedParameters given) { return std::make_unique<Momentum>(std::move(given), false); };
      }
      train(task, run, more, /*resume=*/true);
    }
    CHECK(torch::equal(ends[0], ends[1]));
  }
}

TEST_CASE("a likelihood that still has its graph keeps none of it") {
  TemporaryDirectory folder;
  const auto net = seeded();
  auto task = task_of(net);
  std::weak_ptr<torch::autograd::Node> first;  // of the first step's graph
  bool known = false;
  task.loss = [&](const DeviceBatch& batch) -> LossSums {
    const auto loss = (net->forward(batch.tensors[0]) - batch.tensors[1]).pow(2).sum();
    const auto likelihood = loss * 1e-3;
    if (!std::exchange(known, true)) first = likelihood.grad_fn();
    return {loss, likelihood};
  };
  auto settings = settings_of(3);
  settings.log_every = 100;
  settings.validate_every = 2;
  bool gone = false;
  const TrainerHooks hooks{.validate = [&](torch::nn::Module&, int64_t) {
    gone = first.expired();
    return validation();
  }};
  train(task, folder / "run", settings, false, hooks);
  CHECK(gone);
}

TEST_CASE("a source's state may be any bytes") {
  TemporaryDirectory folder;
  const std::string bytes("\xff\xfe\x00 generator\xc3", 13);
  for (const auto& state : {bytes, std::string("näher"), std::string()}) {
    const auto run = folder / std::to_string(state.size());
    auto rows = std::make_shared<Rows>();
    rows->state = state;
    train(task_of(seeded(), rows), run, settings_of(2));
    struct Asked : Rows {
      MicroBatch next(int64_t number, BatchPosition& position) override {
        if (!found) found = position.state;
        return Rows::next(number, position);
      }
      std::optional<std::string> found;
    };
    const auto asked = std::make_shared<Asked>();
    auto task = task_of(seeded(), std::shared_ptr<Rows>(asked));
    train(task, run, settings_of(3), /*resume=*/true);
    CHECK(asked->found == state);
  }
}

TEST_CASE("what a model's parts are called is the program's own business") {
  for (const char* name : {"buffer", "weight", "state"}) {
    INFO(name);
    TemporaryDirectory folder;
    const auto with = [&](const std::shared_ptr<Net>& net) {
      auto task = task_of(net);
      net->extra = net->register_module(name, torch::nn::Linear(8, 1));
      task.optimizer = [](NamedParameters given) { return std::make_unique<Momentum>(std::move(given), false); };
      return task;
    };
    auto settings = settings_of(6);
    settings.moving_average = 0.5;
    const auto whole = seeded(true), gone_on = seeded(true);
    train(with(whole), folder / "whole", settings);
    settings.steps = 3;
    train(with(seeded(true)), folder / "parts", settings);
    settings.steps = 6;
    train(with(gone_on), folder / "parts", settings, /*resume=*/true);
    CHECK(torch::equal(gone_on->first->weight, whole->first->weight));
    CHECK(torch::equal(gone_on->extra->weight, whole->extra->weight));
    CHECK(torch::equal(gone_on->norm->running_mean, whole->norm->running_mean));
  }
}

TEST_CASE("a program has its model back whatever its validation throws") {
  TemporaryDirectory folder;
  const auto net = seeded(), other = seeded();
  auto settings = settings_of(4);
  settings.moving_average = 0.9;
  train(task_of(other), folder / "other", settings);
  settings.validate_every = 4;
  settings.patience = 1;
  const TrainerHooks hooks{.validate = [](torch::nn::Module& model, int64_t) -> Validation {
    CHECK_FALSE(model.is_training());
    throw std::runtime_error("of the program's own");
  }};
  CHECK_THROWS_WITH(train(task_of(net), folder / "run", settings, false, hooks), "of the program's own");
  CHECK(net->is_training());
  CHECK(torch::equal(net->first->weight, other->first->weight));  // not their average
}

TEST_CASE("a trainer that goes on counts its time on") {
  TemporaryDirectory folder;
  std::atomic<bool> stop{false};
  int64_t stop_at = 3;
  const TrainerHooks hooks{.validate =
                               [&](torch::nn::Module&, int64_t step) {
                                 stop = step == stop_at;
                                 std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                 return validation();
                               },
                           .stop = &stop};
  auto settings = settings_of(4);
  settings.validate_every = 1;
  Communicator alone({}, {});
  Trainer trainer(alone, task_of(seeded()), settings, folder / "run", {}, hooks);
  const auto first = trainer.run();
  CHECK(first.end == TrainingSummary::End::interruption);
  stop_at = 0;
  stop = false;
  const auto begun = std::chrono::steady_clock::now();
  const auto second = trainer.run();
  CHECK(second.steps == 4);
  CHECK(first.seconds >= 0.06);
  CHECK(second.seconds > first.seconds);
  CHECK(second.process_seconds == Approx(second.seconds));
  // What comes behind the end is of the same time.
  trainer.record_final(validation());
  const double since = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const auto records = read_file(folder / "run" / metrics_name);
  const auto last = nlohmann::json::parse(records.substr(records.rfind('\n', records.size() - 2) + 1));
  CHECK(last.at("kind") == "final");
  CHECK(last.at("seconds").get<double>() >= second.seconds);
  CHECK(last.at("seconds").get<double>() <= first.seconds + since + 1e-4);
}

TEST_CASE("an optimizer that has no place for what a checkpoint kept does not go on") {
  TemporaryDirectory folder;
  const auto with = [](bool at_first_step) {
    auto task = task_of(seeded());
    task.schedule = ConstantSchedule{1e-5, 0};
    task.optimizer = [at_first_step](NamedParameters given) {
      return std::make_unique<Momentum>(std::move(given), at_first_step);
    };
    return task;
  };
  train(with(false), folder / "run", settings_of(2));
  train(with(false), folder / "run", settings_of(4), /*resume=*/true);
  std::string log;
  const TrainerHooks hooks{.log = Log([&](LogLevel, const std::string& line) { log += line; })};
  CHECK_THROWS_AS(train(with(true), folder / "run", settings_of(6), /*resume=*/true, hooks), Error);
  CHECK_THAT(log, Contains("the optimizer knows no 'first.bias'"));
}

TEST_CASE("parameters without gradients are trained by nobody") {
  TemporaryDirectory folder;
  const auto net = seeded();
  net->first->bias.set_requires_grad(false);
  const auto bias = net->first->bias.clone(), weight = net->first->weight.detach().clone();
  auto settings = settings_of(3);
  settings.clip_norm = 1;
  train(task_of(net), folder / "run", settings);
  CHECK(torch::equal(net->first->bias, bias));
  CHECK_FALSE(torch::equal(net->first->weight, weight));

  Adam none({{"frozen", torch::ones({3})}}, {});
  CHECK(none.gradient_norm().item<float>() == 0);
  none.clip(1, torch::ones({}));
  none.step(1, torch::ones({}));
}

TEST_CASE("what a task's own parts do wrong is said by name") {
  TemporaryDirectory folder;
  const auto run = folder / "run";
  auto rows = std::make_shared<Rows>();
  auto task = task_of(seeded(), rows);
  const auto failure = [&] {
    std::filesystem::remove_all(run);
    return message_of<Failure>([&] { train(task, run, settings_of(10)); });
  };
  const auto mistake = [&] {
    std::filesystem::remove_all(run);
    return message_of<std::invalid_argument>([&] { train(task, run, settings_of(10)); });
  };
  rows->ends = 6;
  CHECK_THAT(failure(), Contains("step 4") && Contains("no items"));
  rows->ends = 0;
  rows->items = 0;
  CHECK_THAT(failure(), Contains("step 1") && Contains("no items"));
  rows->items = 16;
  rows->flops = std::numeric_limits<double>::infinity();
  CHECK_THAT(failure(), Contains("step 1") && Contains("flops"));
  rows->flops = 0;
  task.schedule = [](int64_t step) { return step == 3 ? std::nan("") : 1e-3; };
  CHECK_THAT(failure(), Contains("step 3") && Contains("rate is nan"));
  task.schedule = ConstantSchedule{1e-3, 0};
  task.optimizer = [](NamedParameters) { return std::unique_ptr<Optimizer>(); };
  CHECK_THAT(mistake(), Contains("optimizer is a null pointer"));
  task.optimizer = {};
  const auto net = seeded();
  task.model = net;
  task.loss = [net](const DeviceBatch& batch) -> LossSums { return {net->forward(batch.tensors[0]), {}}; };
  CHECK_THAT(mistake(), Contains("one number"));

  task = task_of(net);
  auto settings = settings_of(4);
  settings.validate_every = 2;
  settings.validate_bleu = true;
  settings.best_by = TrainingSettings::Criterion::bleu;
  const TrainerHooks hooks{.validate = [](torch::nn::Module&, int64_t) { return validation(std::nan("")); }};
  std::filesystem::remove_all(run);
  CHECK_THAT(message_of<Failure>([&] { train(task, run, settings, false, hooks); }),
             Contains("BLEU") && Contains("not finite"));
}
