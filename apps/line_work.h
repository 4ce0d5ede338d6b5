#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/line_input.h"
#include "apps/unfinished_output.h"

namespace transformer {

/// --bad-lines: what becomes of a line that cannot be used. Must outlive the parsing.
class BadLines {
 public:
  /// `what` cannot be used, for --help. `copies`: whether a copy of the line would be something of the output's kind.
  BadLines(CLI::App& app, const std::string& what, bool copies = true)
      : BadLines(app, what, copies, "once the lines before it are done") {}
  /// Of output that need not have a line for every line: bad ones are left out, unless the work is to end at them.
  struct LeftOut {};
  BadLines(CLI::App& app, const std::string& what, LeftOut);
  /// Of output that is one figure of all lines.
  struct OneFigure {};
  BadLines(CLI::App& app, const std::string& what, bool copies, OneFigure)
      : BadLines(app, what, copies, "without a figure") {}

  /// Whether the work ends at such a line.
  bool stop() const { return choice_ == "stop"; }
  /// What stands in the output for a line that cannot be used, where the work does not end there. Of a line that is too
  /// long no more than its beginning is held, and half a line would look like a whole one: it is left empty.
  std::string instead_of(const InputLine& line) const { return choice_ == "copy" && !line.cut() ? line.text : ""; }
  const std::string& choice() const { return choice_; }

  /// Throws Error for a line that cannot be used where the work ends at one; elsewhere counts it.
  void check(const LineInput& input, int64_t number, const InputLine& line);
  /// Counts a line that could not be used.
  void add(int64_t number, const std::string& problem);
  /// Counts those of lines further on.
  void add(const UnfinishedOutput::BadLines& others) { found_.add(others); }
  /// How many there were.
  int64_t count() const { return found_.count; }
  /// At the end, on standard error: how many there were, and the first of them. Nothing where there were none.
  void report(const std::string& program) const;

 private:
  /// `stopped`: how it ends where it stops.
  BadLines(CLI::App& app, const std::string& what, bool copies, const char* stopped);

  std::string choice_ = "stop";
  UnfinishedOutput::BadLines found_;
};

/// The frame of programs that make a line out of a line: windows of lines go through `work` together, bad ones become
/// what --bad-lines says, and what is done is never lost.
///
/// Where all output goes to files, they are written as UnfinishedOutput does, and the same command goes on after
/// whatever ended it; long work shows how far it is. Else lines are answered as soon as they come.
class LineWork {
 public:
  /// Lines that go through together: enough to find lines of similar length for a batch, few enough to stay small.
  static constexpr size_t window_lines = 1024;
  static constexpr size_t window_bytes = size_t{4} << 20;

  struct Options {
    std::string program;                      // for messages
    std::string input;                        // as given: "" and "-" are standard input
    std::vector<std::string> outputs;         // as given, the first of lines, any others in step with it
    std::vector<std::string> also_read = {};  // files and model directories, so that no output replaces them
    size_t windows = 1;                       // that are done at the same time, at most
    bool makes_folder = false;                // the outputs' folder is made before they are
    std::string beside = {};  // a file whose lines come with the input's: see InputLine::beside. Empty: none
    /// Called with each line as it is read, in their order, by one thread at a time; it owns what it needs, since a
    /// thread that reads may outlive the work. None where it is empty.
    std::function<void(InputLine&)> as_read = {};
    /// Called when all lines are done: text for each output, behind theirs. None where it is empty. `written`: the
    /// files that hold what was made of the lines so far; none where output does not go to files.
    std::function<std::vector<std::string>(const std::vector<std::filesystem::path>& written)> closing = {};
  };

  /// Throws Error where two outputs are one, or one is an input. Before threads start: where signals are waited for,
  /// they inherit what is blocked.
  LineWork(Options options, BadLines& bad_lines);
  ~LineWork();
  LineWork(const LineWork&) = delete;
  LineWork& operator=(const LineWork&) = delete;

  /// Options::windows, where it shows later. Their texts are written in the order of lines all the same.
  void set_windows(size_t windows);

  /// Opens the input, which a named pipe lets wait for whoever writes it, and what is read beside it. Throws Error; so
  /// does the work, behind the lines that both have, where one of them has more than the other.
  void open_input();

  /// What `process` makes of a window: text for each output, of its first `lines` lines.
  struct Done {
    size_t lines = 0;
    std::vector<std::string> texts;
    UnfinishedOutput::Tally tally = {};
  };
  /// Lines whose number counts from `first`, from 1; called by several threads at once where there are several
  /// windows. It gives lines that it finds it cannot use a problem. Where the work ends at bad lines it does the lines
  /// before the first one alone: see usable.
  using Process = std::function<Done(std::vector<InputLine>& lines, int64_t first)>;
  /// How many of `lines` are to be done: all, or those before the first bad one.
  size_t usable(const std::vector<InputLine>& lines) const;

  /// Does all, and gives the program's exit status: 1 where standard output's reader has gone. `identity`, called where
  /// work may go on: everything that decides what is written, input apart, by name.
  int run(const std::function<std::map<std::string, std::string>()>& identity, const Process& process);

  /// After run: of all lines, those included that were done before the work went on.
  const UnfinishedOutput::Tally& tally() const;
  /// After run: all lines that were read.
  int64_t lines() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// The files of a model directory that decide what it writes, as one checksum.
std::string model_checksum(const std::filesystem::path& directory);

}  // namespace transformer
