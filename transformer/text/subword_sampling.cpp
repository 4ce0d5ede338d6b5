#include "transformer/text/subword_sampling.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

namespace transformer {

namespace {

bool has_unknown(const std::vector<int64_t>& ids) {
  return std::find(ids.begin(), ids.end(), Vocabulary::unknown) != ids.end();
}

using Tags = std::vector<std::vector<int64_t>>;

std::vector<int64_t> sampled(const Vocabulary& vocabulary, std::vector<int64_t> ids, double alpha, int64_t longest,
                             const Tags& tags) {
  if (has_unknown(ids)) return ids;
  // The piece of a language stands before the text and is none of it. Nor is a tag, which a model is always told in the
  // same pieces.
  auto text = std::find_if_not(ids.begin(), ids.end(), [&](int64_t id) { return vocabulary.is_control(id); });
  const auto written = [&](auto first, auto last) { return vocabulary.decode({first, last}); };
  for (const auto& tag : tags) {
    if (ids.end() - text <= std::ssize(tag) || !std::equal(tag.begin(), tag.end(), text)) continue;
    const auto behind = text + std::ssize(tag);
    // Not the beginning of a longer word.
    if (written(text, ids.end()) != fmt::format("{} {}", written(text, behind), written(behind, ids.end()))) continue;
    text = behind;
    break;
  }
  auto drawn = vocabulary.sample(written(text, ids.end()), alpha);
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
  std::exception_ptr error;
  std::thread([&] {
    try {
      const int64_t longest = corpus.longest(weights);
      for (const int64_t pair : pairs) {
        result.push_back(
            {sampled(*sampling.vocabularies.source, corpus.source(pair), sampling.alpha, longest, sampling.tags),
             sampled(*sampling.vocabularies.target, corpus.target(pair), sampling.alpha, longest, {})});
      }
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return result;
}

}  // namespace transformer
