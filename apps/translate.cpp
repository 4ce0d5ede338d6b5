#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/decoding_options.h"
#include "apps/program.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/unicode.h"
#include "transformer/decoding/translator.h"
#include "transformer/decoding/word_alignment.h"
#include "transformer/text/lines.h"

namespace transformer {

namespace {

// Lines translated together: enough to find lines of similar length for a batch, few enough to stay small.
constexpr size_t window_lines = 1024;
constexpr size_t window_bytes = size_t{4} << 20;
constexpr size_t longest_line = size_t{1} << 20;

enum class Read { line, nothing_yet, end };

class Input {
 public:
  virtual ~Input() = default;
  /// The next line. Unless it may `wait`, nothing_yet where that would mean waiting for whoever writes it.
  virtual Read next(std::string& line, bool wait) = 0;
};

/// Standard input, line by line, without ever reading further than what is there.
class StandardInput : public Input {
 public:
  Read next(std::string& line, bool wait) override {
    size_t end;
    while ((end = buffer_.find('\n', searched_)) == std::string::npos) {
      searched_ = buffer_.size();
      if (buffer_.size() - start_ > longest_line)
        throw error("the line is longer than 1 MiB", "split it into sentences");
      if (ended_) {
        if (start_ == buffer_.size()) return Read::end;
        end = buffer_.size();
        break;
      }
      if (!wait && !readable()) return Read::nothing_yet;
      fill();
    }
    line.assign(buffer_, start_, end - start_);
    start_ = searched_ = std::min(end + 1, buffer_.size());
    if (line.ends_with('\r')) line.pop_back();
    if (number_ == 0 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (const size_t broken = find_broken_utf8(line); broken != std::string::npos) {
      throw error(fmt::format("not UTF-8 (byte {} of the line is 0x{:02X})", broken + 1,
                              static_cast<unsigned char>(line[broken])),
                  "convert the text, for example with iconv -f ISO-8859-1 -t UTF-8");
    }
    ++number_;
    return Read::line;
  }

 private:
  static bool readable() {
    pollfd standard_input{STDIN_FILENO, POLLIN, 0};
    return poll(&standard_input, 1, 0) > 0;
  }

  void fill() {
    buffer_.erase(0, start_);
    searched_ -= start_;
    start_ = 0;
    char bytes[1 << 16];
    ssize_t count;
    do {
      count = read(STDIN_FILENO, bytes, sizeof bytes);
    } while (count < 0 && errno == EINTR);
    if (count < 0) throw Failure("standard input", std::string("cannot be read: ") + std::strerror(errno));
    ended_ = count == 0;
    buffer_.append(bytes, static_cast<size_t>(count));
  }

  Error error(const std::string& what, const std::string& remedy) const {
    return Error(fmt::format("standard input, line {}", number_ + 1), what, remedy);
  }

  std::string buffer_;
  size_t start_ = 0;     // of the next line
  size_t searched_ = 0;  // up to here there is no line end
  int64_t number_ = 0;   // lines handed out
  bool ended_ = false;
};

class FileInput : public Input {
 public:
  explicit FileInput(const std::string& file) : reader_(file) {}
  Read next(std::string& line, bool) override { return reader_.next(line) ? Read::line : Read::end; }

 private:
  LineReader reader_;
};

/// The reader of our output has gone: nothing is wrong, and nothing is left to do.
struct OutputClosed {};

void write_to_standard_output(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EPIPE) throw OutputClosed();
    if (count < 0) throw Failure("standard output", std::string("cannot be written: ") + std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(count));
  }
}

struct Format {
  bool n_best = false;  // Moses' n-best format
  bool scores = false;
};

std::string formatted(const std::vector<Translation>& translations, int64_t line, const Format& format) {
  std::string text;
  for (const auto& translation : translations) {
    if (format.n_best) {
      text += fmt::format("{} ||| {} ||| {:.6f}\n", line, translation.text, translation.score);
    } else {
      text +=
          format.scores ? fmt::format("{:.6f}\t{}\n", translation.score, translation.text) : translation.text + '\n';
      break;
    }
  }
  return text;
}

using Write = std::function<void(std::string_view)>;

/// Word alignments beside the translations: a line for every line of those.
struct Alignments {
  WordAligner aligner;
  Write write;
};

std::string aligned(const WordAligner& aligner, const std::vector<std::string>& lines,
                    const std::vector<std::vector<Translation>>& translations, int64_t first_line,
                    const Format& format) {
  // One hypothesis of every line at a time, so that messages count lines.
  std::vector<std::vector<std::string>> texts(lines.size());
  for (size_t rank = 0;; ++rank) {
    std::vector<std::string> outputs;
    std::vector<std::vector<int64_t>> tokens;
    bool any = false;
    for (const auto& alternatives : translations) {
      const bool exists = rank < alternatives.size() && (rank == 0 || format.n_best);
      any = any || exists;
      const auto& translation = exists ? alternatives[rank] : Translation{};
      outputs.push_back(translation.text);
      tokens.push_back(translation.tokens);
    }
    if (!any) break;
    const auto links = aligner.align(lines, outputs, first_line, tokens);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (rank < translations[i].size()) texts[i].push_back(to_pharaoh(links[i]));
    }
  }
  std::string text;
  for (const auto& alternatives : texts) {
    for (const auto& alternative : alternatives) text.append(alternative).append("\n");
  }
  return text;
}

