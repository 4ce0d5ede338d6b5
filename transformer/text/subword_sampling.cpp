#include "transformer/text/subword_sampling.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

namespace transformer {

namespace {

bool has_unknown(const std::vector<int64_t>& ids) {
  return std::find(ids.begin(), ids.end(), Vocabulary::unknown) != ids.end();
}

std::vector<int64_t> sampled(const Vocabulary& vocabulary, std::vector<int64_t> ids, double alpha, int64_t longest,
                             const std::vector<int64_t>& tag = {}) {
  if (has_unknown(ids)) return ids;
  // The piece of a language stands before the text and is none of it. Nor is a tag, which a model is always told in the
  // same pieces.
  auto text = std::find_if_not(ids.begin(), ids.end(), [&](int64_t id) { return vocabulary.is_control(id); });
  if (std::ssize(tag) <= ids.end() - text && std::equal(tag.begin(), tag.end(), text)) text += std::ssize(tag);
  auto drawn = vocabulary.sample(vocabulary.decode({text, ids.end()}), alpha);
  drawn.insert(drawn.begin(), ids.begin(), text);
  return has_unknown(drawn) || static_cast<int64_t>(drawn.size()) > longest ? ids : drawn;
}

}  // namespace

std::vector<SampledPair> sample_pieces(const Corpus& corpus, const std::vector<int64_t>& pairs,
                                       const SubwordSampling& sampling, uint64_t seed,
                                       const std::vector<double>& weights) {
  // SentencePiece draws from a generator that each thread has for itself and that takes the seed when the thread first
  // draws. Repeatable draws thus need a thread of their own, and the seed to themselves meanwhile.
  static std::mutex seed_in_use;
  const std::lock_guard lock(seed_in_use);
  sentencepiece::SetRandomGeneratorSeed(static_cast<unsigned>(seed ^ seed >> 32));
  std::vector<SampledPair> result;
  const auto& tags = sampling.tags;
  const std::vector<int64_t> none;
  auto ends = corpus.sizes();  // of each pair of files
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  std::exception_ptr error;
  std::thread([&] {
    try {
      const int64_t longest = corpus.longest(weights);
      for (const int64_t pair : pairs) {
        const auto file = std::upper_bound(ends.begin(), ends.end(), pair) - ends.begin();
        const auto& tag = tags.empty() ? none : tags.at(static_cast<size_t>(file));
        result.push_back({sampled(*sampling.vocabularies.source, corpus.source(pair), sampling.alpha, longest, tag),
                          sampled(*sampling.vocabularies.target, corpus.target(pair), sampling.alpha, longest)});
      }
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return result;
}

}  // namespace transformer
