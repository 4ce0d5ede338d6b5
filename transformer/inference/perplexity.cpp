#include "transformer/inference/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "transformer/base/threads.h"
#include "transformer/inference/attention_maps.h"
#include "transformer/inference/beam_search.h"
#include "transformer/inference/inference_batch.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

namespace {

// Pairs that one worker judges together: enough for the products' full speed.
constexpr size_t pairs_at_once = 32;

double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

struct Pair {
  std::vector<int64_t> source;  // as the encoder reads it
  std::vector<int64_t> target;  // without begin and end
};

enum class Judged { log_probability, entropy };

/// That of every token of each pair's target, its end included.
std::vector<std::vector<double>> judge(const InferenceModel& model, const std::vector<Pair>& pairs, Judged judged) {
  InferenceBatch batch(model);
  std::vector<std::vector<int64_t>> reads, writes;
  for (const auto& pair : pairs) {
    reads.push_back(read_tokens(pair.target));
    writes.push_back(written_tokens(pair.target));
  }
  std::vector<InferenceBatch::Source> given;
  for (const auto& pair : pairs) given.push_back({.pieces = pair.source});
  const auto places = batch.add(given);
  std::vector<InferenceBatch::Target> targets;
  for (size_t i = 0; i < pairs.size(); ++i) targets.push_back({places[i], reads[i], writes[i]});
  if (judged == Judged::log_probability) return batch.score(targets);
  std::vector<std::vector<double>> entropies;
  (void)batch.score(targets, &entropies);
  return entropies;
}

/// What `judge` says of `count` pairs, which `pair` gives by their index, shared out among workers. `length` orders
/// them.
template <class Length, class PairOf>
std::vector<std::vector<double>> judge_all(const InferenceModel& model, size_t count, Length length, PairOf pair,
                                           int64_t threads, Judged judged = Judged::log_probability) {
  std::vector<size_t> order(count);  // the longest first, pairs of one length together
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return length(a) > length(b); });
  std::vector<std::vector<double>> results(count);
  in_parallel(count, pairs_at_once, threads, [&](size_t first, size_t last) {
    const auto indices = std::span(order).subspan(first, last - first);
    std::vector<Pair> pairs;
    for (const size_t index : indices) pairs.push_back(pair(index));
    auto found = judge(model, pairs, judged);
    for (size_t i = 0; i < indices.size(); ++i) results[indices[i]] = std::move(found[i]);
  });
  return results;
}

std::vector<std::vector<double>> judge_tokens(const InferenceModel& model,
                                              std::span<const std::vector<int64_t>> sources,
                                              std::span<const std::vector<int64_t>> targets, int64_t threads,
                                              const ToldLanguages& told, Judged judged) {
  const auto length = [&](size_t pair) { return targets[pair].size(); };
  const auto pair = [&](size_t index) { return Pair{told.source(sources[index]), told.target(targets[index])}; };
  auto found = judge_all(model, sources.size(), length, pair, threads, judged);
  if (told.any()) {
    for (auto& scores : found) scores.erase(scores.begin());
  }
  return found;
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
    return Pair{written_tokens({source.begin(), source.end()}), {target.begin(), target.end()}};
  };
  const auto found = judge_all(model, static_cast<size_t>(corpus.size()), length, pair, threads);
  double total = 0;
  int64_t tokens = 0;
  for (const auto& scores : found) {
    total += sum(scores);
    tokens += static_cast<int64_t>(scores.size());
  }
  return perplexity_of(-total, tokens);
}

std::vector<std::vector<double>> token_log_probabilities(const InferenceModel& model,
                                                         std::span<const std::vector<int64_t>> sources,
                                                         std::span<const std::vector<int64_t>> targets, int64_t threads,
                                                         const ToldLanguages& told) {
  return judge_tokens(model, sources, targets, threads, told, Judged::log_probability);
}

std::vector<std::vector<double>> token_entropies(const InferenceModel& model,
                                                 std::span<const std::vector<int64_t>> sources,
                                                 std::span<const std::vector<int64_t>> targets, int64_t threads,
                                                 const ToldLanguages& told) {
  return judge_tokens(model, sources, targets, threads, told, Judged::entropy);
}

double normalised_score(std::span<const double> token_log_probabilities, const DecodingSettings& settings,
                        int64_t told) {
  const auto length = std::ssize(token_log_probabilities) + told;
  return sum(token_log_probabilities) / length_penalty(settings.length_penalty, length, settings.alpha);
}

std::vector<double> log_probabilities(const InferenceModel& model, std::span<const std::vector<int64_t>> sources,
                                      std::span<const std::vector<int64_t>> targets, int64_t threads) {
  std::vector<double> sums;
  for (const auto& scores : token_log_probabilities(model, sources, targets, threads)) sums.push_back(sum(scores));
  return sums;
}

}  // namespace transformer
