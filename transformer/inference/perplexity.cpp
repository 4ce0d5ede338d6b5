#include "transformer/inference/perplexity.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "transformer/inference/attention_maps.h"
#include "transformer/inference/inference_batch.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

namespace {

// Pairs that one worker judges together: enough for the products' full speed.
constexpr size_t pairs_at_once = 32;

/// -log p of each pair's target, its end included.
void judge(const InferenceModel& model, const Corpus& corpus, std::span<const int64_t> pairs,
           std::vector<double>& losses) {
  InferenceBatch batch(model);
  std::vector<std::vector<int64_t>> sources, reads, writes;
  for (const int64_t pair : pairs) {
    sources.push_back(written_tokens({corpus.source_ids(pair).begin(), corpus.source_ids(pair).end()}));
    reads.push_back(read_tokens({corpus.target_ids(pair).begin(), corpus.target_ids(pair).end()}));
    writes.push_back(written_tokens({corpus.target_ids(pair).begin(), corpus.target_ids(pair).end()}));
  }
  std::vector<InferenceBatch::Source> given;
  for (const auto& source : sources) given.push_back({.pieces = source});
  const auto places = batch.add(given);
  for (size_t position = 0;; ++position) {
    std::vector<InferenceBatch::Row> rows;
    std::vector<int64_t> next;
    std::vector<size_t> of;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (position >= reads[i].size()) continue;
      rows.push_back({places[i], 0, reads[i][position]});
      next.push_back(writes[i][position]);
      of.push_back(i);
    }
    if (rows.empty()) return;
    const auto log_probabilities = batch.score(rows, next);
    for (size_t row = 0; row < of.size(); ++row) {
      losses[static_cast<size_t>(pairs[of[row]])] -= log_probabilities[row];
    }
  }
}

}  // namespace

Perplexity perplexity_of(double sum, int64_t tokens) {
  Perplexity result;
  result.tokens = tokens;
  result.loss = tokens ? sum / static_cast<double>(tokens) : 0;
  result.perplexity = std::exp(result.loss);
  return result;
}

Perplexity perplexity(const InferenceModel& model, const Corpus& corpus, int64_t threads) {
  std::vector<int64_t> order(static_cast<size_t>(corpus.size()));  // the longest first, pairs of one length together
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return corpus.target_length(a) > corpus.target_length(b);
  });
  std::vector<double> losses(order.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (size_t first; (first = next.fetch_add(pairs_at_once)) < order.size();) {
        judge(model, corpus, std::span(order).subspan(first, std::min(pairs_at_once, order.size() - first)), losses);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next = order.size();
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int64_t i = 1; i < std::min<int64_t>(threads, corpus.size() / static_cast<int64_t>(pairs_at_once) + 1); ++i) {
      workers.emplace_back(work);
    }
    work();
  }
  if (error) std::rethrow_exception(error);
  int64_t tokens = 0;
  for (int64_t pair = 0; pair < corpus.size(); ++pair) tokens += corpus.target_length(pair) + 1;
  return perplexity_of(std::accumulate(losses.begin(), losses.end(), 0.0), tokens);
}

}  // namespace transformer
