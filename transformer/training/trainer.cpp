#include "transformer/training/trainer.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "transformer/base/device.h"
#include "transformer/base/error.h"
#include "transformer/training/label_smoothing_loss.h"
#include "transformer/training/noam_schedule.h"

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
#if defined(__x86_64__)
  return !device.is_cpu() || __builtin_cpu_supports("avx512bf16");
#else
  return !device.is_cpu();
#endif
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

}  // namespace

Trainer::Trainer(Transformer model, const Corpus& corpus, const TrainingSettings& settings, std::filesystem::path run,
                 ModelFiles files, TrainerHooks hooks)
    : model_(std::move(model)),
      corpus_(corpus),
      settings_(settings),
      run_(std::move(run)),
      files_(std::move(files)),
      hooks_(std::move(hooks)),
      adam_({}, {}),
      device_(moved(model_, settings.device)) {
  settings_.check();
  // After the move: moving gives a module new parameters on some devices.
  adam_ = Adam(named_parameters(model_),
               {.beta1 = settings.adam_beta1, .beta2 = settings.adam_beta2, .epsilon = settings.adam_epsilon});
}

void Trainer::resume(const std::filesystem::path& checkpoint) {
  progress_ = load_checkpoint(checkpoint, model_, adam_);
  seconds_before_ = progress_.seconds;
  last_checkpoint_step_ = progress_.step;
  std::error_code error;
  const auto metrics = run_ / "metrics.jsonl";
  const auto size = std::filesystem::file_size(metrics, error);
  if (error) {  // whoever removed it gets a new one
    progress_.metrics_bytes = 0;
    return;
  }
  progress_.metrics_bytes = std::min(progress_.metrics_bytes, static_cast<int64_t>(size));
  std::filesystem::resize_file(metrics, progress_.metrics_bytes, error);
  if (error) throw Failure(metrics.string(), "cannot be cut to the checkpoint's length: " + error.message());
}

double Trainer::elapsed() const {
  return seconds_before_ + now() - started_;
}

bool Trainer::next_micro_batch(Batch& batch) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!batches_) {
      batches_.emplace(corpus_, Batches::Options{.batch_tokens = settings_.tokens_at_once(), .seed = settings_.seed},
                       progress_.epoch, progress_.batch);
    }
    if (batches_->next(batch)) {
      ++progress_.batch;
      return true;
    }
    batches_.reset();
    ++progress_.epoch;
    progress_.batch = 0;
  }
  return false;
}

Trainer::StepSums Trainer::step() {
  const int64_t accumulate = settings_.batch_tokens / settings_.tokens_at_once();  // at least 1, as check() saw to
  std::vector<Batch> batches(accumulate);
  int64_t target_tokens = 0;
  for (auto& batch : batches) {
    if (!next_micro_batch(batch)) throw Error("data.train_source", "there is no sentence pair to train on");
    target_tokens += batch.target_tokens;
    progress_.source_tokens += batch.source_tokens;
  }
  progress_.target_tokens += target_tokens;

  adam_.clear_gradients();
  const bool bf16 = uses_bf16(settings_, device_);
  StepSums sums{0, 0, target_tokens};
  for (const auto& batch : batches) {
    LossSums losses;
    {
      Autocast autocast(bf16, device_);
      const auto source = batch.source.to(device_), target_input = batch.target_input.to(device_);
      const auto hidden = model_->decode(target_input, model_->encode(source)).values;
      losses = projected_label_smoothing_loss(hidden, model_->projection_weight(), batch.target_output.to(device_),
                                              settings_.label_smoothing, TransformerImpl::padding_id,
                                              bf16 ? at::kBFloat16 : hidden.scalar_type());
    }
    // The gradient of the mean over all target tokens of the step, however they are split.
    (losses.loss / static_cast<double>(target_tokens)).backward();
    sums.loss += losses.loss.item<double>();
    sums.nll += losses.negative_log_likelihood.item<double>();
  }
  if (!std::isfinite(sums.loss)) {
    throw Failure(fmt::format("step {}", progress_.step + 1), "the loss is not finite",
                  fmt::format("the last checkpoint in {} is intact; lower training.rate_factor, lengthen "
                              "training.warmup_steps or set training.clip_norm",
                              (run_ / "checkpoints").string()));
  }
  if (settings_.clip_norm > 0) adam_.clip(settings_.clip_norm);
  return sums;
}

void Trainer::write_metrics(const std::string& line) {
  const auto file = run_ / "metrics.jsonl";
  std::ofstream out(file, std::ios::binary | std::ios::app);
  out << line << '\n';
  out.flush();
  if (!out) throw Failure(file.string(), "cannot be written", "is the disk full?");
  progress_.metrics_bytes += static_cast<int64_t>(line.size()) + 1;
}

