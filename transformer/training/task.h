#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>

#include "transformer/model/transformer.h"
#include "transformer/training/batch_source.h"
#include "transformer/training/corpus_batches.h"
#include "transformer/training/device_transfer.h"
#include "transformer/training/label_smoothing_loss.h"
#include "transformer/training/optimizer.h"
#include "transformer/training/settings.h"

namespace transformer {

/// What a Trainer trains, on what, and towards what. `translation_task` makes the paper's; with a model, a source of
/// batches and a loss of one's own it trains anything else.
struct TrainingTask {
  /// The trainer moves it to its device and switches between training and evaluation. Checkpoints keep its buffers
  /// beside its parameters, to go on with; each rank computes its own, and rank 0's are kept.
  std::shared_ptr<torch::nn::Module> model;
  /// What it is trained on.
  std::shared_ptr<BatchSource> batches;
  /// Sums over the batch's items, with gradients towards the model's parameters: every one of them must take part
  /// (of a single process one that does not gets zeros). The
  /// gradient of a step is that of the sum over all micro-batches divided by their items. A loss without
  /// `negative_log_likelihood` is no perplexity's, and none is reported; with one, a mean so large that its perplexity
  /// is no number (700 nats an item) counts as a run that diverged. Called with random numbers that follow from
  /// seed, step and micro-batch, and in evaluation mode to see whether a checkpoint's weights give a finite loss.
  std::function<LossSums(const DeviceBatch& batch)> loss;
  /// The learning rate of a step, counted from 1. It is asked on all ranks, and rank 0's counts.
  std::function<double(int64_t step)> schedule;
  /// Empty: Adam as the settings have it. Called once, when the model is on its device.
  std::function<std::unique_ptr<Optimizer>(NamedParameters parameters)> optimizer = {};
};

/// Smoothed cross entropy (§5.4) of a batch of micro_batch_of. Under autocast the projection is made in its type. With
/// `rdrop` > 0 and a model that trains, R-Drop's loss of that strength (projected_rdrop_loss).
LossSums translation_loss(Transformer& model, const DeviceBatch& batch, double smoothing, double rdrop = 0);

/// The paper's task: `model` learns to turn `text`'s sources into its targets, as `settings` have it (§5); but for
/// training.layer_drop, which a model is made with (layer_drop.h). Throws Error as check_training_of, and where `text`
/// is not sampled as training.subword_sampling has it.
TrainingTask translation_task(const Transformer& model, TrainingText text, const TrainingSettings& settings);

/// Throws Error where a `model` cannot be trained as `settings` have it: training.rdrop compares two passes with
/// different dropout, and needs some in the model (left-out layers are the same in both).
void check_training_of(const ModelSettings& model, const TrainingSettings& settings);

}  // namespace transformer
