#include "transformer/training/settings.h"

#include <fmt/format.h>

#include "transformer/base/check_ranges.h"
#include "transformer/base/counted.h"
#include "transformer/base/device_name.h"
#include "transformer/base/error.h"
#include "transformer/training/learning_rate.h"
#include "transformer/training/noam_schedule.h"

namespace transformer {
namespace {

constexpr double largest_seed = 9007199254740992;  // 2^53: whatever reads JSON holds all integers up to it

Range above_zero(double highest) {
  return {.lowest = 0, .highest = highest, .lowest_excluded = true};
}

}  // namespace

void TrainingSettings::describe(Fields<TrainingSettings>& field) {
  using S = TrainingSettings;
  field("output", &S::output, "the run's folder: checkpoints, metrics, in the end the model").free();
  field("init_from", &S::init_from,
        "model directory whose weights and vocabulary training starts from (fine-tuning); where it has more layers, "
        "layers spread evenly over them, and where it has self-attention in the place of this model's recurrent units, "
        "new ones of these; empty: random weights");
  field("device", &S::device, "cpu, cuda or cuda:N").free();
  field("threads", &S::threads, "threads for computing on a CPU; 0: OMP_NUM_THREADS, or one for each core",
        between(0, 1024))
      .free();
  field("seed", &S::seed, "of initial weights, dropout and the order of the data", between(0, largest_seed));
  field("steps", &S::steps,
        "optimizer steps; free unless the schedule is linear, whose rate depends on it from the first step on",
        between(1, 1e9))
      .changeable();
  field("max_minutes", &S::max_minutes, "training ends after this time if it comes before `steps`; 0: no limit",
        between(0, 1e7))
      .free();
  field("batch_tokens", &S::batch_tokens,
        "source and target tokens of a step, each at most, padding counted (§5.1), before "
        "subword_sampling makes more of them",
        between(1, 1e8))
      .changeable();
  field("micro_batch_tokens", &S::micro_batch_tokens,
        "tokens computed at once; several make a step by accumulating gradients, in one process or shared out over "
        "several; 0: batch_tokens divided by the number of processes",
        between(0, 1e8))
      .changeable();
  field("micro_batch", &S::micro_batch,
        "fixed: of micro_batch_tokens; auto: as many tokens as memory allows, tried out with the longest pairs before "
        "training begins, on all processes alike, and kept while batch_tokens is a whole number of such micro-batches; "
        "they become smaller where another setting makes them too large for memory",
        {{"fixed", MicroBatch::fixed}, {"auto", MicroBatch::automatic}})
      .changeable();
  field("recompute", &S::recompute,
        "compute every layer a second time in the backward pass instead of keeping what the first left: less memory, "
        "about a third more time, the same gradients")
      .free();
  field("precision", &S::precision,
        "type of matrix products; weights and optimizer stay float32; tf32: float32 with products in TensorFloat-32, "
        "of GPUs; auto: bf16 where the processor multiplies it natively",
        {{"float32", Precision::float32},
         {"tf32", Precision::tf32},
         {"bf16", Precision::bf16},
         {"auto", Precision::automatic}})
      .changeable();
  field(
      "deterministic", &S::deterministic,
      "on GPUs, only operations that give the same bits every time, and an error where there is none: slower; on CPUs "
      "results repeat in any case")
      .free();
  field(
      "schedule", &S::schedule,
      "learning rate after a linear rise over warmup_steps: noam falls with step^-0.5 from a peak that follows from "
      "d_model (§5.3), inverse_sqrt the same from `rate`, constant stays at `rate`, linear falls straight from `rate` "
      "to nothing after the last of `steps`",
      {{"noam", Schedule::noam},
       {"inverse_sqrt", Schedule::inverse_square_root},
       {"constant", Schedule::constant},
       {"linear", Schedule::linear}})
      .changeable();
  field("rate", &S::rate, "highest learning rate of the schedules other than noam", between(0, 1000)).changeable();
  field("warmup_steps", &S::warmup_steps, "steps of rising learning rate (§5.3); at least 1 for noam", between(0, 1e9))
      .changeable();
  field("rate_factor", &S::rate_factor, "multiplies the learning rate, whatever its schedule", above_zero(1e6))
      .changeable();
  field("adam_beta1", &S::adam_beta1, "Adam's β1 (§5.3)", fraction()).changeable();
  field("adam_beta2", &S::adam_beta2, "Adam's β2 (§5.3)", fraction()).changeable();
  field("adam_epsilon", &S::adam_epsilon, "Adam's ε (§5.3)", between(1e-30, 1)).changeable();
  field("shard_optimizer", &S::shard_optimizer,
        "share Adam's moments out over the processes, which then tell each other their parts of the weights in every "
        "step: less memory, the same weights; checkpoints are whole")
      .free();
  field("clip_norm", &S::clip_norm, "largest joint norm of the gradients; 0: not clipped", between(0, 1e9))
      .changeable();
  field("label_smoothing", &S::label_smoothing, "ε_ls (§5.4)", fraction()).changeable();
  field("rdrop", &S::rdrop,
        "R-Drop: every micro-batch goes through the model twice, with dropout of its own, and this, the published α (5 "
        "for translation), weighs how far the two predictions may be apart; about twice the time and memory; 0: once",
        between(0, 1e6))
      .changeable();
  field("layer_drop", &S::layer_drop,
        "the probability that training leaves a layer out of a micro-batch, of the encoder and the decoder alike",
        fraction())
      .changeable();
  field(
      "quantization", &S::quantization,
      "int8: quantization-aware training, for models that are decoded in int8: factors of products are rounded as "
      "decoding rounds them (with precision bf16 once more, to bf16), and gradients pass straight through; slower, and "
      "meant for the last steps, from --init-from",
      {{"none", Quantization::none}, {"int8", Quantization::int8}})
      .changeable();
  field(
      "subword_sampling", &S::subword_sampling,
      "spell training text in other word pieces every time: the share of a BPE vocabulary's merges that are left out "
      "(0.03 makes a tenth more pieces, 0.1 a third), or the smoothing of a unigram vocabulary's choices (0.2); "
      "0: always the same pieces. Batches are planned before pieces are drawn, and padded to the longest row drawn: at "
      "0.1 to about twice batch_tokens, half of it padding, which costs time and memory",
      fraction())
      .changeable();
  field("moving_average", &S::moving_average,
        "decay of an exponential moving average of the weights, which is then what is validated, averaged and kept, "
        "less at first: (1 + step) / (10 + step); 0: none",
        fraction());
  field("log_every", &S::log_every, "steps between lines of progress", between(1, 1e9)).free();
  field("validate_every", &S::validate_every, "steps between validations; 0: only at the end", between(0, 1e9))
      .changeable();
  field("validate_bleu", &S::validate_bleu, "translate the validation set and report BLEU, besides perplexity").free();
  field("best_by", &S::best_by, "what makes a validation the best: lowest perplexity or highest BLEU",
        {{"perplexity", Criterion::perplexity}, {"bleu", Criterion::bleu}});
  field("patience", &S::patience, "training ends after so many validations in a row without a new best; 0: never",
        between(0, 1e9))
      .free();
  field("checkpoint_every", &S::checkpoint_every, "steps between checkpoints; 0: by time alone", between(0, 1e9))
      .changeable();
  field("checkpoint_minutes", &S::checkpoint_minutes,
        "minutes between checkpoints; 0: by steps alone. Checkpoints by time make the averaged model depend on the "
        "clock",
        between(0, 1e7))
      .changeable();
  field("keep_checkpoints", &S::keep_checkpoints,
        "newest checkpoints that are kept; of interruptions since, as many besides, and 2 at least", between(1, 100000))
      .free();
  field("keep_best", &S::keep_best,
        "best checkpoints that are kept besides; one is written when a validation is among the best, and is none of "
        "the last ones, unless it is the newest",
        between(0, 100000))
      .free();
  field("average_checkpoints", &S::average_checkpoints,
        "checkpoints averaged into the final model (§6.1); 1: one alone", between(1, 100000))
      .free();
  field("average_of", &S::average_of, "average the last checkpoints, or the best",
        {{"last", Averaged::last}, {"best", Averaged::best}})
      .free();
  field("weights", &S::weights, "type of the final model's weights; bf16 halves the file",
        {{"float32", Weights::float32}, {"bf16", Weights::bf16}})
      .free();
  field("device_flops", &S::device_flops,
        "floating-point operations a second that the device sustains, for the paper's estimate of the training cost "
        "(§6.1: 9.5e12 for a P100); 0: no estimate",
        between(0, 1e21))
      .free();
  field("timeout_seconds", &S::timeout_seconds,
        "how long one of several processes waits for another before it gives the run up", between(0.1, 1e6))
      .free();
  field("bucket_mb", &S::bucket_mb, "gradients that several processes sum at a time, in MiB", above_zero(65536)).free();
}

std::function<double(int64_t)> TrainingSettings::learning_rate(int64_t d_model) const {
  switch (schedule) {
    case Schedule::noam:
      return NoamSchedule{.d_model = d_model, .warmup_steps = warmup_steps, .factor = rate_factor};
    case Schedule::inverse_square_root:
      return InverseSquareRootSchedule{.peak_rate = rate * rate_factor, .warmup_steps = warmup_steps};
    case Schedule::linear:
      return LinearSchedule{.peak_rate = rate * rate_factor, .warmup_steps = warmup_steps, .steps = steps};
    case Schedule::constant:
      break;
  }
  return ConstantSchedule{.rate = rate * rate_factor, .warmup_steps = warmup_steps};
}

void TrainingSettings::check() const {
  check_ranges("training", *this);
  if (output.empty()) throw Error("training.output", "is empty", "name the folder that the run goes to: runs/model");
  if (device.empty()) throw Error("training.device", "is empty", "it takes cpu, cuda or cuda:N");
  gpu_of(device);  // throws for what is no device's name, before anything is begun
  const int64_t kept = average_of == Averaged::best ? keep_best : keep_checkpoints;
  const char* keeper = average_of == Averaged::best ? "training.keep_best" : "training.keep_checkpoints";
  if (kept < average_checkpoints) {
    throw Error(
        keeper,
        fmt::format("{} kept, fewer than the {} that are averaged", counted(kept, "checkpoint"), average_checkpoints),
        "keep at least as many");
  }
  if (micro_batch_tokens > batch_tokens) {
    throw Error("training.micro_batch_tokens",
                fmt::format("{} is more than batch_tokens ({})", micro_batch_tokens, batch_tokens),
                "a step holds at least one micro-batch");
  }
  if (micro_batch == MicroBatch::automatic && micro_batch_tokens != 0) {
    throw Error("training.micro_batch_tokens", "training.micro_batch: auto finds this size",
                "leave one of the two at its default");
  }
  if (precision == Precision::tf32 && device == "cpu") {
    throw Error("training.precision", "TensorFloat-32 is a type of GPUs, and training.device is cpu",
                "set it to float32, bf16 or auto");
  }
  if (schedule == Schedule::noam && warmup_steps < 1) {
    throw Error("training.warmup_steps", "the schedule noam divides by it; expected at least 1");
  }
  if (schedule != Schedule::noam && rate == 0) {
    throw Error("training.rate", "is not set", "this schedule needs the highest learning rate: 5e-4, say");
  }
  if (schedule == Schedule::noam && rate != 0) {
    throw Error("training.rate", "the schedule noam derives its rate from model.d_model",
                "set training.schedule to inverse_sqrt, constant or linear, or training.rate_factor instead");
  }
  if (schedule == Schedule::linear && warmup_steps >= steps) {
    throw Error("training.warmup_steps",
                fmt::format("the schedule linear rises for {} steps, and training.steps is {}", warmup_steps, steps),
                "the learning rate must have steps left to fall in");
  }
  if ((patience > 0 || keep_best > 0) && validate_every == 0) {
    throw Error(patience > 0 ? "training.patience" : "training.keep_best",
                "nothing is validated before the end (training.validate_every: 0)", "set training.validate_every");
  }
  if (best_by == Criterion::bleu && !validate_bleu) {
    throw Error("training.best_by", "BLEU is not computed (training.validate_bleu: false)",
                "set training.validate_bleu: true");
  }
}

}  // namespace transformer
