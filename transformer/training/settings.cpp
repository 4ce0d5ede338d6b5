#include "transformer/training/settings.h"

#include <fmt/format.h>

#include "transformer/base/error.h"

namespace transformer {

void TrainingSettings::describe(Fields<TrainingSettings>& field) {
  using S = TrainingSettings;
  field("output", &S::output, "the run's folder: checkpoints, metrics, in the end the model");
  field("device", &S::device, "cpu, cuda or cuda:N");
  field("threads", &S::threads, "threads for computing on a CPU; 0: one for each core", at_least(0));
  field("seed", &S::seed, "of initial weights, dropout and the order of the data");
  field("steps", &S::steps, "optimizer steps", at_least(1));
  field("max_minutes", &S::max_minutes, "training ends after this time if it comes before `steps`; 0: no limit",
        at_least(0.0));
  field("batch_tokens", &S::batch_tokens, "source and target tokens of a step, each at most, padding counted (§5.1)",
        at_least(1));
  field("micro_batch_tokens", &S::micro_batch_tokens,
        "tokens computed at once; several make a step by accumulating gradients; 0: batch_tokens", at_least(0));
  field("precision", &S::precision,
        "type of matrix products; weights and optimizer stay float32; auto: bf16 where the processor multiplies it "
        "natively",
        {{"float32", Precision::float32}, {"bf16", Precision::bf16}, {"auto", Precision::automatic}});
  field("warmup_steps", &S::warmup_steps, "steps of rising learning rate (§5.3)", at_least(1));
  field("rate_factor", &S::rate_factor, "multiplies the learning rate of §5.3", more_than(0.0));
  field("adam_beta1", &S::adam_beta1, "Adam's β1 (§5.3)", fraction());
  field("adam_beta2", &S::adam_beta2, "Adam's β2 (§5.3)", fraction());
  field("adam_epsilon", &S::adam_epsilon, "Adam's ε (§5.3)", more_than(0.0));
  field("clip_norm", &S::clip_norm, "largest joint norm of the gradients; 0: not clipped", at_least(0.0));
  field("label_smoothing", &S::label_smoothing, "ε_ls (§5.4)", fraction());
  field("log_every", &S::log_every, "steps between lines of progress", at_least(1));
  field("validate_every", &S::validate_every, "steps between validations; 0: only at the end", at_least(0));
  field("validate_bleu", &S::validate_bleu, "translate the validation set and report BLEU, besides perplexity");
  field("checkpoint_every", &S::checkpoint_every, "steps between checkpoints; 0: by time alone", at_least(0));
  field("checkpoint_minutes", &S::checkpoint_minutes, "minutes between checkpoints; 0: by steps alone", at_least(0.0));
  field("keep_checkpoints", &S::keep_checkpoints, "newest checkpoints that are kept", at_least(1));
  field("average_checkpoints", &S::average_checkpoints,
        "newest checkpoints averaged into the final model (§6.1); 1: the last alone", at_least(1));
  field("weights", &S::weights, "type of the final model's weights; bf16 halves the file",
        {{"float32", Weights::float32}, {"bf16", Weights::bf16}});
}

void TrainingSettings::check() const {
  if (keep_checkpoints < average_checkpoints) {
    throw Error(
        "training.keep_checkpoints",
        fmt::format("{} checkpoints are kept, but {} are to be averaged", keep_checkpoints, average_checkpoints),
        "keep at least as many");
  }
  if (micro_batch_tokens > batch_tokens) {
    throw Error("training.micro_batch_tokens",
                fmt::format("{} is more than batch_tokens ({})", micro_batch_tokens, batch_tokens),
                "a step holds at least one micro-batch");
  }
}

}  // namespace transformer
