#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

/// Bytes of the longest line, its end left out, that any reader of lines takes: a hundred times the longest sentence,
/// and little memory for a file of one line, which may be far smaller on the disk than it is here.
inline constexpr size_t most_line_bytes = size_t{1} << 20;
/// What a text may begin with that is no part of it.
inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
/// Those bytes with what may still go from its ends: a byte order mark and a carriage return.
inline constexpr size_t most_raw_line_bytes = most_line_bytes + byte_order_mark.size() + 1;

/// Reads a text file (plain or gzip, told apart by content) line by line, so that a corpus need not fit in memory.
///
/// A line ends with "\n" or "\r\n"; the last one may end with the file. A byte order mark at the start is dropped.
class LineReader {
 public:
  /// Throws Error when the file is missing, a folder, or may not be read.
  explicit LineReader(const std::filesystem::path& file);
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  /// The next line without its end; false at the end of the file. Throws Error naming file and line for bytes that are
  /// no UTF-8, for lines longer than `most_line_bytes`, of which no more than that is held, and for gzip data that are
  /// damaged or followed by what is none; Failure where reading fails.
  bool next(std::string& line);
  /// How many lines were read.
  int64_t count() const;
  /// How much of the file was read, from 0 to 1; nothing where its size is not known, as a pipe's.
  std::optional<double> share() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// What to do about a line that is not UTF-8, as messages have it: of which encoding it looks.
std::string not_utf8_remedy(std::string_view line);

/// All lines of a text file (plain or gzip), read as by LineReader.
std::vector<std::string> read_lines(const std::filesystem::path& file);

}  // namespace transformer
