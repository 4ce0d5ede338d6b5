#include "transformer/training/corpus_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transformer/architecture/cost.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/model/tensors.h"

namespace transformer {

at::Tensor tensor_of(const IdMatrix& ids) {
  return id_tensor(ids.rows, ids.columns, ids.ids);
}

MicroBatch micro_batch_of(const Batch& batch, const ModelSettings& settings) {
  const auto cost = count_flops(settings, {.rows = batch.source.rows,
                                           .source_length = batch.source_length,
                                           .target_length = batch.target_length,
                                           .projected_tokens = batch.target_tokens});
  return {.tensors = {tensor_of(batch.source), tensor_of(batch.target_input), tensor_of(batch.target_output)},
          .items = batch.target_tokens,
          .source_tokens = batch.source_tokens,
          .target_tokens = batch.target_tokens,
          .flops = static_cast<double>(cost.training())};
}

CorpusBatches::CorpusBatches(TrainingText text, const ModelSettings& settings, int64_t passes)
    : text_(std::move(text)), settings_(settings), passes_(passes) {}

void CorpusBatches::begin(const Plan& plan) {
  plan_ = plan;
}

MicroBatch CorpusBatches::next(int64_t number, BatchPosition& position) {
  Batch batch;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!batches_ || epoch_ != position.epoch || batch_ != position.batch) {
      batches_.emplace(text_.corpus,
                       Batches::Options{.batch_tokens = plan_.tokens,
                                        .seed = plan_.seed,
                                        .weights = text_.weights,
                                        .share = plan_.rank,
                                        .shares = plan_.ranks,
                                        .step = plan_.count,
                                        .taken = number,
                                        .sampling = {text_.vocabularies, text_.sampling}},
                       position.epoch, position.batch);
    }
    if (batches_->next(batch)) {
      epoch_ = position.epoch;
      batch_ = ++position.batch;
      if (!batch.is_made()) return {};
      auto made = micro_batch_of(batch, settings_);
      made.flops *= static_cast<double>(passes_);
      return made;
    }
    batches_.reset();
    ++position.epoch;
    position.batch = 0;
  }
  const auto& report = text_.corpus.report();
  throw Error("data.train_source",
              fmt::format("there is no sentence pair to train on: of {}, {} had an empty side, {} were too long for "
                          "data.max_length, {} of too unequal lengths",
                          counted(report.pairs + report.empty + report.too_long + report.ratio, "pair"), report.empty,
                          report.too_long, report.ratio),
              "give more text, or set data.max_length, or data.max_length_ratio, higher");
}

std::optional<BatchSource::Largest> CorpusBatches::largest() const {
  const int64_t length = text_.corpus.longest() + 1;  // with the end token
  // The loss's buffers grow up to 512 tokens, or more where the vocabulary is small.
  const int64_t measurable = std::max<int64_t>(512, (int64_t{1} << 22) / settings_.target_vocabulary_size);
  return Largest{.longest = length, .worth_measuring = measurable, .make = [length, this](int64_t tokens) {
                   const int64_t rows = std::max<int64_t>(1, tokens / length);
                   Batch batch;
                   batch.source = batch.target_input = batch.target_output = IdMatrix(rows, length, 4);
                   batch.source_length = batch.target_length = length;
                   // Counted as if padded, as most are: a mask then takes its memory, too.
                   batch.target_tokens = rows * length;
                   return micro_batch_of(batch, settings_);
                 }};
}

}  // namespace transformer