void Trainer::log_progress(double rate, double interval_seconds, int64_t interval_tokens) {
  const double tokens = std::max<double>(1, progress_.window_tokens);
  const double perplexity = std::exp(progress_.window_nll / tokens);
  const double speed = interval_seconds > 0 ? interval_tokens / interval_seconds : 0;
  double left = (settings_.steps - progress_.step) * elapsed() / progress_.step;
  if (settings_.max_minutes > 0) left = std::min(left, settings_.max_minutes * 60 - elapsed());
  spdlog::info("step {:>6} | epoch {} | loss {:.3f} | perplexity {:8.2f} | rate {:.2e} | {:.0f} tokens/s | {} left",
               progress_.step, progress_.epoch + 1, progress_.window_loss / tokens, perplexity, rate, speed,
               duration_text(left));
  write_metrics(nlohmann::ordered_json{
      {"kind", "train"},
      {"step", progress_.step},
      {"epoch", progress_.epoch},
      {"loss", progress_.window_loss / tokens},
      {"perplexity", perplexity},
      {"rate", rate},
      {"source_tokens", progress_.source_tokens},
      {"target_tokens", progress_.target_tokens},
      {"tokens_per_second", speed},
      {"seconds",
       elapsed()}}.dump());
  progress_.window_loss = progress_.window_nll = 0;
  progress_.window_tokens = 0;
}

void Trainer::validate() {
  if (!hooks_.validate) return;
  const double before = now();
  model_->eval();
  const auto validation = hooks_.validate(model_, progress_.step);
  model_->train();
  const bool best = progress_.best_perplexity == 0 || validation.perplexity < progress_.best_perplexity;
  if (best) {
    progress_.best_perplexity = validation.perplexity;
    progress_.best_step = progress_.step;
  }
  spdlog::info("validation at step {}: {}{} ({:.0f} s)", progress_.step, text_of(validation),
               best ? ", best so far" : "", now() - before);
  write_validation("validation", validation);
}

void Trainer::record_final(const Validation& validation) {
  spdlog::info("final model: {}", text_of(validation));
  write_validation("final", validation);
}

void Trainer::write_validation(const char* kind, const Validation& validation) {
  nlohmann::ordered_json json{{"kind", kind},
                              {"step", progress_.step},
                              {"loss", validation.loss},
                              {"perplexity", validation.perplexity},
                              {"best_perplexity", progress_.best_perplexity},
                              {"best_step", progress_.best_step}};
  if (validation.bleu) {
    json["bleu"] = *validation.bleu;
    json["bleu_signature"] = validation.signature;
  }
  json["seconds"] = elapsed();
  write_metrics(json.dump());
}

void Trainer::checkpoint() {
  if (last_checkpoint_step_ == progress_.step) return;
  progress_.seconds = elapsed();
  const auto written = write_checkpoint(run_, model_, adam_, progress_, files_);
  prune_checkpoints(run_, settings_.keep_checkpoints);
  last_checkpoint_ = now();
  last_checkpoint_step_ = progress_.step;
  spdlog::info("checkpoint: {}", written.string());
}

TrainingSummary Trainer::run() {
  if (settings_.threads > 0) at::set_num_threads(static_cast<int>(settings_.threads));
  const NoamSchedule schedule{
      .d_model = model_->settings().d_model, .warmup_steps = settings_.warmup_steps, .factor = settings_.rate_factor};
  started_ = last_checkpoint_ = now();
  model_->train();
  double interval_start = now();
  int64_t interval_tokens = 0;
  bool interrupted = false;
  auto due = [&](int64_t every) { return every > 0 && progress_.step % every == 0; };

  while (progress_.step < settings_.steps && (settings_.max_minutes == 0 || elapsed() < settings_.max_minutes * 60)) {
    const auto sums = step();
    const double rate = schedule(progress_.step + 1);
    adam_.step(rate);
    ++progress_.step;
    progress_.window_loss += sums.loss;
    progress_.window_nll += sums.nll;
    progress_.window_tokens += sums.tokens;
    interval_tokens += sums.tokens;

    if (due(settings_.log_every)) {
      log_progress(rate, now() - interval_start, interval_tokens);
      interval_start = now();
      interval_tokens = 0;
    }
    const double pause = now();
    if (due(settings_.validate_every) && progress_.step < settings_.steps) validate();
    const bool timed = settings_.checkpoint_minutes > 0 && now() - last_checkpoint_ > settings_.checkpoint_minutes * 60;
    if (due(settings_.checkpoint_every) || timed) checkpoint();
    interval_start += now() - pause;
    if (hooks_.stop && *hooks_.stop) {
      interrupted = true;
      break;
    }
  }
  checkpoint();
  progress_.seconds = elapsed();
  return {progress_.step, progress_.target_tokens, progress_.seconds, interrupted};
}

}  // namespace transformer