void translate_all(const Translator& translator, Input& input, const Format& format, const Write& write,
                   const Alignments* alignments) {
  int64_t done = 0;
  const auto translate = [&](const std::vector<std::string>& lines) {
    const auto translated = translator.translate(lines, done + 1);
    if (alignments) alignments->write(aligned(alignments->aligner, lines, translated, done + 1, format));
    std::string text;
    for (const auto& translations : translated) text += formatted(translations, done++, format);
    write(text);
  };
  for (bool more = true; more;) {
    std::vector<std::string> lines;
    size_t bytes = 0;
    std::exception_ptr broken;
    // Whoever waits for an answer before writing the next line gets it: only the first line is waited for.
    while (more && lines.size() < window_lines && bytes < window_bytes) {
      std::string line;
      Read read;
      try {
        read = input.next(line, lines.empty());
      } catch (const Error&) {
        broken = std::current_exception();
        break;
      }
      if (read == Read::nothing_yet) break;
      if (read == Read::end) {
        more = false;
      } else {
        bytes += line.size();
        lines.push_back(std::move(line));
      }
    }
    try {
      translate(lines);
    } catch (const Error&) {
      // A line among them cannot be translated: those before it still are.
      for (const auto& line : lines) translate({line});
    }
    if (broken) std::rethrow_exception(broken);
  }
}

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description("Translates text, a sentence a line: one line out for every line in, in the same order.");
    std::string input_file, output_file, alignments_file;
    Format format;
    DecodingOptions decoding(app);
    SettingOptions<AlignmentSettings> alignment(app, "Word alignments");
    app.add_option("--input", input_file, "Text to translate, plain or .gz; standard input if not given");
    app.add_option("--output", output_file, "Where translations go, once all are done; standard output if not given");
    app.add_flag("--scores", format.scores, "Put the score and a tab before each translation");
    auto* const wanted =
        app.add_option("--alignments", alignments_file,
                       "Write word alignments there, once all are done: a line for every line of output, such as "
                       "0-0 2-1 for the source's first and third words and the output's first two; words are what "
                       "white space separates")
            ->group("Word alignments");
    for (const char* name : {"--alignment-layer", "--alignment-head", "--alignment-at"})
      app.get_option(name)->needs(wanted);
    parse();
    if (!alignments_file.empty() && alignments_file == output_file) {
      throw Error("--alignments", "is the file that --output names", "name another");
    }
    check_output_file("--output", output_file, {input_file});
    check_output_file("--alignments", alignments_file, {input_file});

    std::unique_ptr<Input> input;
    if (input_file.empty()) {
      input = std::make_unique<StandardInput>();
    } else {
      input = std::make_unique<FileInput>(input_file);
    }
    const Translator translator = decoding.open();
    format.n_best = translator.settings().n_best > 1 || app.get_option("--n-best")->count() > 0;

    std::unique_ptr<AtomicFile> aligned_file;
    std::unique_ptr<Alignments> alignments;
    if (!alignments_file.empty()) {
      alignments = std::make_unique<Alignments>(
          Alignments{WordAligner(app.get_option("--model")->as<std::string>(),
                                 open_device(app.get_option("--device")->as<std::string>()), alignment.over({})),
                     [&](std::string_view text) { aligned_file->write(text); }});
      aligned_file = std::make_unique<AtomicFile>(alignments_file);
    }

    if (!output_file.empty()) {
      AtomicFile output(output_file);
      translate_all(
          translator, *input, format, [&](std::string_view text) { output.write(text); }, alignments.get());
      output.commit();
      if (aligned_file) aligned_file->commit();
      return 0;
    }
    // A reader who has seen enough shows as a failed write rather than as a signal.
    std::signal(SIGPIPE, SIG_IGN);
    try {
      translate_all(translator, *input, format, write_to_standard_output, alignments.get());
    } catch (const OutputClosed&) {
      return 1;
    }
    if (aligned_file) aligned_file->commit();
    return 0;
  });
}
