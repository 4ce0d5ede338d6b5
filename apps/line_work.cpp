#include "apps/line_work.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <exception>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "apps/messages.h"
#include "apps/output.h"
#include "apps/unfinished_output.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/counted.h"
#include "transformer/base/described.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/process.h"
#include "transformer/base/progress_line.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

using Clock = std::chrono::steady_clock;

void add_bad(UnfinishedOutput::BadLines& bad, int64_t number, const std::string& problem) {
  bad.add(number, problem);
  bad.too_long = bad.too_long || problem == too_long_problem;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Waits, in a thread of its own, for what asks the program to end, and ends it: at once, since all that is done is in
/// its file already.
class EndingSignals {
 public:
  /// `farewell`: what is said. It is called with `writing` held, so that no window is cut in two.
  explicit EndingSignals(std::function<std::string()> farewell) : farewell_(std::move(farewell)) {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      // What a parent had ignored (nohup) stays so; blocked, it would arrive all the same.
      struct sigaction given {};
      if (sigaction(signal, nullptr, &given) == 0 && given.sa_handler == SIG_IGN) continue;
      sigaddset(&signals_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    // Not a signal: one that a parent had ignored would never come.
    arriving_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
    ended_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (arriving_ < 0 || ended_ < 0) throw Failure("signals", std::strerror(errno));
    thread_ = std::thread([this] { wait(); });
  }

  ~EndingSignals() {
    const uint64_t one = 1;
    static_cast<void>(!::write(ended_, &one, sizeof one));
    thread_.join();
    ::close(arriving_);
    ::close(ended_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;

  std::mutex writing;

 private:
  void wait() {
    pollfd either[] = {{.fd = arriving_, .events = POLLIN, .revents = 0},
                       {.fd = ended_, .events = POLLIN, .revents = 0}};
    signalfd_siginfo signal = {};
    while (true) {
      uint64_t ended = 0;
      if (::read(ended_, &ended, sizeof ended) == sizeof ended) return;
      if (::read(arriving_, &signal, sizeof signal) == sizeof signal) break;
      // Where the kernel has no memory to wait with, a little later: whoever ends the work waits for this thread.
      if (::poll(either, std::size(either), -1) < 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const std::lock_guard lock(writing);
    const auto text = farewell_() + "\n";
    static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
    _exit(128 + static_cast<int>(signal.ssi_signo));
  }

  std::function<std::string()> farewell_;
  sigset_t signals_{}, before_{};
  int arriving_ = -1, ended_ = -1;  // descriptors
  std::thread thread_;
};

/// Whether standard output goes to a file, where nobody reads along.
bool is_file(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

/// How far long work is, on standard error.
class Progress {
 public:
  Progress(std::string program, ProgressLine& line) : program_(std::move(program)), line_(line) {}

  /// `lines` are done, `here` of them by this process; `share` of the input is, where that is known.
  void show(int64_t lines, int64_t here, std::optional<double> share) {
    if (line_.live()) {
      line_.show({.what = program_, .done = lines, .unit = "lines", .share = share});
      return;
    }
    if (seconds_since(latest_) < 10) return;
    latest_ = Clock::now();
    const double rate = static_cast<double>(here) / std::max(seconds_since(start_), 1e-9);
    auto text = fmt::format("{}: {} lines, {:.{}f} lines/s", program_, lines, rate, rate < 10 ? 1 : 0);
    if (share) text += fmt::format(", {:.0f} % of the input read", *share * 100);
    std::cerr << text << std::endl;
  }

 private:
  std::string program_;
  ProgressLine& line_;
  Clock::time_point start_ = Clock::now(), latest_ = start_;
};

/// A window of lines as they were read.
struct Read {
  std::vector<InputLine> lines;
  bool more = true;
  std::exception_ptr failure;   // of reading, behind these lines
  std::optional<double> share;  // of the input that was read so far, where its size is known
};

/// Reads windows of lines.
class WindowReader {
 public:
  /// `whole`: windows are the same whenever the same lines are read, so that each is waited for until it is full. Else
  /// whoever waits for an answer before writing the next line gets it: only a window's first line is waited for.
  WindowReader(const LineWork::Options& options, bool whole, bool stops_at_bad_lines)
      : input_(options.input), as_read_(options.as_read), whole_(whole), stops_at_bad_lines_(stops_at_bad_lines) {
    if (!options.beside.empty()) beside_.emplace(options.beside);
  }

  const LineInput& input() const { return input_; }

  Read read() {
    Read read;
    try {
      read_into(read);
    } catch (...) {
      read.failure = std::current_exception();
      read.more = false;
    }
    read.share = input_.share();
    return read;
  }

 private:
  /// Throws what reading throws, behind the lines that were read.
  void read_into(Read& read) {
    size_t bytes = 0;
    while (read.lines.size() < LineWork::window_lines && bytes < LineWork::window_bytes) {
      InputLine line;
      const auto found = input_.next(line, whole_ || read.lines.empty());
      if (beside_ && found != LineInput::Read::nothing_yet) read_beside(found == LineInput::Read::line, line);
      if (found == LineInput::Read::nothing_yet) break;
      if (found == LineInput::Read::end) {
        read.more = false;
        break;
      }
      if (as_read_) as_read_(line);
      bytes += line.text.size() + (line.beside ? line.beside->size() : 0);
      read.lines.push_back(std::move(line));
      // There is nothing to do behind it, and to wait for more would be to wait in vain.
      if (stops_at_bad_lines_ && !read.lines.back().usable()) {
        read.more = false;
        break;
      }
    }
  }

  /// The line that belongs to `line`, the input's, or to its end.
  void read_beside(bool is_line, InputLine& line) {
    InputLine other;
    if (beside_->next(other) != is_line)
      throw is_line ? ends_early(*beside_, input_, number_) : ends_early(input_, *beside_, number_);
    ++number_;
    if (!is_line) return;
    if (line.usable() && !other.usable())
      line.refuse(fmt::format("has a translation that {}", other.problem), other.remedy);
    line.beside = std::move(other.text);
  }

  LineInput input_;
  std::optional<LineInput> beside_;
  std::function<void(InputLine&)> as_read_;
  bool whole_, stops_at_bad_lines_;
  int64_t number_ = 0;  // lines that both have
};

/// What the thread that reads and the one that writes know of each other, and of the threads that work in between.
struct Progressing {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Read> read;  // the next window
};

std::string checksum_of_lines(const std::vector<InputLine>& lines) {
  Checksum checksum;
  for (const auto& line : lines) {
    checksum.add(line.text);
    checksum.add(line.end);
    if (line.beside) {
      checksum.add(*line.beside);
      checksum.add("\n");
    }
    checksum.add(line.usable() ? "\n" : "\n\xFF");  // broken bytes are not what stands for them
  }
  return checksum.text();
}

}  // namespace

BadLines::BadLines(CLI::App& app, const std::string& what, bool copies, const char* stopped) {
  app.add_option("--bad-lines", choice_,
                 fmt::format("What becomes of a line that cannot be used ({}): stop ends there, with status 2, {}; "
                             "empty puts an empty line in its place{}. What was put "
                             "in the place of lines is told on standard error; the status is 0",
                             what, stopped,
                             copies ? ", copy the line itself, with U+FFFD for broken bytes, but an empty line for "
                                      "one that is longer than 1 MiB"
                                    : ""))
      ->check(CLI::IsMember(copies ? std::vector<std::string>{"stop", "empty", "copy"}
                                   : std::vector<std::string>{"stop", "empty"}))
      ->option_text(copies ? "{stop,empty,copy} [stop]" : "{stop,empty} [stop]");
}

BadLines::BadLines(CLI::App& app, const std::string& what, LeftOut) : choice_("skip") {
  app.add_option("--bad-lines", choice_,
                 fmt::format("What becomes of lines that cannot be used ({}): skip leaves them out, and tells on "
                             "standard error how many there were; stop ends at the first, with status 2, once the "
                             "lines before it are done",
                             what))
      ->check(CLI::IsMember({"skip", "stop"}))
      ->option_text("{skip,stop} [skip]");
}

void BadLines::check(const LineInput& input, int64_t number, const InputLine& line) {
  if (line.usable()) return;
  if (stop()) throw input.error(number, line);
  add(number, line.problem);
}

void BadLines::add(int64_t number, const std::string& problem) {
  add_bad(found_, number, problem);
}

void BadLines::report(const std::string& program) const {
  const auto& [count, first] = static_cast<const UnfinishedOutput::ToldLines&>(found_);
  if (count == 0) return;
  std::string text =
      fmt::format("{}: warning: {} could not be used and {}: ", program, counted(count, "line"),
                  fmt::format("{} {}", count == 1 ? "was" : "were",
                              choice_ == "copy" && found_.too_long ? "copied (left empty where longer than 1 MiB)"
                              : choice_ == "copy"                  ? "copied"
                              : choice_ == "skip"                  ? "left out"
                                                                   : "left empty"));
  for (size_t i = 0; i < first.size(); ++i) {
    text += fmt::format("{}line {} {}", i == 0 ? "" : ", ", first[i].first, printable(first[i].second, 200));
  }
  if (static_cast<size_t>(count) > first.size()) text += ", ...";
  std::cerr << text << std::endl;
}

struct LineWork::Implementation {
  Implementation(Options given, BadLines& bad) : options(std::move(given)), bad_lines(bad) {}

  Options options;
  BadLines& bad_lines;
  bool resumes = false;  // all output goes to files
  std::shared_ptr<WindowReader> reader;
  ProgressLine line;

  // Of work that may go on:
  std::unique_ptr<UnfinishedOutput> unfinished;
  std::unique_ptr<EndingSignals> signals;
  std::atomic<int64_t> kept = 0;      // lines whose text is in its file
  std::atomic<int64_t> recorded = 0;  // and those of them that are never done again

  // Of other work:
  std::vector<Output> outputs;

  int64_t done = 0, here = 0;  // lines, and those of them that this process did
  UnfinishedOutput::Tally tally;

  /// What to say after whatever ended the work: how it goes on.
  std::string hint() const {
    if (!resumes || kept == 0 || unfinished->empty()) return "";
    const int64_t lines = kept, behind = recorded;
    return fmt::format("; {} {} kept in {}, and the same command {}", lines, lines == 1 ? "line is" : "lines are",
                       unfinished->partial().string(),
                       behind == lines ? "goes on"
                       : behind > 0    ? fmt::format("goes on behind line {}", behind)
                                       : "does them again");
  }

  /// Passes over the windows that are done already; what it returns is the first that is not.
  Read pass_over_done() {
    const auto refuse = [&](const std::string& why) {
      throw Error(unfinished->partial().string(), fmt::format("is unfinished, and was made {}", why),
                  "give the command that it was begun with, name another output, or delete it");
    };
    if (const auto& difference = unfinished->difference(); !difference.empty()) refuse("with another " + difference);
    const auto& windows = unfinished->done();
    size_t same = 0;
    Read read = reader->read();
    for (; same < windows.size(); ++same) {
      // What could not be read is no other text.
      if (read.failure) std::rethrow_exception(read.failure);
      const auto& window = windows[same];
      const bool same_text =
          window.lines == static_cast<int64_t>(read.lines.size()) && window.input == checksum_of_lines(read.lines);
      // Where all lines could be used, nobody can tell what would have become of others.
      const bool same_choice = window.bad.count == 0 || window.bad.choice == bad_lines.choice();
      if (same == 0 && !same_text) refuse("of other text");
      if (same == 0 && !same_choice) refuse("with another --bad-lines");
      if (!same_text || !same_choice) break;
      done += window.lines;
      tally.add(window.tally);
      bad_lines.add(window.bad);
      if (!read.more) {
        read.lines.clear();
        ++same;
        break;
      }
      read = reader->read();
    }
    if (done > 0) {
      std::cerr << one_line(fmt::format("{}: goes on behind line {}, from {}", options.program, done,
                                        unfinished->partial().string()))
                << std::endl;
    }
    const std::lock_guard lock(signals->writing);
    unfinished->go_on_after(same);
    kept = recorded = done;
    return read;
  }

  /// A window that is being done, in a thread of its own.
  struct Window {
    Read read;
    int64_t first = 0;           // its first line
    std::string input_checksum;  // of the lines as they were read
    std::atomic<bool> done = false;
    std::future<Done> result;  // last: the thread ends before what it works on goes
  };

  std::unique_ptr<Window> begin_window(Read&& read, int64_t first, const Process& process,
                                       const std::shared_ptr<Progressing>& progressing) const {
    auto window = std::make_unique<Window>();
    window->read = std::move(read);
    window->first = first;
    if (unfinished) window->input_checksum = checksum_of_lines(window->read.lines);
    window->result = std::async(std::launch::async, [&window = *window, first, &process, progressing] {
      struct Telling {
        Window& window;
        Progressing& progressing;
        ~Telling() {
          const std::lock_guard lock(progressing.mutex);
          window.done = true;
          progressing.changed.notify_all();
        }
      } const telling{window, *progressing};
      return window.read.lines.empty() ? Done() : process(window.read.lines, first);
    });
    return window;
  }

  void finish_window(Window& window) {
    auto& read = window.read;
    const int64_t first = window.first;
    Done result = window.result.get();
    result.texts.resize(options.outputs.size());
    const bool whole = result.lines == read.lines.size();
    UnfinishedOutput::BadLines bad;
    bad.choice = bad_lines.choice();
    for (size_t i = 0; i < result.lines; ++i) {
      if (!read.lines[i].usable()) add_bad(bad, first + static_cast<int64_t>(i), read.lines[i].problem);
    }
    bad_lines.add(bad);
    done += static_cast<int64_t>(result.lines);
    here += static_cast<int64_t>(result.lines);
    tally.add(result.tally);
    if (unfinished) {
      const std::lock_guard lock(signals->writing);
      unfinished->write(result.texts);
      // Windows are recorded whole, or not at all: the lines before one that ends the work are done again with those
      // behind it.
      if (whole && !read.lines.empty() && !read.failure) {
        UnfinishedOutput::Window record{.lines = static_cast<int64_t>(result.lines),
                                        .input = window.input_checksum,
                                        .bad = std::move(bad),
                                        .tally = result.tally};
        unfinished->record(record);
        recorded = done;
      }
      kept = done;
    } else {
      for (size_t i = 0; i < outputs.size(); ++i) outputs[i].write(result.texts[i]);
      for (auto& output : outputs) output.flush();
    }
    if (!whole) throw reader->input().error(done + 1, read.lines[result.lines]);
    if (read.failure) std::rethrow_exception(read.failure);
  }

  void do_all(const Process& process) {
    std::optional<Progress> progress;
    const auto progressing = std::make_shared<Progressing>();
    progressing->read = unfinished ? pass_over_done() : reader->read();
    if (unfinished || (line.live() && is_file(STDOUT_FILENO))) progress.emplace(options.program, line);
    if (progress) progress->show(done, here, progressing->read->share);
    std::deque<std::unique_ptr<Window>> windows;  // in the order of their lines
    int64_t next = done + 1;
    bool reading = false, more = true;
    while (true) {
      std::unique_lock lock(progressing->mutex);
      progressing->changed.wait(lock, [&] { return progressing->read || (!windows.empty() && windows.front()->done); });
      std::optional<Read> read;
      if (windows.size() < options.windows) read = std::exchange(progressing->read, std::nullopt);
      lock.unlock();
      if (read) {
        reading = false;
        const auto count = static_cast<int64_t>(read->lines.size());
        more = read->more;
        if (count > 0 || read->failure) windows.push_back(begin_window(std::move(*read), next, process, progressing));
        next += count;
      } else if (!windows.empty()) {
        // Enough is under way, or what is first is done.
        finish_window(*windows.front());
        if (progress) progress->show(done, here, windows.front()->read.share);
        windows.pop_front();
      }
      if (more && !reading && windows.size() < options.windows) {
        reading = true;
        read_ahead(progressing);
      }
      if (!more && windows.empty()) break;
    }
  }

  /// Reads a window in a thread that nobody waits for: whoever writes the input may never do, and the work may have
  /// ended by then.
  void read_ahead(const std::shared_ptr<Progressing>& progressing) const {
    std::thread([reader = reader, progressing] {
      auto read = reader->read();
      const std::lock_guard lock(progressing->mutex);
      progressing->read = std::move(read);
      progressing->changed.notify_all();
    }).detach();
  }
};

LineWork::LineWork(Options options, BadLines& bad_lines)
    : implementation_(std::make_unique<Implementation>(std::move(options), bad_lines)) {
  auto& self = *implementation_;
  const auto& files = self.options.outputs;
  self.resumes = std::none_of(files.begin(), files.end(),
                              [](const std::string& file) { return is_standard(file) || is_stream(file); });
  std::vector<std::filesystem::path> inputs(self.options.also_read.begin(), self.options.also_read.end());
  inputs.push_back(input_path(self.options.input));
  if (!self.options.beside.empty()) inputs.push_back(input_path(self.options.beside));
  for (size_t i = 0; i < files.size(); ++i) {
    if (self.options.makes_folder) {
      check_not_read("", files[i], inputs);
    } else {
      check_output("", files[i], inputs);
    }
    if (self.resumes) {
      for (const auto& meanwhile : {UnfinishedOutput::partial_of(files[i]), UnfinishedOutput::journal_of(files[i])}) {
        check_not_read(fmt::format("{} is unfinished as {}", files[i], meanwhile.filename().string()), meanwhile,
                       inputs);
      }
    }
    for (size_t k = 0; k < i; ++k) {
      const bool both_standard = is_standard(files[i]) && is_standard(files[k]);
      if (both_standard ||
          (!is_standard(files[i]) && !is_standard(files[k]) && place_of(files[i]) == place_of(files[k]))) {
        throw Error(both_standard ? "standard output" : files[i], "--output and another option both name it",
                    "give each its own file");
      }
    }
  }
  if (!self.resumes) return;
  self.signals = std::make_unique<EndingSignals>([&self] {
    self.line.leave();
    if (self.unfinished) self.unfinished->remove_if_empty();
    return one_line(fmt::format("{}: stopped{}", self.options.program, self.hint()));
  });
}

LineWork::~LineWork() = default;

void LineWork::open_input() {
  auto& self = *implementation_;
  self.reader = std::make_shared<WindowReader>(self.options, self.resumes, self.bad_lines.stop());
}

size_t LineWork::usable(const std::vector<InputLine>& lines) const {
  if (!implementation_->bad_lines.stop()) return lines.size();
  return static_cast<size_t>(
      std::find_if(lines.begin(), lines.end(), [](const InputLine& line) { return !line.usable(); }) - lines.begin());
}

const UnfinishedOutput::Tally& LineWork::tally() const {
  return implementation_->tally;
}

int64_t LineWork::lines() const {
  return implementation_->done;
}

void LineWork::set_windows(size_t windows) {
  implementation_->options.windows = std::max<size_t>(1, windows);
}

int LineWork::run(const std::function<std::map<std::string, std::string>()>& identity, const Process& process) {
  auto& self = *implementation_;
  const auto& options = self.options;
  // A reader who has seen enough shows as a failed write rather than as a signal.
  ignore_broken_pipes();
  if (self.resumes) {
    auto work = identity();
    work.emplace("program", options.program + " " TRANSFORMER_VERSION);
    const std::lock_guard lock(self.signals->writing);
    self.unfinished = std::make_unique<UnfinishedOutput>(options.outputs, work);
  } else {
    for (const auto& file : options.outputs) self.outputs.emplace_back(file);
  }
  try {
    self.do_all(process);
    std::vector<std::filesystem::path> written;
    for (size_t i = 0; self.unfinished && i < options.outputs.size(); ++i) {
      written.push_back(self.unfinished->partial(i));
    }
    const auto closing = options.closing ? options.closing(written) : std::vector<std::string>(options.outputs.size());
    if (self.unfinished) {
      const std::lock_guard lock(self.signals->writing);
      self.unfinished->write(closing);
      self.unfinished->commit();
      self.resumes = false;
    }
    for (size_t i = 0; i < self.outputs.size(); ++i) self.outputs[i].write(closing[i]);
    for (auto& output : self.outputs) output.commit();
    self.line.leave();
  } catch (const OutputClosed&) {
    return 1;
  } catch (const Error& error) {
    if (!described_exception().mistake) throw Failure("", error.what() + self.hint());
    throw Error("", error.what() + self.hint());
  } catch (const Failure& failure) {
    throw Failure("", failure.what() + self.hint());
  }
  self.bad_lines.report(options.program);
  return 0;
}

std::string model_checksum(const std::filesystem::path& directory) {
  Checksum checksum;
  for (const char* name : model_names) {
    if (!something_at(directory / name)) continue;
    checksum.add(name);
    checksum.add(file_checksum(directory / name));
  }
  return checksum.text();
}

}  // namespace transformer
