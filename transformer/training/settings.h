#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "transformer/base/settings.h"

namespace transformer {

/// How a model is trained (settings section `training`; §5). Defaults are the paper's base model.
struct TrainingSettings {
  /// Of matrix products.
  enum class Precision {
    float32,   // of weights and products alike
    tf32,      // float32 with products in TensorFloat-32, on GPUs
    bf16,      // products in bfloat16; weights and optimizer stay float32
    automatic  // bf16 where the processor multiplies it natively, else float32
  };
  /// Whether their size is given, or found out.
  enum class MicroBatch {
    fixed,     // micro_batch_tokens says it
    automatic  // as large as memory allows, tried out before training begins
  };
  /// Of the learning rate.
  enum class Schedule {
    noam,                 // the paper's (§5.3): NoamSchedule
    inverse_square_root,  // InverseSquareRootSchedule
    constant,             // ConstantSchedule
    linear                // LinearSchedule
  };
  /// By which a model is the best.
  enum class Criterion {
    perplexity,  // the lowest
    bleu         // the highest
  };
  /// Which checkpoints the final model is the mean of.
  enum class Averaged {
    last,  // the newest
    best   // those after the best validations
  };
  /// What training prepares the model for.
  enum class Quantization {
    none,
    int8  // TransformerImpl::set_quantization
  };
  /// As the final model's are written.
  enum class Weights {
    float32,  // as they were trained
    bf16      // rounded: half the file
  };

  std::string output = "runs/model";
  std::string init_from;  // a model directory; empty: random weights
  std::string device = "cpu";
  int64_t threads = 0;  // 0: OMP_NUM_THREADS, or one for each core
  uint64_t seed = 1;

  int64_t steps = 100000;
  double max_minutes = 0;  // 0: no limit
  int64_t batch_tokens = 25000;
  MicroBatch micro_batch = MicroBatch::fixed;
  int64_t micro_batch_tokens = 0;  // 0: batch_tokens, shared out over the processes
  bool recompute = false;
  Precision precision = Precision::float32;
  bool deterministic = false;

  Schedule schedule = Schedule::noam;
  double rate = 0;  // the highest, of schedules other than noam
  int64_t warmup_steps = 4000;
  double rate_factor = 1.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.98;
  double adam_epsilon = 1e-9;
  bool shard_optimizer = false;
  double clip_norm = 0;  // 0: none
  double label_smoothing = 0.1;
  double rdrop = 0;       // 0: none
  double layer_drop = 0;  // 0: none
  Quantization quantization = Quantization::none;
  double subword_sampling = 0;
  double moving_average = 0;  // decay; 0: none

  int64_t log_every = 100;
  int64_t validate_every = 2000;
  bool validate_bleu = true;
  Criterion best_by = Criterion::perplexity;
  int64_t patience = 0;             // 0: no early stopping
  int64_t checkpoint_every = 2000;  // 0: by time alone
  double checkpoint_minutes = 0;    // 0: by steps alone
  int64_t keep_checkpoints = 8;
  int64_t keep_best = 0;
  int64_t average_checkpoints = 5;
  Averaged average_of = Averaged::last;
  Weights weights = Weights::float32;
  double device_flops = 0;  // 0: not known

  // Of a run of several processes.
  double timeout_seconds = 300;
  double bucket_mb = 25;

  static void describe(Fields<TrainingSettings>& field);

  /// Tokens that one of `processes` computes at once: its part of a step's, or, with micro_batch_tokens, of as few
  /// equal parts as are no larger.
  int64_t tokens_at_once(int64_t processes) const {
    const int64_t parts =
        micro_batch_tokens > 0 ? (batch_tokens + micro_batch_tokens - 1) / micro_batch_tokens : processes;
    return std::max<int64_t>(1, batch_tokens / parts);
  }

  /// The learning rate as a function of the step, counted from 1, for a model of width `d_model`.
  std::function<double(int64_t)> learning_rate(int64_t d_model) const;

  /// Throws Error where one is out of its range, or where they contradict each other.
  void check() const;
};

}  // namespace transformer
