#include "transformer/training/trainer.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <system_error>

#include "transformer/base/checksum.h"
#include "transformer/base/clock_text.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/memory.h"
#include "transformer/base/process.h"
#include "transformer/base/read_file.h"
#include "transformer/base/settings.h"
#include "transformer/base/threads.h"
#include "transformer/base/unreadable.h"
#include "transformer/model/autocast.h"
#include "transformer/model/device.h"
#include "transformer/model/evaluating.h"
#include "transformer/model/fused/gpu_kernels.h"
#include "transformer/model/named_parameters.h"
#include "transformer/model/tensor_memory.h"
#include "transformer/text/random.h"
#include "transformer/training/adam.h"
#include "transformer/training/distributed/sharded_adam.h"
#include "transformer/training/layer_drop.h"
#include "transformer/training/micro_batch.h"
#include "transformer/training/profile.h"

namespace transformer {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool uses_bf16(const TrainingSettings& settings, const torch::Device& device) {
  return settings.precision == TrainingSettings::Precision::bf16 ||
         (settings.precision == TrainingSettings::Precision::automatic && multiplies_bf16(device));
}

std::string text_of(const Validation& validation) {
  return fmt::format("perplexity {:.2f}{}", validation.perplexity,
                     validation.bleu ? fmt::format(", BLEU {:.2f} ({})", *validation.bleu, validation.signature) : "");
}

Error batch_is_too_small(int64_t tokens, int64_t longest) {
  return {"training.batch_tokens",
          fmt::format("{} are fewer than the {} tokens of the longest sentence pair", tokens, longest),
          fmt::format("raise it to {}, or lower data.max_length", longest)};
}

torch::Device moved(torch::nn::Module& model, const TrainingSettings& settings) {
  // cuBLAS reads it when it is first needed, and LibTorch refuses to multiply without it then.
  if (settings.deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  const auto device = open_device(settings.device);
  model.to(device);
  return device;
}

TrainingTask checked(TrainingTask task) {
  if (!task.model || !task.batches || !task.loss || !task.schedule) {
    throw std::invalid_argument("Trainer: a task needs a model, a source of batches, a loss and a schedule");
  }
  return task;
}

TrainingSettings checked(TrainingSettings settings) {
  settings.check();
  return settings;
}

std::unique_ptr<Optimizer> optimizer_of(const TrainingTask& task, const TrainingSettings& settings,
                                        Communicator& communicator) {
  auto parameters = named_parameters(*task.model);
  if (task.optimizer) {
    if (settings.shard_optimizer) {
      throw Error("training.shard_optimizer", "shares out Adam's state, and this task has an optimizer of its own",
                  "leave it off");
    }
    auto own = task.optimizer(std::move(parameters));
    if (!own) throw std::invalid_argument("Trainer: the task's optimizer is a null pointer");
    return own;
  }
  const Adam::Options options{
      .beta1 = settings.adam_beta1, .beta2 = settings.adam_beta2, .epsilon = settings.adam_epsilon};
  if (!settings.shard_optimizer || communicator.world_size() == 1) {
    return std::make_unique<Adam>(std::move(parameters), options);
  }
  return std::make_unique<ShardedAdam>(communicator, std::move(parameters), options, settings.bucket_mb);
}

/// A model in evaluation mode, with its averaged weights where there are any, as long as this lives: whatever a
/// program's own hook throws, it has its model back.
class Judged {
 public:
  Judged(const torch::nn::Module& model, MovingAverage* average) : evaluating_(model), average_(average) {
    if (average_) average_->swap();
  }
  ~Judged() {
    if (average_) average_->swap();
  }
  Judged(const Judged&) = delete;
  Judged& operator=(const Judged&) = delete;

 private:
  Evaluating evaluating_;
  MovingAverage* average_;
};

// While it lives, operations give the same bits every time, or throw, where that is asked for.
class Deterministic {
 public:
  explicit Deterministic(bool on)
      : before_(context_.deterministicAlgorithms()),
        only_warned_(context_.deterministicAlgorithmsWarnOnly()),
        filled_(context_.deterministicFillUninitializedMemory()) {
    if (!on) return;
    context_.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context_.setDeterministicFillUninitializedMemory(false);  // for who reads what was never written
  }
  ~Deterministic() {
    context_.setDeterministicAlgorithms(before_, only_warned_);
    context_.setDeterministicFillUninitializedMemory(filled_);
  }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;

 private:
  at::Context& context_ = at::globalContext();
  bool before_, only_warned_, filled_;
};

const char* name_of_products(const TrainingSettings& settings, const torch::Device& device) {
  return uses_bf16(settings, device) ? "bf16" : "float32";
}

// What all ranks must have alike; where each computes is its own matter, but not what it rounds factors to.
std::string shared_part(TrainingSettings settings, const TrainerHooks& hooks, const torch::Device& device,
                        int64_t step) {
  auto text = fmt::format("from step {}\n{} validation\nproducts in {}\n", step, hooks.validate ? "with" : "without",
                          name_of_products(settings, device));
  Settings described;
  described.section("training", settings, "");
  for (const auto& [name, value] : described.values()) {
    if (!says_where(name)) text += fmt::format("{}: {}\n", name, value);
  }
  return text;
}

// What decides how much memory a token takes, and may change in a run.
std::string costs_of(const TrainingSettings& settings, const torch::Device& device, int world_size) {
  return fmt::format("products in {}, R-Drop {}, quantization {}, recompute {}, subword_sampling {:g}, moments over {}",
                     name_of_products(settings, device), settings.rdrop > 0,
                     settings.quantization == TrainingSettings::Quantization::int8, settings.recompute,
                     settings.subword_sampling, settings.shard_optimizer ? world_size : 1);
}

const char* name_of(TrainingSettings::Criterion criterion) {
  return criterion == TrainingSettings::Criterion::bleu ? "bleu" : "perplexity";
}

}  // namespace

Trainer::Trainer(Communicator& communicator, TrainingTask task, const TrainingSettings& settings,
                 std::filesystem::path run, ModelFiles files, TrainerHooks hooks)
    : communicator_(communicator),
      task_(checked(std::move(task))),
      settings_(checked(settings)),
      run_(std::move(run)),
      files_(std::move(files)),
      hooks_(std::move(hooks)),
      device_(moved(*task_.model, settings)),
      transfer_(device_),
      // After the move: moving gives a module new parameters on some devices.
      optimizer_(optimizer_of(task_, settings, communicator)) {
  std::error_code ignored;  // claim_folder says what is wrong with it
  if (communicator_.rank() == 0 && std::filesystem::is_directory(run_, ignored)) claimed_.emplace(run_);
  if (device_.is_cuda()) communicator_.check_distinct("device '" + settings.device + "'", gpu_identity(device_));
  if (device_.is_cuda() && uses_bf16(settings_, device_) && communicator_.rank() == 0) {
    if (const auto missing = missing_gpu_kernels(device_); !missing.empty()) {
      hooks_.log.warn(fmt::format(
          "layers and loss are LibTorch's operators alone, which takes longer: own kernels find no {}", missing));
    }
  }
  if (settings_.moving_average > 0) average_.emplace(named_parameters(*task_.model), settings_.moving_average);
  progress_.products = name_of_products(settings_, device_);
  progress_.judged_by = hooks_.judged_by;
}

TrainingState Trainer::state() {
  return {.model = *task_.model,
          .optimizer = *optimizer_,
          .average = average_ ? &*average_ : nullptr,
          .progress = progress_,
          .files = &files_};
}

BatchPosition Trainer::position() const {
  return {.epoch = progress_.epoch,
          .batch = progress_.batch,
          .tokens = progress_.batch_tokens,
          .state = progress_.batch_state};
}

std::filesystem::path Trainer::resume() {
  std::filesystem::path checkpoint;
  auto chosen = at::zeros({2}, at::kLong);  // its step, and whether it is a scheduled one: a step may have both kinds
  // Rank 0 sets damaged checkpoints aside; then the others read what it read.
  communicator_.on_rank_0([&] {
    if (claimed_) claimed_->check();
    checkpoint = load_newest_checkpoint(run_, state(), hooks_.log);
    const auto scheduled = list_checkpoints(run_);
    chosen[0] = progress_.step;
    chosen[1] = std::find(scheduled.begin(), scheduled.end(), checkpoint) != scheduled.end();
  });
  communicator_.broadcast({chosen});
  const auto step = chosen[0].item<int64_t>();
  const bool scheduled = chosen[1].item<int64_t>() != 0;
  if (communicator_.rank() != 0) {
    for (const auto& found : scheduled ? list_checkpoints(run_) : resumable_checkpoints(run_)) {
      if (checkpoint_step(found) == step) checkpoint = found;
    }
  }
  const auto checksums = checkpoint / checksums_name;
  std::string listed;
  read_kept([&] {
    if (!checkpoint.empty() && something_at(checksums)) listed = read_file(checksums);
  });
  communicator_.check_shared((run_ / checkpoints_name).string(),
                             fmt::format("the checkpoint of step {} that rank 0 goes on from", step), listed);
  if (communicator_.rank() != 0) read_kept([&] { load_checkpoint(checkpoint, state()); });
  if (progress_.process_seconds == 0) {  // earlier versions did not count them
    progress_.process_seconds = progress_.seconds * communicator_.world_size();
  }
  last_checkpoint_step_ = progress_.step;
  last_checkpoint_kind_ = scheduled ? CheckpointKind::scheduled : CheckpointKind::interruption;
  if (const int64_t end = std::exchange(progress_.of_the_end, 0); end > 0) {
    of_the_end_ = end == 1 ? progress_.step : end;  // earlier versions say no more than that it was one
  }
  const std::string products = name_of_products(settings_, device_);
  const auto before = std::exchange(progress_.products, products);
  if (settings_.precision == TrainingSettings::Precision::automatic && !before.empty() && before != products &&
      communicator_.rank() == 0) {
    hooks_.log.warn(
        fmt::format("training.precision: auto is {} on this machine, and was {} where the run comes from: "
                    "it ends with other weights than there",
                    products, before));
  }
  // Of a checkpoint before the first step an average wants nothing; where no step is left, the best stay what they are.
  if (progress_.step == 0) of_the_end_ = 0;
  if (hooks_.judged_by.empty() || progress_.step >= settings_.steps) return checkpoint;
  const auto judged_by = std::exchange(progress_.judged_by, hooks_.judged_by);
  if (!judged_by.empty() && judged_by != hooks_.judged_by && !progress_.best.empty()) {
    if (communicator_.rank() == 0) {
      hooks_.log.info("validations are of another text from here on, or translate otherwise: the best begins anew");
    }
    progress_.best.clear();
    progress_.validations_since_best = 0;
  }
  return checkpoint;
}

Metrics& Trainer::metrics() {
  if (claimed_) claimed_->check();
  if (!metrics_) metrics_.emplace(run_, progress_.metrics_bytes, progress_.step + 1);
  return *metrics_;
}

double Trainer::elapsed() const {
  return seconds_before_ + now() - started_;
}

void Trainer::note_time() {
  progress_.seconds = elapsed();
  progress_.process_seconds =
      process_seconds_before_ + (progress_.seconds - seconds_before_) * communicator_.world_size();
}

int64_t Trainer::tokens_at_once() const {
  if (settings_.micro_batch == TrainingSettings::MicroBatch::automatic) return progress_.micro_batch_tokens;
  return settings_.tokens_at_once(communicator_.world_size());
}

int64_t Trainer::micro_batches() const {
  return std::max<int64_t>(1, settings_.batch_tokens / tokens_at_once());
}

void Trainer::claim_folder() {
  communicator_.check_same("training", shared_part(settings_, hooks_, device_, progress_.step));
  communicator_.on_rank_0([&] {
    if (claimed_) {
      claimed_->check();
    } else {
      std::error_code error;
      std::filesystem::create_directories(run_, error);
      if (error) throw_refused(run_, "cannot create the folder", error);
      claimed_.emplace(run_);
    }
    if (!lock_) lock_.emplace(run_, FileLock::Wait::no);
    if (lock_->error_number() == EWOULDBLOCK) {
      throw Error(run_.string(), "another run is working in this folder",
                  "wait for it, stop it, or name another folder");
    }
    if (last_checkpoint_step_ < 0 && !resumable_checkpoints(run_).empty()) {
      throw Error(run_.string(), "holds the checkpoints of a run already",
                  "go on with it by resume(), or name another folder");
    }
    metrics();  // whether they can be written is found out before there is anything to lose
  });
}

void Trainer::find_micro_batch() {
  if (settings_.micro_batch != TrainingSettings::MicroBatch::automatic) return;
  const auto largest = task_.batches->largest();
  if (!largest) {
    throw Error("training.micro_batch", "is auto, and this source of batches does not say how large they get",
                "set training.micro_batch_tokens");
  }
  const int64_t length = largest->longest;
  if (length > settings_.batch_tokens) throw batch_is_too_small(settings_.batch_tokens, length);
  const int world_size = communicator_.world_size();
  auto sizes = micro_batch_sizes(settings_.batch_tokens, world_size, length);
  const auto costs = costs_of(settings_, device_, world_size);
  const auto costs_before = std::exchange(progress_.micro_batch_costs, costs);
  // A run keeps the size it began with, since another would group its sentences otherwise, while training.batch_tokens
  // is a whole number of such micro-batches and every process has one. Where its tokens take other memory since, a
  // smaller one follows if it does not fit.
  if (const int64_t begun_with = progress_.micro_batch_tokens; begun_with >= length && begun_with <= sizes.front()) {
    const auto divides = [&] { return settings_.batch_tokens / (settings_.batch_tokens / begun_with) == begun_with; };
    if (begun_with == length || divides()) {
      if (costs_before.empty() || costs_before == costs) return;
      std::erase_if(sizes, [&](int64_t size) { return size >= begun_with; });
      sizes.insert(sizes.begin(), begun_with);
    }
  }
  // NCCL takes memory of its own with its first sum, which the passes must not find free.
  communicator_.all_reduce_sum(at::zeros({1}, at::device(device_)));
  int64_t weight_bytes = 0;
  for (const auto& parameter : task_.model->parameters()) weight_bytes += static_cast<int64_t>(parameter.nbytes());
  const KeepLayers all_layers;
  MemoryProbe probe({.device = device_,
                     .processes_here = communicator_.local_world_size(),
                     .reserved_bytes = world_size > 1 ? weight_bytes : 0,  // of gradients in buckets
                     .smallest_tokens = (largest->worth_measuring + length - 1) / length * length,
                     .pass = [&](int64_t tokens) {
                       auto sent = transfer_.begin(largest->make(tokens));
                       forward(sent).loss.backward();
                     }});
  size_t chosen = 0;
  const auto most = [&](int64_t tokens) { return largest->most ? largest->most(tokens) : tokens; };
  while (chosen < sizes.size() && !probe.fits(most(sizes[chosen]))) ++chosen;
  if (device_.is_cuda()) c10::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
  optimizer_->clear_gradients();
  const auto all = at::zeros({world_size}, at::kLong);
  all[communicator_.rank()] = static_cast<int64_t>(chosen);
  communicator_.all_reduce_sum(all);
  const auto agreed = static_cast<size_t>(all.max().item<int64_t>());
  if (agreed == sizes.size()) {
    throw Failure("training.micro_batch",
                  fmt::format("out of memory: not even one sentence pair of {} word pieces can be trained on", length),
                  "lower data.max_length, or make the model smaller");
  }
  progress_.micro_batch_tokens = sizes[agreed];
  if (communicator_.rank() == 0) {
    hooks_.log.info(fmt::format("micro-batches of {} tokens fit into memory: {} a step", progress_.micro_batch_tokens,
                                micro_batches()));
  }
}

void Trainer::check_room_for_pairs() const {
  const int64_t tokens = tokens_at_once();
  const auto largest = task_.batches->largest();
  if (!largest || largest->longest <= tokens) return;
  const auto lower = "lower data.max_length";
  if (settings_.micro_batch_tokens > 0) {
    // The least that leaves parts of so many.
    const int64_t parts = std::max<int64_t>(1, settings_.batch_tokens / largest->longest);
    const int64_t enough = std::max(largest->longest, (settings_.batch_tokens + parts - 1) / parts);
    throw Error("training.micro_batch_tokens",
                fmt::format("{} makes equal parts of {} tokens, fewer than the {} of the longest sentence pair",
                            settings_.micro_batch_tokens, tokens, largest->longest),
                fmt::format("raise it to {}, or {}", enough, lower));
  }
  const int processes = communicator_.world_size();
  if (processes == 1) throw batch_is_too_small(tokens, largest->longest);
  throw Error(
      "training.batch_tokens",
      fmt::format("each of {} processes has a part of {} tokens, fewer than the {} of the longest sentence pair",
                  processes, tokens, largest->longest),
      fmt::format("raise it to {}, set training.micro_batch_tokens, or {}", largest->longest * processes, lower));
}

BatchSource::Plan Trainer::plan() const {
  return {.tokens = tokens_at_once(),
          .count = micro_batches(),
          .rank = communicator_.rank(),
          .ranks = communicator_.world_size(),
          .seed = settings_.seed};
}

Trainer::Drawn Trainer::draw() {
  const auto shared_out = plan();
  Drawn drawn;
  drawn.position = position();
  for (int64_t number = 0; number < shared_out.count; ++number) {
    const auto batch = task_.batches->next(number, drawn.position);
    if (!shared_out.mine(number) || batch.tensors.empty()) continue;
    drawn.items += batch.items;
    drawn.source_tokens += batch.source_tokens;
    drawn.target_tokens += batch.target_tokens;
    drawn.flops += batch.flops;
    drawn.mine.push_back({number, transfer_.begin(batch)});
  }
  return drawn;
}

Trainer::Wishes Trainer::wishes() const {
  return {.end = settings_.max_minutes > 0 && elapsed() >= settings_.max_minutes * 60,
          .stop = hooks_.stop && *hooks_.stop,
          .checkpoint = progress_.step > 0 && clock_asks()};
}

bool Trainer::clock_asks() const {
  return settings_.checkpoint_minutes > 0 && now() - last_checkpoint_ > settings_.checkpoint_minutes * 60;
}

void Trainer::agree(Drawn& drawn, Wishes& wishes) {
  drawn.rate = task_.schedule(progress_.step + 1);
  if (communicator_.world_size() == 1) return;
  // Counts are exact in float64 up to 2^53. The host's own tensor: a GPU goes on computing meanwhile.
  const auto sums =
      at::tensor({static_cast<double>(drawn.items), static_cast<double>(drawn.source_tokens),
                  static_cast<double>(drawn.target_tokens), drawn.flops, wishes.end ? 1.0 : 0.0,
                  wishes.stop ? 1.0 : 0.0, wishes.checkpoint ? 1.0 : 0.0, communicator_.rank() == 0 ? drawn.rate : 0.0},
                 at::kDouble);
  communicator_.all_reduce_sum(sums);
  const auto* sum = sums.const_data_ptr<double>();
  drawn.items = static_cast<int64_t>(sum[0]);
  drawn.source_tokens = static_cast<int64_t>(sum[1]);
  drawn.target_tokens = static_cast<int64_t>(sum[2]);
  drawn.flops = sum[3];
  drawn.rate = sum[7];
  wishes = {.end = sum[4] > 0, .stop = sum[5] > 0, .checkpoint = sum[6] > 0};
}

void Trainer::check(const Drawn& drawn) const {
  const auto where = fmt::format("step {}", progress_.step + 1);
  if (drawn.items <= 0) {
    throw Failure(where, "its batches have no items",
                  "a source of batches begins anew where its text ends, and says how many items each batch has");
  }
  if (!std::isfinite(drawn.flops)) throw Failure(where, "its batches' flops are no number", "leave them 0");
  if (!std::isfinite(drawn.rate)) {
    throw Failure(where, fmt::format("the schedule's rate is {}", drawn.rate), "a rate is a finite number");
  }
}

LossSums Trainer::forward(DeviceBatch& batch) {
  transfer_.finish(batch);
  std::optional<Autocast> autocast;
  if (uses_bf16(settings_, device_)) autocast.emplace(device_, Autocast::State{.enabled = true}, /*cached=*/true);
  auto losses = task_.loss(batch);
  has_likelihood_ = losses.negative_log_likelihood.defined();
  if (!losses.loss.defined() || losses.loss.dim() > 0 ||
      (has_likelihood_ && losses.negative_log_likelihood.dim() > 0)) {
    throw std::invalid_argument("Trainer: a task's loss is a sum over the batch, one number");
  }
  // What still had its graph would keep those of all steps.
  losses.negative_log_likelihood =
      has_likelihood_ ? losses.negative_log_likelihood.detach() : at::zeros_like(losses.loss.detach());
  return losses;
}

Trainer::StepSums Trainer::accumulate_gradients(Drawn& drawn) {
  auto& mine = drawn.mine;
  StepSums sums;
  sums.items = drawn.items;
  optimizer_->clear_gradients();
  sums.figures = at::zeros({3}, at::device(device_).dtype(at::kDouble));
  const auto step = static_cast<uint64_t>(progress_.step);
  for (auto& [number, batch] : mine) {
    // Dropout then depends on what is computed, not on what was computed before, or where.
    at::manual_seed(Random(settings_.seed, step, static_cast<uint64_t>(number)).next());
    const auto losses = forward(batch);
    {
      const ProfiledRange range("backward");
      // The gradient of the mean over all items of the step, however they are split.
      const auto mean = losses.loss / static_cast<double>(std::max<int64_t>(1, sums.items));
      if (number == mine.back().number) {
        parallel_->backward(mean);
      } else {
        parallel_->accumulate(mean);
      }
    }
    sums.figures.narrow(0, 0, 2) += at::stack({losses.loss.detach(), losses.negative_log_likelihood});
  }
  if (mine.empty()) {
    parallel_->backward();
  } else {
    last_batch_ = std::move(mine.back().batch);
  }
  return sums;
}

std::string Trainer::last_checkpoint_text() const {
  if (last_checkpoint_step_ < 0) return "there is no checkpoint yet";
  return fmt::format("the checkpoint of step {} in {} is intact", last_checkpoint_step_,
                     (run_ / checkpoints_name).string());
}

Trainer::StepSums Trainer::step(Drawn& drawn) {
  const auto where = fmt::format("step {}", progress_.step + 1);
  StepSums sums;
  try {
    sums = accumulate_gradients(drawn);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    const bool found_out = settings_.micro_batch == TrainingSettings::MicroBatch::automatic;
    throw Failure(where, "out of memory",
                  fmt::format("{}; {} (now {}): a step then takes more passes and less memory, with the same gradient",
                              last_checkpoint_text(),
                              found_out ? "set training.micro_batch to fixed and a lower training.micro_batch_tokens"
                                        : "lower training.micro_batch_tokens",
                              tokens_at_once()));
  }
  // All ranks hold the same gradients; where their processors add in another order, rank 0's norm counts.
  if (communicator_.rank() == 0) sums.figures[2].copy_(optimizer_->gradient_norm());
  communicator_.all_reduce_sum(sums.figures);
  progress_.epoch = drawn.position.epoch;
  progress_.batch = drawn.position.batch;
  progress_.batch_tokens = drawn.position.tokens;
  progress_.batch_state = drawn.position.state;
  progress_.source_tokens += drawn.source_tokens;
  progress_.target_tokens += drawn.target_tokens;
  progress_.flops += drawn.flops;
  if (settings_.clip_norm > 0) optimizer_->clip(settings_.clip_norm, sums.norm());
  return sums;
}

void Trainer::begin_window() {
  window_.zero_();
  progress_.window_loss = progress_.window_nll = 0;
  progress_.window_gradient_norm = progress_.window_largest_norm = 0;
  progress_.window_tokens = progress_.window_steps = 0;
}

void Trainer::add_to_window(const StepSums& sums) {
  window_.narrow(0, 0, 3) += sums.figures;
  window_[3].copy_(at::maximum(window_[3], sums.figures[2]));  // not a number where either is none
  progress_.window_tokens += sums.items;
  ++progress_.window_steps;
}

void Trainer::fetch_window() {
  const auto window = window_.cpu();
  const auto* figures = window.const_data_ptr<double>();
  progress_.window_loss = figures[0];
  progress_.window_nll = figures[1];
  progress_.window_gradient_norm = figures[2];
  progress_.window_largest_norm = figures[3];
  if (!std::isfinite(progress_.window_loss)) diverged("the loss is not finite");
  if (!std::isfinite(progress_.window_gradient_norm)) diverged("the gradient's norm is not finite");
  const double nats = progress_.window_nll / static_cast<double>(std::max<int64_t>(1, progress_.window_tokens));
  if (!std::isfinite(std::exp(nats))) diverged(fmt::format("the perplexity is not finite ({:.3g} nats an item)", nats));
  fetched_step_ = progress_.step;
}

void Trainer::diverged(const std::string& what) const {
  const auto where = progress_.step <= fetched_step_ + 1
                         ? fmt::format("step {}", progress_.step)
                         : fmt::format("steps {} to {}", fetched_step_ + 1, progress_.step);
  const auto again = last_checkpoint_step_ < 0 ? "begin anew with --restart and"
                                               : fmt::format("go on from it with --from {} and", last_checkpoint_step_);
  throw Failure(
      where, what,
      fmt::format("{}; {} a lower rate (--set training.rate_factor={:g}), a longer training.warmup_steps or a "
                  "training.clip_norm",
                  last_checkpoint_text(), again, settings_.rate_factor / 2));
}

void Trainer::check_finite(const Validation& validation, const std::string& whose) const {
  if (!std::isfinite(validation.perplexity)) diverged(fmt::format("the perplexity of {} is not finite", whose));
  if (validation.bleu && !std::isfinite(*validation.bleu)) diverged(fmt::format("the BLEU of {} is not finite", whose));
}

std::string Trainer::damage() {
  const auto check = [](const char* what, const TensorMap& tensors) -> std::string {
    for (const auto& [name, tensor] : tensors) {
      if (!all_finite(tensor)) return fmt::format("the {} '{}' is not finite", what, name);
    }
    return "";
  };
  auto found = check("weight", weights_of(*task_.model));
  if (found.empty()) found = check("optimizer's", optimizer_->state());
  if (found.empty() && average_) found = check("moving average of", average_->values());
  if (!found.empty() || !last_batch_) return found;
  // The last update may have made weights that are finite, and nothing that follows from them. Dropout is off, so
  // nothing random is drawn.
  at::NoGradGuard no_grad;
  const Judged judged(*task_.model, nullptr);
  const auto losses = forward(*last_batch_);
  const auto loss = losses.loss.item<double>(), nll = losses.negative_log_likelihood.item<double>();
  const auto tokens = static_cast<double>(std::max<int64_t>(1, last_batch_->items));
  return std::isfinite(loss) && std::isfinite(std::exp(nll / tokens)) ? "" : "the weights after it give no finite loss";
}

void Trainer::log_progress(double rate, double interval_seconds, int64_t interval_tokens) {
  if (communicator_.rank() != 0) return;
  const double tokens = std::max<double>(1, progress_.window_tokens);
  const double loss = progress_.window_loss / tokens, perplexity = std::exp(progress_.window_nll / tokens);
  const double speed = interval_seconds > 0 ? interval_tokens / interval_seconds : 0;
  double left = (settings_.steps - progress_.step) * elapsed() / progress_.step;
  if (settings_.max_minutes > 0) left = std::min(left, settings_.max_minutes * 60 - elapsed());
  std::string perplexity_text;
  if (has_likelihood_) perplexity_text = fmt::format(" | perplexity {:8.2f}", perplexity);
  hooks_.log.info(fmt::format("step {:>6} | epoch {} | loss {:.3f}{} | rate {:.2e} | {:.0f} tokens/s | {} left",
                              progress_.step, progress_.epoch + 1, loss, perplexity_text, rate, speed,
                              clock_text(left)));
  figures_ = fmt::format("loss {:.3f}, {:.0f} tokens/s", loss, speed);
  const double mean_norm = progress_.window_gradient_norm / static_cast<double>(progress_.window_steps);
  Metrics::Values values{{"epoch", progress_.epoch}, {"loss", loss}};
  if (has_likelihood_) values.emplace_back("perplexity", perplexity);
  for (auto& value : Metrics::Values{{"gradient_norm", mean_norm},
                                     {"largest_gradient_norm", progress_.window_largest_norm},
                                     {"rate", rate},
                                     {"source_tokens", progress_.source_tokens},
                                     {"target_tokens", progress_.target_tokens},
                                     {"tokens_per_second", speed},
                                     {"memory", resident_bytes()},
                                     {"seconds", elapsed()}}) {
    values.push_back(std::move(value));
  }
  if (device_.is_cuda()) {
    auto& allocator = *c10::getDeviceAllocator(device_.type());
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    values.emplace_back("device_memory_peak", allocator.getDeviceStats(device_.index()).reserved_bytes[all].peak);
  }
  metrics().record("train", progress_.step, values);
  if (!hooks_.progressed) return;
  hooks_.progressed({.step = progress_.step,
                     .epoch = progress_.epoch,
                     .loss = loss,
                     .perplexity = has_likelihood_ ? std::optional(perplexity) : std::nullopt,
                     .gradient_norm = mean_norm,
                     .rate = rate,
                     .tokens_per_second = speed});
}

void Trainer::show_progress(const std::string& detail) const {
  if (communicator_.rank() != 0 || !hooks_.log.shows_progress()) return;
  double share = static_cast<double>(progress_.step) / static_cast<double>(settings_.steps);
  if (settings_.max_minutes > 0) share = std::max(share, elapsed() / (settings_.max_minutes * 60));
  hooks_.log.progress({.what = "training",
                       .done = progress_.step,
                       .total = settings_.steps,
                       .unit = "steps",
                       .share = std::min(share, 1.0),
                       .detail = detail});
}

bool Trainer::validate() {
  progress_.validation_due = 0;
  if (!hooks_.validate) return false;
  fetch_window();
  const double before = now();
  show_progress("validating");
  const auto validation = [&] {
    const Judged judged(*task_.model, average_ ? &*average_ : nullptr);
    return hooks_.validate(*task_.model, progress_.step);
  }();
  if (validation.abandoned) {
    progress_.validation_due = 1;
    return false;
  }
  bool among_best = false;
  communicator_.on_rank_0([&] { among_best = rank_validation(validation, now() - before); });
  const auto found = at::tensor({int64_t{among_best}, progress_.validations_since_best}, at::kLong);
  communicator_.broadcast({found});
  progress_.validations_since_best = found[1].item<int64_t>();
  return found[0].item<int64_t>() != 0;
}

bool Trainer::rank_validation(const Validation& validation, double seconds) {
  check_finite(validation, "the validation text");

  const bool by_bleu = settings_.best_by == TrainingSettings::Criterion::bleu;
  const BestValidation found{progress_.step, by_bleu ? validation.bleu.value_or(0) : validation.perplexity};
  auto& best = progress_.best;
  const auto place = std::find_if(best.begin(), best.end(), [&](const BestValidation& other) {
    return by_bleu ? found.value > other.value : found.value < other.value;
  });
  const bool is_best = place == best.begin();
  best.insert(place, found);
  // Places are those of checkpoints: what was found while none was kept, or is gone since, takes none. The first stays,
  // which others are compared with.
  std::set<int64_t> there{progress_.step};
  for (const auto& checkpoint : list_checkpoints(run_)) there.insert(checkpoint_step(checkpoint));
  const int64_t first = best.front().step;
  int64_t places = settings_.keep_best;
  bool among_best = false;
  std::erase_if(best, [&](const BestValidation& each) {
    if (places == 0 || !there.contains(each.step)) return each.step != first;
    --places;
    among_best = among_best || each.step == progress_.step;
    return false;
  });
  progress_.validations_since_best = is_best ? 0 : progress_.validations_since_best + 1;

  const auto waiting = settings_.patience > 0 && !is_best
                           ? fmt::format(", {} of {} validations without a new best", progress_.validations_since_best,
                                         settings_.patience)
                           : "";
  hooks_.log.info(fmt::format("validation at step {}: {}{}{} ({:.0f} s)", progress_.step, text_of(validation),
                              is_best ? ", best so far" : "", waiting, seconds));
  record("validation", validation);
  return among_best;
}

void Trainer::record_final(const Validation& validation) {
  if (communicator_.rank() != 0) return;
  check_finite(validation, "the final model");
  hooks_.log.info(fmt::format("final model: {}", text_of(validation)));
  record("final", validation);
}

void Trainer::record(const char* kind, const Validation& validation) {
  Metrics::Values values{{"loss", validation.loss}, {"perplexity", validation.perplexity}};
  if (validation.bleu) {
    values.emplace_back("bleu", *validation.bleu);
    values.emplace_back("bleu_signature", validation.signature);
  }
  if (!progress_.best.empty()) {
    values.emplace_back(fmt::format("best_{}", name_of(settings_.best_by)), progress_.best.front().value);
    values.emplace_back("best_step", progress_.best.front().step);
  }
  values.emplace_back("seconds", elapsed());
  metrics().record(kind, progress_.step, values);
}

void Trainer::checkpoint(CheckpointKind kind, bool for_validation) {
  if (last_checkpoint_step_ == progress_.step &&
      (kind == CheckpointKind::interruption || last_checkpoint_kind_ == CheckpointKind::scheduled)) {
    return;
  }
  fetch_window();
  // One rank alone may see it: of its own micro-batches, or of moments that are shared out.
  for (const auto& found : communicator_.gather(damage())) {
    if (!found.empty()) diverged(found);
  }
  const bool counts = !for_validation || communicator_.any(clock_asks());
  const auto gathered = optimizer_->gather_state();
  communicator_.on_rank_0([&] {
    note_time();
    progress_.for_validation = counts ? 0 : 1;
    metrics().sync();
    progress_.metrics_bytes = metrics().bytes();
    auto kept = state();
    kept.gathered = &gathered;
    // An interruption changes nothing about scheduled ones, nor about the one before it: it may be of a run that was
    // begun by mistake.
    const bool scheduled = kind == CheckpointKind::scheduled;
    // A run that had not ended there would not average what it left for its end. Who goes on from the next one does not
    // know of that any more.
    const auto written = write_checkpoint(run_, kept, files_, kind, [&] {
      if (!scheduled || !of_the_end_ || *of_the_end_ == progress_.step) return;
      for (const auto& earlier : list_checkpoints(run_)) {
        if (checkpoint_step(earlier) == *of_the_end_) make_interruption(earlier);
      }
    });
    if (hooks_.checkpointed) hooks_.checkpointed();
    prune(kind);
    hooks_.log.info(fmt::format("checkpoint: {}", written.string()));
  });
  if (kind == CheckpointKind::scheduled) of_the_end_.reset();
  if (counts) last_checkpoint_ = now();
  last_checkpoint_step_ = progress_.step;
  last_checkpoint_kind_ = kind;
}

void Trainer::prune(CheckpointKind kind) const {
  if (communicator_.rank() != 0) return;
  std::set<int64_t> best;
  if (settings_.keep_best > 0) {
    for (const auto& validation : progress_.best) best.insert(validation.step);
  }
  try {
    if (kind == CheckpointKind::scheduled) {
      prune_checkpoints(run_, settings_.keep_checkpoints, best);
    } else {
      prune_interruptions(run_, std::max<int64_t>(2, settings_.keep_checkpoints));
    }
  } catch (const Failure& failure) {  // nothing depends on it
    hooks_.log.warn(fmt::format("older checkpoints stay for now: {}", failure.what()));
  }
}

std::vector<std::filesystem::path> Trainer::final_checkpoints() const {
  auto checkpoints = counted_checkpoints(run_, settings_.average_checkpoints);
  std::reverse(checkpoints.begin(), checkpoints.end());
  if (settings_.average_of == TrainingSettings::Averaged::best && progress_.best.empty()) {
    hooks_.log.warn("training.average_of: no checkpoint has been validated to be the best; the last ones are averaged");
  } else if (settings_.average_of == TrainingSettings::Averaged::best) {
    const auto kept = list_checkpoints(run_);
    std::vector<std::filesystem::path> best;
    for (const auto& validation : progress_.best) {
      const auto found = std::find_if(kept.begin(), kept.end(), [&](const auto& checkpoint) {
        return checkpoint_step(checkpoint) == validation.step;
      });
      if (found != kept.end()) best.push_back(*found);
    }
    // Branched off behind it, or set aside for damage.
    const auto wanted = std::min<size_t>(progress_.best.size(), settings_.average_checkpoints);
    if (best.size() < wanted && !best.empty()) {
      hooks_.log.warn(fmt::format("of the {} best checkpoints that are to be averaged, {} {} left", wanted, best.size(),
                                  best.size() == 1 ? "is" : "are"));
    }
    checkpoints = best;
  }
  checkpoints.resize(std::min<size_t>(checkpoints.size(), settings_.average_checkpoints));
  return checkpoints;
}

bool Trainer::out_of_patience() const {
  return settings_.patience > 0 && progress_.validations_since_best >= settings_.patience;
}

void Trainer::prepare() {
  if (settings_.threads > 0) {
    at::set_num_threads(static_cast<int>(settings_.threads));
  } else if (!given_threads() && group_cores() < at::get_num_threads()) {
    at::set_num_threads(group_cores());  // of a container's share of the processors OpenMP knows nothing
  }
  started_ = last_checkpoint_ = now();
  seconds_before_ = progress_.seconds;
  process_seconds_before_ = progress_.process_seconds;
  task_.model->train();
  if (device_.is_cuda()) {
    at::globalContext().setAllowTF32CuBLAS(settings_.precision == TrainingSettings::Precision::tf32);
  }
  claim_folder();
  find_micro_batch();
  window_ = at::tensor({progress_.window_loss, progress_.window_nll, progress_.window_gradient_norm,
                        progress_.window_largest_norm},
                       at::kDouble)
                .to(device_);
  fetched_step_ = progress_.step;
  check_room_for_pairs();
  if (progress_.batch_tokens > 0 && progress_.batch_tokens != tokens_at_once() && communicator_.rank() == 0) {
    hooks_.log.info(fmt::format("micro-batches of {} tokens, {} before: the epoch goes on at about the same place",
                                tokens_at_once(), progress_.batch_tokens));
  }
  task_.batches->begin(plan());
  parallel_.emplace(communicator_, *task_.model, DistributedDataParallel::Options{.bucket_mb = settings_.bucket_mb});
  // The values are rank 0's since.
  if (average_ && last_checkpoint_step_ < 0) average_->load(weights_of(*task_.model));
}

TrainingSummary Trainer::run(int64_t profile_steps) {
  using End = TrainingSummary::End;
  const Deterministic deterministic(settings_.deterministic);
  prepare();
  double interval_start = now();
  int64_t interval_tokens = 0;
  auto due = [&](int64_t every) { return every > 0 && progress_.step % every == 0; };
  // The first step allocates what later ones use again, so it is no example of them.
  const int64_t profile_from = progress_.step + 1;
  std::optional<Profile> profile;
  const auto finish_profile = [&] {
    claimed_->check();
    profile->stop();
    profile.reset();
    hooks_.log.info(
        fmt::format("trace of {}: {}", counted(progress_.step - profile_from, "step"), (run_ / trace_name).string()));
  };

  // False: told to stop.
  const auto validate_and_keep = [&](bool validates) {
    const bool among_best = validates && validate();
    const bool is_due = due(settings_.checkpoint_every);
    if (is_due || among_best) checkpoint(CheckpointKind::scheduled, /*for_validation=*/!is_due);
    return progress_.validation_due == 0;
  };

  std::optional<End> end;
  if (progress_.validation_due > 0 && !validate_and_keep(true)) end = End::interruption;
  while (!end) {
    show_progress(figures_);
    if (progress_.step >= settings_.steps) end = End::steps;
    if (out_of_patience()) end = End::patience;
    if (end) break;
    // A clock and a signal tell the ranks at different times what they must decide alike.
    auto drawn = draw();
    auto asked = wishes();
    agree(drawn, asked);
    if (asked.end) end = End::time;
    if (asked.stop && !end) end = End::interruption;
    if (end) break;
    if (asked.checkpoint) {
      const double pause = now();
      checkpoint(CheckpointKind::scheduled);
      interval_start += now() - pause;
    }

    const bool profiled = profile_steps > 0 && communicator_.rank() == 0;
    if (profiled && progress_.step == profile_from) profile.emplace(run_ / trace_name, device_).start();
    check(drawn);
    const auto sums = step(drawn);
    ++progress_.step;
    add_to_window(sums);
    interval_tokens += sums.items;
    // A GPU is not waited for in every step, but before its results are written down anywhere.
    if (device_.is_cpu()) fetch_window();
    {
      const ProfiledRange range("optimizer");
      optimizer_->step(drawn.rate, sums.norm());
      if (average_) average_->update(progress_.step);
    }
    if (profile && progress_.step == profile_from + profile_steps) {
      finish_profile();
    }
    if (due(settings_.log_every)) {
      fetch_window();
      log_progress(drawn.rate, now() - interval_start, interval_tokens);
      begin_window();
      interval_start = now();
      interval_tokens = 0;
    }
    const double pause = now();
    // The last step's model is validated as the final one, unless it may be kept as one of the best, or is one of those
    // that a run with more steps would have waited for.
    const bool validates = due(settings_.validate_every) &&
                           (progress_.step < settings_.steps || settings_.keep_best > 0 || settings_.patience > 0);
    if (!validate_and_keep(validates)) end = End::interruption;
    interval_start += now() - pause;
  }
  hooks_.log.progress({});
  if (profile) {
    finish_profile();  // fewer steps than were asked for
  } else if (profile_steps > 0 && communicator_.rank() == 0 && progress_.step <= profile_from) {
    hooks_.log.warn("no trace: it begins with the second step, and there was none");
  }
  progress_.of_the_end = *end == End::interruption ? of_the_end_.value_or(0) : progress_.step;
  checkpoint(*end == End::interruption ? CheckpointKind::interruption : CheckpointKind::scheduled);
  note_time();
  return {.end = *end,
          .steps = progress_.step,
          .source_tokens = progress_.source_tokens,
          .target_tokens = progress_.target_tokens,
          .flops = progress_.flops,
          .seconds = progress_.seconds,
          .process_seconds = progress_.process_seconds};
}

}  // namespace transformer
