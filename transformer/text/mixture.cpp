#include "transformer/text/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/text/random.h"

namespace transformer {

namespace {

// Pairs of a block: one in a small corpus, so that its pairs mix freely; in a large one enough for few disk accesses
// and a short list of blocks.
int64_t block_of(int64_t size) {
  return std::clamp<int64_t>(size / 4096, 1, 1024);
}

// Where in its corpus's stream `epoch` begins. Rounded, since a product a little below a whole number, cut off, would
// be one too small.
int64_t stream_position(int64_t epoch, double weight, int64_t size) {
  return std::llround(static_cast<double>(epoch) * weight * static_cast<double>(size));
}

// Adds the pairs of corpus `corpus`, the first of which has the number `start`, that an epoch takes.
void add_ranges(const Mixture& mixture, size_t corpus, int64_t start, int64_t epoch, std::vector<PairRange>& ranges) {
  const int64_t size = mixture.sizes[corpus];
  const double weight = mixture.weights.empty() ? 1 : mixture.weights[corpus];
  const int64_t begin = stream_position(epoch, weight, size), end = stream_position(epoch + 1, weight, size);
  if (begin >= end) return;
  const int64_t block = block_of(size);
  std::vector<int64_t> blocks(static_cast<size_t>((size + block - 1) / block));
  for (int64_t pass = begin / size; pass * size < end; ++pass) {
    std::iota(blocks.begin(), blocks.end(), 0);
    if (mixture.shuffle) {
      Random(mixture.seed, uint64_t{corpus}, static_cast<uint64_t>(pass), uint64_t{0}).shuffle(blocks);
    }
    int64_t position = pass * size;  // of the block's first pair in the stream
    for (const int64_t number : blocks) {
      const int64_t first = number * block, count = std::min(block, size - first);
      const int64_t from = std::max(begin, position), to = std::min(end, position + count);
      if (from < to) ranges.push_back({start + first + from - position, to - from});
      position += count;
    }
  }
}

}  // namespace

std::vector<std::vector<PairRange>> Mixture::pools(int64_t epoch, int64_t pool_pairs) const {
  std::vector<PairRange> ranges;
  int64_t start = 0;
  for (size_t corpus = 0; corpus < sizes.size(); start += sizes[corpus++]) {
    add_ranges(*this, corpus, start, epoch, ranges);
  }
  int64_t total = 0;
  for (const auto& range : ranges) total += range.count;
  const int64_t count = (total + pool_pairs - 1) / pool_pairs;
  if (shuffle && count > 1) Random(seed, static_cast<uint64_t>(epoch), uint64_t{0}).shuffle(ranges);

  std::vector<std::vector<PairRange>> pools;
  int64_t taken = 0;
  auto next = ranges.cbegin();
  for (int64_t pool = 1; pool <= count; ++pool) {
    auto& mine = pools.emplace_back();
    for (; next != ranges.cend() && taken < total / count * pool; taken += (next++)->count) mine.push_back(*next);
    if (pool == count) mine.insert(mine.end(), next, ranges.cend());  // what the division left over
    std::sort(mine.begin(), mine.end());
  }
  return pools;
}

void check_weights(const std::vector<double>& weights, size_t corpora) {
  const std::string where = "data.train_weights";
  if (weights.empty()) return;
  if (weights.size() != corpora) {
    throw Error(where,
                fmt::format("{} for {} of training files", counted(weights.size(), "weight"), counted(corpora, "pair")),
                "give one for each, in the order of the files, or none");
  }
  for (const double weight : weights) {
    if (!(weight >= 0 && weight <= Mixture::largest_weight)) {
      throw Error(where, fmt::format("{} is no weight", weight),
                  fmt::format("a weight says how often an epoch uses a corpus: from 0 to {}", Mixture::largest_weight));
    }
  }
  if (std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 0; })) {
    throw Error(where, "all are 0, which leaves nothing to train on", "raise at least one");
  }
}

}  // namespace transformer
