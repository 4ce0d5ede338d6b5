#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "transformer/text/lines.h"

namespace transformer {

/// Reads two parallel files together: line n of one belongs to line n of the other.
class ParallelLines {
 public:
  /// Throws Error as LineReader does.
  ParallelLines(const std::filesystem::path& source_file, const std::filesystem::path& target_file);

  /// The next line of both; false at the end of both. Throws Error as LineReader::next does, and one naming both counts
  /// when one file has more lines than the other.
  bool next(std::string& source, std::string& target);
  /// How much of the source was read, as LineReader::share has it.
  std::optional<double> share() const { return source_.share(); }

 private:
  std::filesystem::path source_file_, target_file_;
  LineReader source_, target_;
};

/// How many lines two parallel files have. Throws Error as ParallelLines does.
int64_t count_pairs(const std::filesystem::path& source_file, const std::filesystem::path& target_file);

/// Throws Error unless there are as many target files as source files.
void check_file_counts(const std::vector<std::string>& source_files, const std::vector<std::string>& target_files);

}  // namespace transformer
