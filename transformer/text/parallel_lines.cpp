#include "transformer/text/parallel_lines.h"

#include <fmt/format.h>

#include "transformer/base/counted.h"
#include "transformer/base/error.h"

namespace transformer {

ParallelLines::ParallelLines(const std::filesystem::path& source_file, const std::filesystem::path& target_file)
    : source_file_(source_file), target_file_(target_file), source_(source_file), target_(target_file) {}

bool ParallelLines::next(std::string& source, std::string& target) {
  const bool more = source_.next(source);
  if (more == target_.next(target)) return more;
  while (source_.next(source)) continue;
  while (target_.next(target)) continue;
  throw Error("",
              fmt::format("{} has {} but {} has {}", source_file_.string(), counted(source_.count(), "line"),
                          target_file_.string(), target_.count()),
              "line n of one must be the translation of line n of the other");
}

int64_t count_pairs(const std::filesystem::path& source_file, const std::filesystem::path& target_file) {
  ParallelLines lines(source_file, target_file);
  std::string source, target;
  int64_t count = 0;
  while (lines.next(source, target)) ++count;
  return count;
}

void check_file_counts(const std::vector<std::string>& source_files, const std::vector<std::string>& target_files) {
  if (source_files.size() == target_files.size()) return;
  throw Error("", fmt::format("{} source files but {} target files", source_files.size(), target_files.size()),
              "every source file needs its translation: name the files in the same order on both sides");
}

}  // namespace transformer
