#include "transformer/training/corpus_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "transformer/architecture/cost.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/model/tensors.h"

namespace transformer {

at::Tensor tensor_of(const IdMatrix& ids) {
  return id_tensor(ids.rows, ids.columns, ids.ids);
}

MicroBatch micro_batch_of(const Batch& batch, const ModelSettings& settings, double layer_drop) {
  const auto cost = count_flops(settings, {.rows = batch.source.rows,
                                           .source_length = batch.source_length,
                                           .target_length = batch.target_length,
                                           .projected_tokens = batch.target_tokens});
  const auto all = static_cast<double>(cost.forward()), layers = all - static_cast<double>(cost.vocabulary_projection);
  return {.tensors = {tensor_of(batch.source), tensor_of(batch.target_input), tensor_of(batch.target_output)},
          .items = batch.target_tokens,
          .source_tokens = batch.source_tokens,
          .target_tokens = batch.target_tokens,
          .flops = static_cast<double>(cost.training()) * (1 - layer_drop * layers / all)};
}

namespace {

// Epochs in a row, at most, without a pair: of few pairs a small weight takes one in several epochs (Mixture).
int64_t most_empty_epochs(const TrainingText& text) {
  const auto sizes = text.corpus.sizes();
  double pairs = 0;  // of an epoch, of whichever corpus has most
  for (size_t i = 0; i < sizes.size(); ++i) {
    pairs = std::max(pairs, (text.weights.empty() ? 1 : text.weights[i]) * static_cast<double>(sizes[i]));
  }
  constexpr double most = 1000;
  return pairs == 0 ? 0 : static_cast<int64_t>(std::min(std::ceil(1 / pairs), most));
}

}  // namespace

CorpusBatches::CorpusBatches(TrainingText text, const ModelSettings& settings, int64_t passes, double layer_drop)
    : text_(std::move(text)), settings_(settings), passes_(passes), layer_drop_(layer_drop) {}

void CorpusBatches::begin(const Plan& plan) {
  plan_ = plan;
}

MicroBatch CorpusBatches::next(int64_t number, BatchPosition& position) {
  if (position.tokens != plan_.tokens) {
    // About the same place in the epoch, whose batches are others.
    if (position.tokens > 0) position.batch = position.batch * position.tokens / plan_.tokens;
    position.tokens = plan_.tokens;
  }
  Batch batch;
  std::optional<int64_t> may_be_empty;  // epochs that begin here
  while (!may_be_empty || *may_be_empty >= 0) {
    if (!batches_ || epoch_ != position.epoch || batch_ != position.batch) {
      batches_.emplace(text_.corpus,
                       Batches::Options{.batch_tokens = plan_.tokens,
                                        .seed = plan_.seed,
                                        .weights = text_.weights,
                                        .share = plan_.rank,
                                        .shares = plan_.ranks,
                                        .step = plan_.count,
                                        .taken = number,
                                        .sampling = {text_.vocabularies, text_.sampling, text_.tags}},
                       position.epoch, position.batch);
    }
    if (batches_->next(batch)) {
      epoch_ = position.epoch;
      batch_ = ++position.batch;
      if (!batch.is_made()) return {};
      auto made = micro_batch_of(batch, settings_, layer_drop_);
      made.flops *= static_cast<double>(passes_);
      return made;
    }
    batches_.reset();
    ++position.epoch;
    position.batch = 0;
    may_be_empty = may_be_empty ? *may_be_empty - 1 : most_empty_epochs(text_);
  }
  if (text_.corpus.size() > 0) {
    const int64_t epochs = most_empty_epochs(text_);
    throw Error("data.train_weights",
                epochs > 0 ? fmt::format("are so small that {} epochs in a row are without a sentence pair", epochs)
                           : "are 0 for each text that has a sentence pair",
                "an epoch uses each text so often: give more");
  }
  const auto& report = text_.corpus.report();
  throw Error("data.train_source",
              fmt::format("there is no sentence pair to train on: of {}, {} had an empty side, {} were too long for "
                          "data.max_length, {} of too unequal lengths",
                          counted(report.pairs + report.empty + report.too_long + report.ratio, "pair"), report.empty,
                          report.too_long, report.ratio),
              "give more text, or set data.max_length, or data.max_length_ratio, higher");
}

int64_t CorpusBatches::most_drawn(int64_t tokens) const {
  if (text_.sampling == 0) return tokens;
  // A batch is padded to the longest row drawn, so whole ones are looked at. Of all that are to come, some are longer.
  constexpr int64_t enough = 1 << 18;
  Batches batches(
      text_.corpus,
      {.batch_tokens = tokens, .weights = text_.weights, .sampling = {text_.vocabularies, text_.sampling, text_.tags}},
      /*epoch=*/0);
  int64_t most = tokens, looked_at = 0;
  for (Batch batch; looked_at < enough && batches.next(batch);) {
    most = std::max(most, batch.source.rows * std::max(batch.source_length, batch.target_length));
    looked_at += batch.source_tokens + batch.target_tokens;
  }
  return most + most / 4;
}

std::optional<BatchSource::Largest> CorpusBatches::largest() const {
  const int64_t length = text_.corpus.longest(text_.weights) + 1;  // with the end token
  // The loss's buffers grow up to 512 tokens, or more where the vocabulary is small.
  const int64_t measurable = std::max<int64_t>(512, (int64_t{1} << 22) / settings_.target_vocabulary_size);
  return Largest{.longest = length,
                 .worth_measuring = measurable,
                 .make =
                     [length, this](int64_t tokens) {
                       const int64_t rows = std::max<int64_t>(1, tokens / length);
                       Batch batch;
                       batch.source = batch.target_input = batch.target_output = IdMatrix(rows, length, 4);
                       batch.source_length = batch.target_length = length;
                       // Counted as if padded, as most are: a mask then takes its memory, too.
                       batch.target_tokens = rows * length;
                       return micro_batch_of(batch, settings_);
                     },
                 .most = [this](int64_t tokens) { return most_drawn(tokens); }};
}

}  // namespace transformer
