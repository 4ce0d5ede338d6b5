#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace transformer {

/// What was read and what was left out.
struct CorpusReport {
  int64_t pairs = 0;          // kept
  int64_t empty = 0;          // dropped (kept with keep_all): a side has no pieces
  int64_t too_long = 0;       // dropped (cut with keep_all): a side longer than max_length
  int64_t ratio = 0;          // dropped (kept with keep_all): one side max_length_ratio times as long as the other
  int64_t source_tokens = 0;  // of kept pairs, without begin and end
  int64_t target_tokens = 0;  // the same of the target
  std::string checksum;       // of the text as it was read, lines of both sides in order, whatever was kept
  int64_t from_cache = 0;     // pairs of files that needed no tokenising
  std::vector<std::string> warnings;  // what was wrong with the cache and has been put right

  /// With keep_all: how many pairs are judged up to `max_length` pieces alone, in a sentence.
  std::string cut_text(int64_t max_length) const;
};

/// The sentence pairs of one pair of files: the ids of all sentences in a row, and where each begins.
struct CorpusPart {
  std::span<const int32_t> source_ids, target_ids;          // without begin and end
  std::span<const int64_t> source_offsets, target_offsets;  // one more than there are pairs
  int64_t longest = 0;                                      // pieces of the longest side of all
  CorpusReport report;                                      // of these two files alone
  std::shared_ptr<const void> storage;                      // what the spans point into

  /// Pairs that were kept.
  int64_t pairs() const { return static_cast<int64_t>(source_offsets.size()) - 1; }
};

/// Takes the pieces of one pair after the other.
using TakePair = std::function<void(std::span<const int32_t> source, std::span<const int32_t> target)>;

}  // namespace transformer
