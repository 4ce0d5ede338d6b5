#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "transformer/text/corpus_part.h"

namespace transformer {

/// Tokenised text in a folder, so that text is tokenised once and then mapped into memory, however often it is read.
///
/// The folder holds:
///
///     KEY/source.ids, KEY/target.ids          int32, the ids of all sentences in a row
///     KEY/source.offsets, KEY/target.offsets  int64, where each sentence begins, and where the last ends
///     KEY/corpus.json                         format, counts, the text's checksum, sizes and checksums of the four
///     KEY.lock                                held while KEY is made
///     KEY.partial/                            being made, or left by a process that was killed
///     texts.json                              checksums of text files with size, times and inode
///
/// One entry a pair of text files; its KEY is a checksum of both files' bytes and of all that the ids depend on
/// besides. The checksum of a file that has the size, inode, time of writing and time of change (which nobody can set)
/// that it had when it was last read is not taken again: only a file system that keeps no time of change, or a clock
/// that was set back to the very nanosecond, can hide a rewrite from that. An entry appears whole or not at all.
/// Several processes may use one folder at once: of those that need the same entry one makes it and the others wait.
/// Nothing is ever deleted but damaged entries and what killed processes left; the folder, or any entry, may be removed
/// while nobody starts to read it.
///
/// An entry's files are mapped, and compared with their sizes and checksums when they are. From then on their length is
/// relied on: the system ends a process (SIGBUS) that reads beyond the end of a file that was cut meanwhile, or from a
/// disk that fails. No process of ours can bring that about. Entries are written under another name and never written
/// to once they have theirs, and a damaged one is renamed and deleted, not cut; what is mapped of it stays. Somebody
/// else who cuts a file in place ends the runs that use it, as pulling the disk would, and they go on from their last
/// checkpoint with an entry made anew.
class CorpusCache {
 public:
  /// What an entry consists of.
  static const std::set<std::string>& file_names();

  /// What the ids depend on besides the text.
  struct Recipe {
    std::string text;                                                // the same for the same ids
    int64_t source_vocabulary_size = 0, target_vocabulary_size = 0;  // beyond which ids are damage
  };
  /// Passes every pair to the function that it is given, and reports.
  using Tokenise = std::function<CorpusReport(const TakePair&)>;

  /// Makes the folder where it is missing. Throws Error when it cannot.
  explicit CorpusCache(std::filesystem::path folder);

  /// The entry of a pair of regular files, made with `tokenise` where it is missing or damaged (report.from_cache
  /// tells, and report.warnings holds what was wrong). Throws what `tokenise` throws; Error when a text file cannot be
  /// read; Failure naming the file when one cannot be written, or when a text changes meanwhile. Then no entry is left.
  CorpusPart part(const std::filesystem::path& source_file, const std::filesystem::path& target_file,
                  const Recipe& recipe, const Tokenise& tokenise) const;

 private:
  CorpusPart make(const std::filesystem::path& entry, bool alone, const Recipe& recipe, const Tokenise& tokenise) const;

  std::filesystem::path folder_;
};

}  // namespace transformer
