#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transformer/base/settings.h"
#include "transformer/text/lines.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// Where training and validation text lies (settings section `data`). Paths are relative to the working directory.
struct DataSettings {
  std::vector<std::string> train_source,
      train_target;  // parallel: the k-th source file belongs to the k-th target file
  std::vector<std::string> validation_source, validation_target;
  int64_t max_length = 256;  // pieces a side; longer pairs are left out of training
  static void describe(Fields<DataSettings>& field);
};

/// What was read and what was left out.
struct CorpusReport {
  int64_t pairs = 0;          // kept
  int64_t empty = 0;          // dropped (kept with keep_all): a side has no pieces
  int64_t too_long = 0;       // dropped (cut with keep_all): a side longer than max_length
  int64_t source_tokens = 0;  // of kept pairs, without begin and end
  int64_t target_tokens = 0;
};

/// Sentence pairs as word-piece ids, in the order of the files, in two flat arrays. Spaces at the ends of a line are no
/// part of its sentence.
class Corpus {
 public:
  struct Options {
    int64_t max_length = 256;  // pieces a side; longer pairs are dropped and counted
    bool keep_all = false;     // validation: drop nothing (overlong pairs are cut, empty ones kept)
  };
  /// Reads and encodes parallel files (plain or .gz), with as many threads as the machine has cores. Throws Error
  /// naming the file when one is missing or is no text; naming file and line for broken UTF-8; naming both counts when
  /// a pair of files has unequal line counts, or when there are not as many source files as target files.
  static Corpus read(const std::vector<std::string>& source_files, const std::vector<std::string>& target_files,
                     const Vocabulary& source_vocabulary, const Vocabulary& target_vocabulary, const Options& options);

  int64_t size() const { return static_cast<int64_t>(source_offsets_.size()) - 1; }
  /// Piece ids of one side of one pair, without begin and end.
  std::vector<int64_t> source(int64_t pair) const;
  std::vector<int64_t> target(int64_t pair) const;
  /// The same without a copy.
  std::span<const int32_t> source_ids(int64_t pair) const;
  std::span<const int32_t> target_ids(int64_t pair) const;
  int64_t source_length(int64_t pair) const { return source_offsets_[pair + 1] - source_offsets_[pair]; }
  int64_t target_length(int64_t pair) const { return target_offsets_[pair + 1] - target_offsets_[pair]; }
  const CorpusReport& report() const { return report_; }

 private:
  std::vector<int32_t> source_ids_, target_ids_;
  std::vector<int64_t> source_offsets_{0}, target_offsets_{0};
  CorpusReport report_;
};

}  // namespace transformer
