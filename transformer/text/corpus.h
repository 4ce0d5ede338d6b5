#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transformer/base/settings.h"
#include "transformer/text/corpus_part.h"
#include "transformer/text/lines.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// Where training and validation text lies (settings section `data`). Paths are relative to the working directory.
struct DataSettings {
  /// Parallel: the k-th source file belongs to the k-th target file.
  std::vector<std::string> train_source, train_target;
  std::vector<double> train_weights;    // how often an epoch uses each pair of training files; empty: once
  std::vector<std::string> train_tags;  // what every source of a pair of training files begins with; empty: nothing
  std::vector<std::string> validation_source, validation_target;  // what validations judge by
  int64_t max_length = 256;     // pieces a side; longer pairs are left out of training
  double max_length_ratio = 0;  // of a pair's longer side to its shorter; other pairs are left out; 0: no limit
  std::string source_language, target_language;  // of models that know many (Vocabulary::Languages)
  std::string cache;                             // folder for tokenised text; empty: in the run's folder
  // A vocabulary to use instead of learning one: a file, or the source's and the target's; empty: one is learned.
  std::vector<std::string> vocabulary;
  static void describe(Fields<DataSettings>& field);
};

/// Throws Error naming data.train_tags unless there are none or one for each of `corpora` pairs of files, each empty or
/// a word that a vocabulary can hold as one piece: UTF-8 without blanks, control characters and commas.
void check_tags(const std::vector<std::string>& tags, size_t corpora);

/// Those that are not empty, each once.
std::vector<std::string> distinct_tags(std::vector<std::string> tags);

/// The tags that a model learned its texts with: data.train_tags of its config.yaml, each once. None of a file that
/// says nothing of them. Throws what Document::read throws.
std::vector<std::string> tags_of_model(const std::filesystem::path& config_yaml);

/// Sentence pairs as word-piece ids, in the order of the files. Spaces at the ends of a line are no part of its
/// sentence. Copies share the ids.
class Corpus {
 public:
  /// Only pairs with a longer side than this are judged by their ratio: that of short ones says little ("Hi!" may be
  /// three words elsewhere). Of 164,062 pairs of careful translations a ratio of 1.5 drops 6.5 % without this bound and
  /// 4.0 % with it; a ratio of 2 drops 0.3 % and 0.2 %.
  static constexpr int64_t ratio_judged_above = 10;

  /// What is read, and where it is kept.
  struct Options {
    int64_t max_length = 256;     // pieces a side; longer pairs are dropped and counted
    bool keep_all = false;        // validation: drop nothing (overlong pairs are cut, others kept)
    double max_length_ratio = 0;  // pairs with a side more than this times as long as the other are dropped; 0: none
    std::filesystem::path cache = {};  // folder of tokenised text (CorpusCache); empty: ids are kept in memory
    /// Told, while text is tokenised, how many pairs were read, and how much that is of all the text, from 0 to 1,
    /// where its size is known.
    std::function<void(int64_t pairs, std::optional<double> share)> progressed = {};
    /// What every text that is not blank begins with, of vocabularies of many languages; empty: nothing.
    std::string source_language = {}, target_language = {};
    /// A word that every source which is not blank begins with, of each pair of files ("" for none), before what names
    /// its language as a word of it does, behind a piece of a language's own; empty: none anywhere.
    std::vector<std::string> tags = {};
  };
  /// Reads and encodes parallel files (plain or .gz), with as many threads as the machine has cores, 16 at most; with a
  /// cache only those that are not in it yet. Ids from a cache take no memory of the process's own, however many there
  /// are. Throws Error naming the file when one is missing or is no text; naming file and line for broken UTF-8; naming
  /// both counts when a pair of files has unequal line counts, or when there are not as many source files as target
  /// files. Throws Error for a language that the vocabulary has not, or that its model reads behind the end, where a
  /// corpus has nothing, and for tags as check_tags. Throws Failure naming the file when the cache cannot be written.
  static Corpus read(const std::vector<std::string>& source_files, const std::vector<std::string>& target_files,
                     const Vocabulary& source_vocabulary, const Vocabulary& target_vocabulary, const Options& options);

  /// Pairs of ids that somebody else made: sources[i] and targets[i], without begin and end; nothing is dropped. Throws
  /// Error where there are not as many of one as of the other, or for an id below 0 or above 2^31 - 1.
  static Corpus of(const std::vector<std::vector<int64_t>>& sources, const std::vector<std::vector<int64_t>>& targets);

  /// Pairs.
  int64_t size() const { return starts_.back(); }
  /// Pairs of each pair of files.
  std::vector<int64_t> sizes() const;
  /// Pieces of the longest side of all pairs that an epoch uses: those of files of weight 0 (Mixture) do not count.
  /// Throws what check_weights throws.
  int64_t longest(const std::vector<double>& weights = {}) const;

  /// Piece ids of one side of one pair, without begin and end.
  std::vector<int64_t> source(int64_t pair) const;
  /// Of the target.
  std::vector<int64_t> target(int64_t pair) const;
  /// The same without a copy.
  std::span<const int32_t> source_ids(int64_t pair) const {
    const auto& part = part_of(pair);
    return ids_of(part.source_ids, part.source_offsets, pair);
  }
  /// Of the target.
  std::span<const int32_t> target_ids(int64_t pair) const {
    const auto& part = part_of(pair);
    return ids_of(part.target_ids, part.target_offsets, pair);
  }
  /// Pieces of the pair's source, without begin and end.
  int64_t source_length(int64_t pair) const {
    const auto& offsets = part_of(pair).source_offsets;
    return offsets[pair + 1] - offsets[pair];
  }
  /// The same of its target.
  int64_t target_length(int64_t pair) const {
    const auto& offsets = part_of(pair).target_offsets;
    return offsets[pair + 1] - offsets[pair];
  }
  /// What was read, and what was left out.
  const CorpusReport& report() const { return report_; }
  /// Identifies the text that was read: every line of every pair of files in order, the same whether plain or
  /// compressed, whatever the vocabulary, and whichever pairs were kept; or the ids it was made of. 32 hexadecimal
  /// digits; from a cache it costs nothing.
  std::string checksum() const;

 private:
  void add(CorpusPart part);

  // The part that holds `pair`, which becomes the pair's number in it.
  const CorpusPart& part_of(int64_t& pair) const {
    const auto part = std::upper_bound(starts_.begin(), starts_.end(), pair) - starts_.begin() - 1;
    pair -= starts_[part];
    return parts_[part];
  }
  static std::span<const int32_t> ids_of(std::span<const int32_t> ids, std::span<const int64_t> offsets, int64_t pair) {
    return ids.subspan(offsets[pair], offsets[pair + 1] - offsets[pair]);
  }

  std::vector<CorpusPart> parts_;
  std::vector<int64_t> starts_{0};  // of each part's pairs; the last: of all
  CorpusReport report_;
};

}  // namespace transformer
