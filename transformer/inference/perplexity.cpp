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

struct Pair {
  std::vector<int64_t> source, target;  // without begin and end
};

/// log p of each pair's target, its end included.
std::vector<double> judge(const InferenceModel& model, const std::vector<Pair>& pairs) {
  InferenceBatch batch(model);
  std::vector<std::vector<int64_t>> sources, reads, writes;
  for (const auto& pair : pairs) {
    sources.push_back(written_tokens(pair.source));
    reads.push_back(read_tokens(pair.target));
    writes.push_back(written_tokens(pair.target));
  }
  std::vector<InferenceBatch::Source> given;
  for (const auto& source : sources) given.push_back({.pieces = source});
  const auto places = batch.add(given);
  std::vector<double> sums(pairs.size());
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
    if (rows.empty()) return sums;
    const auto log_probabilities = batch.score(rows, next);
    for (size_t row = 0; row < of.size(); ++row) sums[of[row]] += log_probabilities[row];
  }
}

/// log p of `count` pairs, which `pair` gives by their index, shared out among workers. `length` orders them.
template <class Length, class PairOf>
std::vector<double> judge_all(const InferenceModel& model, size_t count, Length length, PairOf pair, int64_t threads) {
  std::vector<size_t> order(count);  // the longest first, pairs of one length together
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return length(a) > length(b); });
  std::vector<double> results(count);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (size_t first; (first = next.fetch_add(pairs_at_once)) < count;) {
        const auto indices = std::span(order).subspan(first, std::min(pairs_at_once, count - first));
        std::vector<Pair> pairs;
        for (const size_t index : indices) pairs.push_back(pair(index));
        const auto found = judge(model, pairs);
        for (size_t i = 0; i < indices.size(); ++i) results[indices[i]] = found[i];
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> workers;
    const size_t most = count / pairs_at_once + 1;
    for (size_t i = 1; i < std::min(static_cast<size_t>(std::max<int64_t>(threads, 1)), most); ++i) {
      workers.emplace_back(work);
    }
    work();
  }
  if (error) std::rethrow_exception(error);
  return results;
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
  const auto length = [&](size_t pair) { return corpus.target_length(static_cast<int64_t>(pair)); };
  const auto pair = [&](size_t index) {
    const auto source = corpus.source_ids(static_cast<int64_t>(index));
    const auto target = corpus.target_ids(static_cast<int64_t>(index));
    return Pair{{source.begin(), source.end()}, {target.begin(), target.end()}};
  };
  const auto found = judge_all(model, static_cast<size_t>(corpus.size()), length, pair, threads);
  int64_t tokens = 0;
  for (int64_t i = 0; i < corpus.size(); ++i) tokens += corpus.target_length(i) + 1;
  return perplexity_of(-std::accumulate(found.begin(), found.end(), 0.0), tokens);
}

std::vector<double> log_probabilities(const InferenceModel& model, std::span<const std::vector<int64_t>> sources,
                                      std::span<const std::vector<int64_t>> targets, int64_t threads) {
  const auto length = [&](size_t pair) { return targets[pair].size(); };
  const auto pair = [&](size_t index) { return Pair{sources[index], targets[index]}; };
  return judge_all(model, sources.size(), length, pair, threads);
}

}  // namespace transformer
