#include "transformer/training/trainer.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "transformer/architecture/cost.h"
#include "transformer/base/error.h"
#include "transformer/base/memory.h"
#include "transformer/kernels/processor.h"
#include "transformer/model/device.h"
#include "transformer/model/tensor_memory.h"
#include "transformer/text/random.h"
#include "transformer/training/micro_batch.h"
#include "transformer/training/profile.h"

namespace transformer {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

bool multiplies_bf16_natively(const torch::Device& device) {
  return !device.is_cpu() || processor().avx512_bf16;
}

bool uses_bf16(const TrainingSettings& settings, const torch::Device& device) {
  return settings.precision == TrainingSettings::Precision::bf16 ||
         (settings.precision == TrainingSettings::Precision::automatic && multiplies_bf16_natively(device));
}

// Products in bfloat16 within a scope; casts of weights are kept for the scope's whole length.
class Autocast {
 public:
  Autocast(bool enabled, const torch::Device& device) : type_(device.type()), enabled_(enabled) {
    if (!enabled_) return;
    at::autocast::set_autocast_dtype(type_, at::kBFloat16);
    at::autocast::set_autocast_enabled(type_, true);
  }
  ~Autocast() {
    if (!enabled_) return;
    at::autocast::set_autocast_enabled(type_, false);
    at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType type_;
  bool enabled_;
};

std::vector<std::pair<std::string, torch::Tensor>> named_parameters(const Transformer& model) {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  for (const auto& item : model->named_parameters()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

std::string text_of(const Validation& validation) {
  return fmt::format("perplexity {:.2f}{}", validation.perplexity,
                     validation.bleu ? fmt::format(", BLEU {:.2f} ({})", *validation.bleu, validation.signature) : "");
}

torch::Device moved(Transformer& model, const std::string& name) {
  const auto device = open_device(name);
  model->to(device);
  return device;
}

const char* name_of(TrainingSettings::Criterion criterion) {
  return criterion == TrainingSettings::Criterion::bleu ? "bleu" : "perplexity";
}

}  // namespace

Trainer::Trainer(Communicator& communicator, Transformer model, TrainingText text, const TrainingSettings& settings,
                 std::filesystem::path run, ModelFiles files, TrainerHooks hooks)
    : communicator_(communicator),
      model_(std::move(model)),
      text_(std::move(text)),
      settings_(settings),
      run_(std::move(run)),
      files_(std::move(files)),
      hooks_(std::move(hooks)),
      device_(moved(model_, settings.device)),
      transfer_(device_),
      // After the move: moving gives a module new parameters on some devices.
      adam_(named_parameters(model_),
            {.beta1 = settings.adam_beta1, .beta2 = settings.adam_beta2, .epsilon = settings.adam_epsilon}) {
  settings_.check();
  if (settings_.moving_average > 0) average_.emplace(named_parameters(model_), settings_.moving_average);
}

TrainingState Trainer::state() {
  return {.model = model_, .adam = adam_, .average = average_ ? &*average_ : nullptr, .progress = progress_};
}

std::filesystem::path Trainer::resume() {
  std::filesystem::path checkpoint;
  // Rank 0 sets damaged checkpoints aside; then the others read what it read.
  communicator_.on_rank_0([&] { checkpoint = load_newest_checkpoint(run_, state()); });
  auto step = at::full({}, progress_.step, at::kLong);
  communicator_.broadcast({step});
  if (communicator_.rank() != 0) {
    for (const auto& found : resumable_checkpoints(run_)) {
      if (checkpoint_step(found) == step.item<int64_t>()) checkpoint = found;
    }
    load_checkpoint(checkpoint, state());
  }
  seconds_before_ = progress_.seconds;
  last_checkpoint_step_ = progress_.step;
  const auto scheduled = list_checkpoints(run_);
  const bool is_scheduled = std::find(scheduled.begin(), scheduled.end(), checkpoint) != scheduled.end();
  last_checkpoint_kind_ = is_scheduled ? CheckpointKind::scheduled : CheckpointKind::interruption;
  return checkpoint;
}

Metrics& Trainer::metrics() {
  if (!metrics_) metrics_.emplace(run_, progress_.metrics_bytes, progress_.step + 1);
  return *metrics_;
}

double Trainer::elapsed() const {
  return seconds_before_ + now() - started_;
}

int64_t Trainer::tokens_at_once() const {
  if (settings_.micro_batch == TrainingSettings::MicroBatch::automatic) return progress_.micro_batch_tokens;
  return settings_.tokens_at_once(communicator_.world_size());
}

int64_t Trainer::micro_batches() const {
  return std::max<int64_t>(1, settings_.batch_tokens / tokens_at_once());
}

void Trainer::find_micro_batch() {
  // A run keeps the size it began with: another would group its sentences otherwise.
  if (settings_.micro_batch != TrainingSettings::MicroBatch::automatic || progress_.micro_batch_tokens > 0) return;
  const int64_t length = text_.corpus.longest() + 1;  // with the end token
  const int world_size = communicator_.world_size();
  int64_t weight_bytes = 0;
  for (const auto& parameter : model_->parameters()) weight_bytes += static_cast<int64_t>(parameter.nbytes());
  // The loss's buffers grow up to 512 tokens, or more where the vocabulary is small.
  const int64_t measurable = std::max<int64_t>(512, (int64_t{1} << 22) / model_->settings().target_vocabulary_size);
  MemoryProbe probe({.device = device_,
                     .processes_here = communicator_.local_world_size(),
                     .reserved_bytes = world_size > 1 ? weight_bytes : 0,  // of gradients in buckets
                     .smallest_tokens = (measurable + length - 1) / length * length,
                     .pass = [&](int64_t tokens) {
                       const int64_t rows = std::max<int64_t>(1, tokens / length);
                       Batch batch;
                       batch.source = batch.target_input = batch.target_output = IdMatrix(rows, length, 4);
                       batch.target_tokens = rows * length;
                       auto sent = transfer_.begin(batch);
                       forward(sent).loss.backward();
                     }});
  const auto sizes = micro_batch_sizes(settings_.batch_tokens, world_size, length);
  size_t chosen = 0;
  while (chosen < sizes.size() && !probe.fits(sizes[chosen])) ++chosen;
  adam_.clear_gradients();
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
    spdlog::info("micro-batches of {} tokens fit into memory: {} a step", progress_.micro_batch_tokens,
                 micro_batches());
  }
}

Batch Trainer::next_micro_batch(int64_t number) {
  Batch batch;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!batches_) {
      batches_.emplace(text_.corpus,
                       Batches::Options{.batch_tokens = tokens_at_once(),
                                        .seed = settings_.seed,
                                        .weights = text_.weights,
                                        .share = communicator_.rank(),
                                        .shares = communicator_.world_size(),
                                        .step = micro_batches(),
                                        .taken = number,
                                        .sampling = {text_.vocabularies, settings_.subword_sampling}},
                       progress_.epoch, progress_.batch);
    }
    if (batches_->next(batch)) {
      ++progress_.batch;
      return batch;
    }
    batches_.reset();
    ++progress_.epoch;
    progress_.batch = 0;
  }
  throw Error("data.train_source", "there is no sentence pair to train on");
}

