#include "transformer/text/lexicon.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace transformer {

namespace {

/// The pairs of pieces that occur together, sorted, and what is known of each.
struct Table {
  std::vector<size_t> starts;      // of each source piece's targets; one more, of the end
  std::vector<int32_t> targets;    // ascending within a source piece
  std::vector<float> probability;  // of the target, given the source piece

  size_t find(int64_t source, int32_t target) const {
    const auto first = targets.begin() + static_cast<std::ptrdiff_t>(starts[static_cast<size_t>(source)]),
               last = targets.begin() + static_cast<std::ptrdiff_t>(starts[static_cast<size_t>(source) + 1]);
    return static_cast<size_t>(std::lower_bound(first, last, target) - targets.begin());
  }
};

/// Sorts what was added and drops what is there twice, whenever that has doubled.
class PairSet {
 public:
  void add(int64_t source, int32_t target) {
    pairs_.push_back(static_cast<uint64_t>(source) << 32 | static_cast<uint32_t>(target));
    if (pairs_.size() >= limit_) {
      shrink();
      limit_ = std::max<size_t>(smallest_limit, 2 * pairs_.size());
    }
  }
  const std::vector<uint64_t>& sorted() {
    shrink();
    return pairs_;
  }

 private:
  static constexpr size_t smallest_limit = size_t{1} << 24;
  void shrink() {
    std::sort(pairs_.begin(), pairs_.end());
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  }
  std::vector<uint64_t> pairs_;
  size_t limit_ = smallest_limit;
};

}  // namespace

Lexicon Lexicon::learn(const Corpus& corpus, int64_t source_size, int64_t target_size, const Options& options) {
  const int64_t nothing = source_size;  // what a target's piece may come from besides
  std::vector<int64_t> chosen;
  int64_t too_long = 0;
  const int64_t some = std::min(corpus.size(), options.most_pairs);
  for (int64_t i = 0; i < some; ++i) {
    const auto pair =
        static_cast<int64_t>(static_cast<double>(i) * static_cast<double>(corpus.size()) / static_cast<double>(some));
    const int64_t longer = std::max(corpus.source_length(pair), corpus.target_length(pair));
    if (longer > options.most_pieces) {
      ++too_long;
    } else if (corpus.target_length(pair) > 0) {
      chosen.push_back(pair);
    }
  }

  PairSet together;
  std::vector<int64_t> counts(static_cast<size_t>(target_size));
  for (const int64_t pair : chosen) {
    for (const int32_t target : corpus.target_ids(pair)) {
      ++counts[static_cast<size_t>(target)];
      together.add(nothing, target);
      for (const int32_t source : corpus.source_ids(pair)) together.add(source, target);
    }
  }
  Table table;
  table.starts.assign(static_cast<size_t>(source_size) + 2, 0);
  for (const uint64_t pair : together.sorted()) {
    ++table.starts[static_cast<size_t>(pair >> 32) + 1];
    table.targets.push_back(static_cast<int32_t>(pair & 0xffffffffu));
  }
  std::partial_sum(table.starts.begin(), table.starts.end(), table.starts.begin());
  table.probability.assign(table.targets.size(), 1);

  std::vector<double> expected(table.targets.size());
  std::vector<size_t> places;
  for (int64_t iteration = 0; iteration < options.iterations; ++iteration) {
    std::fill(expected.begin(), expected.end(), 0.0);
    for (const int64_t pair : chosen) {
      const auto sources = corpus.source_ids(pair);
      for (const int32_t target : corpus.target_ids(pair)) {
        places.assign(1, table.find(nothing, target));
        for (const int32_t source : sources) places.push_back(table.find(source, target));
        double sum = 0;
        for (const size_t place : places) sum += static_cast<double>(table.probability[place]);
        for (const size_t place : places) expected[place] += static_cast<double>(table.probability[place]) / sum;
      }
    }
    for (size_t source = 0; source + 1 < table.starts.size(); ++source) {
      const auto of_source =
          std::span(expected).subspan(table.starts[source], table.starts[source + 1] - table.starts[source]);
      const double sum = std::accumulate(of_source.begin(), of_source.end(), 0.0);
      for (size_t i = 0; i < of_source.size(); ++i) {
        table.probability[table.starts[source] + i] = static_cast<float>(of_source[i] / sum);
      }
    }
  }

  Lexicon lexicon;
  lexicon.pairs_ = std::ssize(chosen);
  lexicon.too_long_ = too_long;
  lexicon.entries_.resize(static_cast<size_t>(source_size));
  for (size_t source = 0; source < lexicon.entries_.size(); ++source) {
    auto& entries = lexicon.entries_[source];
    for (size_t i = table.starts[source]; i < table.starts[source + 1]; ++i) {
      entries.push_back({table.targets[i], table.probability[i]});
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.probability > b.probability; });
  }
  for (int32_t target = 0; target < target_size; ++target) {
    if (counts[static_cast<size_t>(target)] > 0) lexicon.frequent_.push_back(target);
  }
  std::stable_sort(lexicon.frequent_.begin(), lexicon.frequent_.end(), [&](int32_t a, int32_t b) {
    return counts[static_cast<size_t>(a)] > counts[static_cast<size_t>(b)];
  });
  return lexicon;
}

}  // namespace transformer
