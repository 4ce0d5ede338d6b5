#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/text/markup.h"

namespace transformer {

/// What programs call the input that "-" or no name stands for.
inline constexpr const char* standard_input = "standard input";

/// Whether `file`, as an option gives it, stands for a standard stream.
inline bool is_standard(const std::string& file) {
  return file.empty() || file == "-";
}

/// The file that a program reads where an option gives `file`: for check_output, which so finds out whether standard
/// input comes from one.
inline std::filesystem::path input_path(const std::string& file) {
  return is_standard(file) ? std::filesystem::path("/dev/stdin") : std::filesystem::path(file);
}

/// InputLine::problem of a line that is longer than most_line_bytes.
inline constexpr const char* too_long_problem = "is longer than 1 MiB";

/// A line of input, and what is wrong with it.
struct InputLine {
  std::string text;                   // without its end, always UTF-8: see `problem`
  std::string end = "\n";             // as it was read: "\n", "\r\n", or what there is at the input's end
  std::string problem, remedy;        // empty: the line can be used. Else the text is what can be shown of it
  std::optional<std::string> beside;  // the line of the same number of another file, where one is read with it
  OpenMarkup open = {};               // of a page: what the lines before have begun and not ended

  bool usable() const { return problem.empty(); }
  /// It cannot be used for what is wrong, if anything is.
  void refuse(std::string what_is_wrong, std::string what_to_do) {
    if (what_is_wrong.empty()) return;
    problem = std::move(what_is_wrong);
    remedy = std::move(what_to_do);
  }
  /// Whether the text is but the beginning of a line that is too long.
  bool cut() const { return problem == too_long_problem; }
};

/// Lines of a file or of standard input, plain or gzip (told apart by content), never read further than what is there.
///
/// A line ends with "\n" or "\r\n", the last one may end with the input; a byte order mark at the start is dropped. A
/// line that is no text does not end the reading: it comes with its `problem`, with U+FFFD in the place of broken
/// bytes, cut to most_line_bytes where it is longer.
class LineInput {
 public:
  /// A file, or standard input for "" and "-". Throws Error where the file is missing, a folder, or may not be read.
  explicit LineInput(const std::string& file);
  ~LineInput();
  LineInput(LineInput&&) noexcept;
  LineInput& operator=(LineInput&&) noexcept;

  enum class Read { line, nothing_yet, end };
  /// The next line. Unless it may `wait`, nothing_yet where that would mean waiting for whoever writes it. Throws Error
  /// for gzip data that are damaged or followed by what is none, and for a line without an end, Failure where reading
  /// fails.
  Read next(InputLine& line, bool wait);
  /// The same for whoever waits: false at the end.
  bool next(InputLine& line) { return next(line, true) == Read::line; }

  /// For messages: the input's name, and a line of it, counted from 1, as in "in.txt:7".
  const std::string& name() const;
  std::string where(int64_t line) const;
  /// What is wrong with such a line, for who ends there.
  Error error(int64_t number, const InputLine& line) const { return Error(where(number), line.problem, line.remedy); }

  /// How much of the input was read, from 0 to 1, where its size is known.
  std::optional<double> share() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// That of two inputs which belong together line by line `shorter` ends after so many lines, and `longer` does not.
Error ends_early(const LineInput& shorter, const LineInput& longer, int64_t lines);

}  // namespace transformer