LossSums Trainer::forward(DeviceBatch& batch) {
  transfer_.finish(batch);
  const bool bf16 = uses_bf16(settings_, device_);
  Autocast autocast(bf16, device_);
  torch::Tensor hidden;
  {
    const ProfiledRange range("forward");
    hidden = model_->decode(batch.target_input, model_->encode(batch.source)).values;
  }
  const ProfiledRange range("loss");
  return projected_label_smoothing_loss(hidden, model_->projection_weight(), batch.target_output,
                                        settings_.label_smoothing, TransformerImpl::padding_id,
                                        bf16 ? at::kBFloat16 : hidden.scalar_type(), batch.target_tokens,
                                        model_->projection_bias());
}

Trainer::StepSums Trainer::accumulate_gradients() {
  struct Mine {
    int64_t number;
    DeviceBatch batch;
  };
  std::vector<Mine> mine;
  StepSums sums;
  for (int64_t i = 0; i < micro_batches(); ++i) {
    auto batch = next_micro_batch(i);
    sums.tokens += batch.target_tokens;
    progress_.source_tokens += batch.source_tokens;
    progress_.flops +=
        static_cast<double>(count_flops(model_->settings(), {.rows = static_cast<int64_t>(batch.pairs.size()),
                                                             .source_length = batch.source_length,
                                                             .target_length = batch.target_length,
                                                             .projected_tokens = batch.target_tokens})
                                .training());
    if (batch.is_made()) mine.push_back({i, transfer_.begin(batch)});
  }
  progress_.target_tokens += sums.tokens;

  adam_.clear_gradients();
  sums.figures = at::zeros({3}, at::device(device_).dtype(at::kDouble));
  const auto step = static_cast<uint64_t>(progress_.step);
  for (auto& [number, batch] : mine) {
    // Dropout then depends on what is computed, not on what was computed before, or where.
    at::manual_seed(Random(settings_.seed, step, static_cast<uint64_t>(number)).next());
    const auto losses = forward(batch);
    {
      const ProfiledRange range("backward");
      // The gradient of the mean over all target tokens of the step, however they are split.
      const auto mean = losses.loss / static_cast<double>(sums.tokens);
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
                     (run_ / "checkpoints").string());
}

Trainer::StepSums Trainer::step() {
  const auto where = fmt::format("step {}", progress_.step + 1);
  StepSums sums;
  try {
    sums = accumulate_gradients();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw Failure(where, "out of memory",
                  fmt::format("{}; lower training.micro_batch_tokens (now {}): a step then takes more passes and less "
                              "memory, with the same gradient",
                              last_checkpoint_text(), tokens_at_once()));
  }
  // All ranks hold the same gradients; where their processors add in another order, rank 0's norm counts.
  if (communicator_.rank() == 0) sums.figures[2].copy_(adam_.gradient_norm());
  communicator_.all_reduce_sum(sums.figures);
  if (settings_.clip_norm > 0) adam_.clip(settings_.clip_norm, sums.norm());
  return sums;
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
  if (!std::isfinite(
          std::exp(progress_.window_nll / static_cast<double>(std::max<int64_t>(1, progress_.window_tokens))))) {
    diverged("the perplexity is not finite");
  }
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
}

std::string Trainer::damage() {
  const auto check = [](const char* what, const TensorMap& tensors) -> std::string {
    for (const auto& [name, tensor] : tensors) {
      if (!all_finite(tensor)) return fmt::format("the {} '{}' is not finite", what, name);
    }
    return "";
  };
  auto found = check("weight", weights_of(*model_));
  if (found.empty()) found = check("optimizer's", adam_.state());
  if (found.empty() && average_) found = check("moving average of", average_->values());
  if (!found.empty() || !last_batch_) return found;
  // The last update may have made weights that are finite, and nothing that follows from them. Dropout is off, so
  // nothing random is drawn.
  at::NoGradGuard no_grad;
  model_->eval();
  const auto nll = forward(*last_batch_).negative_log_likelihood.item<double>();
  model_->train();
  const auto tokens = static_cast<double>(std::max<int64_t>(1, last_batch_->target_tokens));
  return std::isfinite(std::exp(nll / tokens)) ? "" : "the weights after it give no finite loss";
}

void Trainer::log_progress(double rate, double interval_seconds, int64_t interval_tokens) {
  if (communicator_.rank() != 0) return;
  const double tokens = std::max<double>(1, progress_.window_tokens);
  const double loss = progress_.window_loss / tokens, perplexity = std::exp(progress_.window_nll / tokens);
  const double speed = interval_seconds > 0 ? interval_tokens / interval_seconds : 0;
  double left = (settings_.steps - progress_.step) * elapsed() / progress_.step;
  if (settings_.max_minutes > 0) left = std::min(left, settings_.max_minutes * 60 - elapsed());
  spdlog::info("step {:>6} | epoch {} | loss {:.3f} | perplexity {:8.2f} | rate {:.2e} | {:.0f} tokens/s | {} left",
               progress_.step, progress_.epoch + 1, loss, perplexity, rate, speed, duration_text(left));
  metrics().record("train", progress_.step,
                   {{"epoch", progress_.epoch},
                    {"loss", loss},
                    {"perplexity", perplexity},
                    {"gradient_norm", progress_.window_gradient_norm / static_cast<double>(progress_.window_steps)},
                    {"largest_gradient_norm", progress_.window_largest_norm},
                    {"rate", rate},
                    {"source_tokens", progress_.source_tokens},
                    {"target_tokens", progress_.target_tokens},
                    {"tokens_per_second", speed},
                    {"memory", resident_bytes()},
                    {"seconds", elapsed()}});
}

bool Trainer::validate() {
  if (!hooks_.validate) return false;
  fetch_window();
  bool among_best = false;
  communicator_.on_rank_0([&] { among_best = judge(); });
  const auto found = at::tensor({int64_t{among_best}, progress_.validations_since_best}, at::kLong);
  communicator_.broadcast({found});
  progress_.validations_since_best = found[1].item<int64_t>();
  return found[0].item<int64_t>() != 0;
}

bool Trainer::judge() {
  const double before = now();
  if (average_) average_->swap();
  model_->eval();
  const auto validation = hooks_.validate(model_, progress_.step);
  model_->train();
  if (average_) average_->swap();
  check_finite(validation, "the validation text");

  const bool by_bleu = settings_.best_by == TrainingSettings::Criterion::bleu;
  const BestValidation found{progress_.step, by_bleu ? validation.bleu.value_or(0) : validation.perplexity};
  auto& best = progress_.best;
  const auto place = std::find_if(best.begin(), best.end(), [&](const BestValidation& other) {
    return by_bleu ? found.value > other.value : found.value < other.value;
  });
  const bool is_best = place == best.begin();
  const auto index = place - best.begin();
  best.insert(place, found);
  best.resize(std::min<size_t>(best.size(), std::max<int64_t>(1, settings_.keep_best)));
  progress_.validations_since_best = is_best ? 0 : progress_.validations_since_best + 1;

  const auto waiting = settings_.patience > 0 && !is_best
                           ? fmt::format(", {} of {} validations without a new best", progress_.validations_since_best,
                                         settings_.patience)
                           : "";
  spdlog::info("validation at step {}: {}{}{} ({:.0f} s)", progress_.step, text_of(validation),
               is_best ? ", best so far" : "", waiting, now() - before);
  record("validation", validation);
  return index < settings_.keep_best;
}

void Trainer::record_final(const Validation& validation) {
  check_finite(validation, "the final model");
  spdlog::info("final model: {}", text_of(validation));
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

void Trainer::checkpoint(CheckpointKind kind) {
  if (last_checkpoint_step_ == progress_.step &&
      (kind == CheckpointKind::interruption || last_checkpoint_kind_ == CheckpointKind::scheduled)) {
    return;
  }
  fetch_window();
  const auto found = damage();
  if (communicator_.any(!found.empty())) diverged(found.empty() ? "the weights after it give no finite loss" : found);
  communicator_.on_rank_0([&] {
    progress_.seconds = elapsed();
    progress_.metrics_bytes = metrics().bytes();
    const auto written = write_checkpoint(run_, state(), files_, kind);
    if (hooks_.checkpointed) hooks_.checkpointed();
    std::set<int64_t> best;
    if (settings_.keep_best > 0) {
      for (const auto& validation : progress_.best) best.insert(validation.step);
    }
    prune_checkpoints(run_, settings_.keep_checkpoints, best);
    spdlog::info("checkpoint: {}", written.string());
  });
  last_checkpoint_ = now();
  last_checkpoint_step_ = progress_.step;
  last_checkpoint_kind_ = kind;
}

std::vector<std::filesystem::path> Trainer::final_checkpoints() const {
  auto checkpoints = list_checkpoints(run_);
  std::reverse(checkpoints.begin(), checkpoints.end());
  if (settings_.average_of == TrainingSettings::Averaged::best && !progress_.best.empty()) {
    std::vector<std::filesystem::path> best;
    for (const auto& validation : progress_.best) {
      const auto found = std::find_if(checkpoints.begin(), checkpoints.end(), [&](const auto& checkpoint) {
        return checkpoint_step(checkpoint) == validation.step;
      });
      if (found != checkpoints.end()) best.push_back(*found);
    }
    checkpoints = best;
  }
  checkpoints.resize(std::min<size_t>(checkpoints.size(), settings_.average_checkpoints));
  return checkpoints;
}

bool Trainer::out_of_patience() const {
  return settings_.patience > 0 && progress_.validations_since_best >= settings_.patience;
}

TrainingSummary Trainer::run(int64_t profile_steps) {
  using End = TrainingSummary::End;
  if (settings_.threads > 0) at::set_num_threads(static_cast<int>(settings_.threads));
  const auto learning_rate = settings_.learning_rate(model_->settings().d_model);
  started_ = last_checkpoint_ = now();
  model_->train();
  if (device_.is_cuda()) {
    at::globalContext().setAllowTF32CuBLAS(settings_.precision == TrainingSettings::Precision::tf32);
  }
  model_->set_recompute(settings_.recompute);
  find_micro_batch();
  window_ = at::tensor({progress_.window_loss, progress_.window_nll, progress_.window_gradient_norm,
                        progress_.window_largest_norm},
                       at::kDouble)
                .to(device_);
  fetched_step_ = progress_.step;
  parallel_.emplace(communicator_, *model_, DistributedDataParallel::Options{.bucket_mb = settings_.bucket_mb});
  double interval_start = now();
  int64_t interval_tokens = 0;
  auto due = [&](int64_t every) { return every > 0 && progress_.step % every == 0; };
  // The first step allocates what later ones use again, so it is no example of them.
  const int64_t profile_from = progress_.step + 1;
  std::optional<Profile> profile;

  std::optional<End> end;
  for (;;) {
    // A clock and a signal tell the ranks at different times what they must decide alike.
    const bool time_up = settings_.max_minutes > 0 && communicator_.any(elapsed() >= settings_.max_minutes * 60);
    const bool stop = hooks_.stop && communicator_.any(*hooks_.stop);
    if (progress_.step >= settings_.steps) end = End::steps;
    if (time_up) end = End::time;
    if (out_of_patience()) end = End::patience;
    if (stop && !end) end = End::interruption;
    if (end) break;

    const bool profiled = profile_steps > 0 && communicator_.rank() == 0;
    if (profiled && progress_.step == profile_from) profile.emplace(run_ / trace_name, device_).start();
    const auto sums = step();
    ++progress_.step;
    window_.narrow(0, 0, 3) += sums.figures;
    window_[3].copy_(at::maximum(window_[3], sums.figures[2]));  // not a number where either is none
    progress_.window_tokens += sums.tokens;
    ++progress_.window_steps;
    interval_tokens += sums.tokens;
    // A GPU is not waited for in every step, but before its results are written down anywhere.
    if (device_.is_cpu()) fetch_window();
    const double rate = learning_rate(progress_.step);
    {
      const ProfiledRange range("optimizer");
      adam_.step(rate, sums.norm());
      if (average_) average_->update(progress_.step);
    }
    if (profile && progress_.step == profile_from + profile_steps) {
      profile->stop();
      profile.reset();
      spdlog::info("trace of {} steps: {}", profile_steps, (run_ / trace_name).string());
    }
    if (due(settings_.log_every)) {
      fetch_window();
      log_progress(rate, now() - interval_start, interval_tokens);
      window_.zero_();
      progress_.window_loss = progress_.window_nll = 0;
      progress_.window_gradient_norm = progress_.window_largest_norm = 0;
      progress_.window_tokens = progress_.window_steps = 0;
      interval_start = now();
      interval_tokens = 0;
    }
    const double pause = now();
    // The last step's model is validated as the final one, unless it may be kept as one of the best.
    const bool validates =
        due(settings_.validate_every) && (progress_.step < settings_.steps || settings_.keep_best > 0);
    const bool among_best = validates && validate();
    const bool timed = settings_.checkpoint_minutes > 0 &&
                       communicator_.any(now() - last_checkpoint_ > settings_.checkpoint_minutes * 60);
    if (due(settings_.checkpoint_every) || timed || among_best) checkpoint(CheckpointKind::scheduled);
    interval_start += now() - pause;
  }
  checkpoint(*end == End::interruption ? CheckpointKind::interruption : CheckpointKind::scheduled);
  progress_.seconds = elapsed();
  return {.end = *end,
          .steps = progress_.step,
          .source_tokens = progress_.source_tokens,
          .target_tokens = progress_.target_tokens,
          .flops = progress_.flops,
          .seconds = progress_.seconds};
}

}  // namespace transformer
