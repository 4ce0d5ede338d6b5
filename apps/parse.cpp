// Parses sentences: the tree that a model trained on linearized trees writes, over exactly the sentence's words.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/decoding_options.h"
#include "apps/program.h"
#include "apps/standard_lines.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/decoding/translator.h"
#include "transformer/decoding/tree_constraint.h"
#include "transformer/text/lines.h"
#include "transformer/text/treebank.h"

namespace {

using namespace transformer;

// Sentences parsed together: enough to find some of similar length for a batch.
constexpr size_t window_lines = 1024;

using NextLine = std::function<bool(std::string&)>;

/// Words are what white space separates, in the treebank's spelling.
std::vector<std::string> words_in(std::string_view line) {
  std::vector<std::string> words;
  while (true) {
    const size_t start = line.find_first_not_of(" \t");
    if (start == std::string_view::npos) return words;
    const size_t end = std::min(line.find_first_of(" \t", start), line.size());
    words.push_back(escaped_word(line.substr(start, end - start)));
    line.remove_prefix(end);
  }
}

struct Counts {
  int64_t sentences = 0, repaired = 0;
};

/// The best of the translations that needs no repair; where all do, the best one, repaired.
Delinearized best_tree(const std::vector<Translation>& translations, const std::vector<std::string>& words) {
  std::optional<Delinearized> best;
  for (const auto& translation : translations) {
    auto tree = delinearize(translation.text, words);
    if (!best || tree.well_formed) best = std::move(tree);
    if (best->well_formed) break;
  }
  return best ? std::move(*best) : delinearize("", words);
}

/// What `parse` is asked for.
struct Request {
  bool pretty = false, free = false;
  size_t window = window_lines;
};

Counts parse_all(const Translator& translator, const NextLine& next_line, const Request& request,
                 const std::function<void(std::string_view)>& write) {
  Counts counts;
  const TreeConstraints trees(translator.vocabularies().target);
  for (bool more = true; more;) {
    std::vector<std::vector<std::string>> sentences;
    std::vector<std::string> lines;
    std::exception_ptr broken;  // a line; those before it are parsed all the same
    try {
      for (std::string line; lines.size() < request.window && (more = next_line(line));) {
        sentences.push_back(words_in(line));
        lines.push_back(fmt::format("{}", fmt::join(sentences.back(), " ")));
      }
    } catch (const Error&) {
      broken = std::current_exception();
    }
    Translator::ConstraintOf constraint_of;
    if (!request.free) constraint_of = [&](size_t line) { return trees.over(sentences[line]); };
    const auto translations = translator.translate(lines, counts.sentences + 1, constraint_of);
    std::string text;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!sentences[i].empty()) {
        const auto result = best_tree(translations[i], sentences[i]);
        if (!result.well_formed) ++counts.repaired;
        text += request.pretty ? drawing(result.tree) : to_string(result.tree);
      }
      text += '\n';
    }
    counts.sentences += static_cast<int64_t>(lines.size());
    write(text);
    if (broken) std::rethrow_exception(broken);
  }
  return counts;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description(
        "Parses sentences: a tree in brackets for every line in, in the same order. Input is words with spaces between "
        "them, punctuation apart, as `treebank words` writes them. The search considers trees over exactly these words "
        "alone; output that grows too long is repaired into one. With --n-best more than 1, the best hypothesis "
        "that is well-formed by itself is taken.");
    std::string input_file, output_file;
    bool verbose = false;
    Request request;
    DecodingOptions decoding(app);
    app.add_option("--input", input_file, "Sentences, plain or .gz; standard input if not given");
    app.add_option("--output", output_file, "Where trees go, once all are done; standard output if not given");
    app.add_flag("--pretty", request.pretty, "Draw trees for people to read, an empty line behind each");
    app.add_flag("--free", request.free, "Let the model write what it will and repair it into trees: less accurate");
    app.add_flag("--verbose", verbose, "Say on standard error how many trees had to be repaired");
    parse();

    NextLine next_line = [lines = StandardLines()](std::string& line) mutable { return lines.next(line); };
    if (!input_file.empty()) {
      next_line = [reader = std::make_shared<LineReader>(input_file)](std::string& line) { return reader->next(line); };
    } else if (isatty(STDIN_FILENO)) {
      request.window = 1;
    }
    check_output_file("--output", output_file, {input_file});
    const Translator translator = decoding.open();

    Counts counts;
    if (output_file.empty()) {
      counts = parse_all(translator, next_line, request, [](std::string_view text) {
        std::cout << text << std::flush;
        if (!std::cout) throw Failure("standard output", "could not be written");
      });
    } else {
      AtomicFile output(output_file);
      counts = parse_all(translator, next_line, request, [&](std::string_view text) { output.write(text); });
      output.commit();
    }
    if (verbose) std::cerr << fmt::format("{} of {} trees repaired\n", counts.repaired, counts.sentences);
  });
}
