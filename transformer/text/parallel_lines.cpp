#include "transformer/text/parallel_lines.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "transformer/base/error.h"

namespace transformer {

ParallelLines::ParallelLines(const std::filesystem::path& source_file, const std::filesystem::path& target_file)
    : source_file_(source_file), target_file_(target_file), source_(source_file), target_(target_file) {}

bool ParallelLines::next(std::string& source, std::string& target) {
  const bool more = source_.next(source);
  if (more == target_.next(target)) return more;
  // What is wrong further on in the longer one is not what is wrong here.
  const auto count = [](LineReader& reader, std::string& line) {
    try {
      while (reader.next(line)) continue;
    } catch (const std::runtime_error&) {
      return fmt::format("at least {}", reader.count());
    }
    return std::to_string(reader.count());
  };
  const auto sources = count(source_, source), targets = count(target_, target);
  throw Error("",
              fmt::format("{} has {} {} but {} has {}", source_file_.string(), sources,
                          sources == "1" ? "line" : "lines", target_file_.string(), targets),
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
