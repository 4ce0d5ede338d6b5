// Parses sentences: the tree that a model trained on linearized trees writes, over exactly the sentence's words.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/decoding_options.h"
#include "apps/line_work.h"
#include "apps/program.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/translator.h"
#include "transformer/inference/tree_constraint.h"
#include "transformer/text/treebank.h"

namespace {

using namespace transformer;

/// In the treebank's spelling.
std::vector<std::string> words_in(std::string_view line) {
  std::vector<std::string> words;
  for (const auto word : split_words(line)) words.push_back(escaped_word(word));
  return words;
}

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
};

class Parsing {
 public:
  Parsing(const Translator& translator, const Request& request, const LineWork& work, const BadLines& bad_lines)
      : translator_(translator),
        trees_(translator.vocabularies().target),
        request_(request),
        work_(work),
        bad_lines_(bad_lines) {}

  LineWork::Done operator()(std::vector<InputLine>& lines, int64_t) const {
    std::vector<std::vector<std::string>> sentences;
    std::vector<std::string> texts;
    for (const auto& line : lines) {
      sentences.push_back(line.usable() ? words_in(line.text) : std::vector<std::string>{});
      texts.push_back(fmt::format("{}", fmt::join(sentences.back(), " ")));
    }
    auto sources = translator_.encode(texts);
    for (size_t i = 0; i < lines.size(); ++i) {
      auto problem = translator_.problem(sources[i].size());
      if (problem.empty()) continue;
      lines[i].refuse(std::move(problem), translator_.remedy);
      sources[i].clear();
    }
    const size_t count = work_.usable(lines);
    sources.resize(count);
    Translator::ConstraintOf constraint_of;
    if (!request_.free) constraint_of = [&](size_t line) { return trees_.over(sentences[line]); };
    const auto translations = translator_.translate_encoded(sources, constraint_of);
    LineWork::Done done{.lines = count, .texts = {""}};
    for (size_t i = 0; i < count; ++i) {
      auto& text = done.texts[0];
      if (!lines[i].usable()) {
        text += bad_lines_.instead_of(lines[i]);
      } else if (!sentences[i].empty()) {
        const auto result = best_tree(translations[i], sentences[i]);
        if (!result.well_formed) ++done.tally.repaired;
        text += request_.pretty ? drawing(result.tree) : to_string(result.tree);
      }
      text += '\n';
    }
    return done;
  }

 private:
  const Translator& translator_;
  const TreeConstraints trees_;
  Request request_;
  const LineWork& work_;
  const BadLines& bad_lines_;
};

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
    DecodingOptions decoding(app, /*several=*/true);
    app.add_option("--input", input_file, "Sentences, plain or .gz; standard input for - or if not given")
        ->type_name("FILE");
    app.add_option("--output", output_file, "Where trees go, once all are done; standard output for - or if not given")
        ->type_name("FILE");
    BadLines bad_lines(app, "not UTF-8, longer than 1 MiB, or of more word pieces than the model takes");
    app.add_flag("--pretty", request.pretty, "Draw trees for people to read, an empty line behind each");
    app.add_flag("--free", request.free, "Let the model write what it will and repair it into trees: less accurate");
    app.add_flag("--verbose", verbose, "Say on standard error how many trees had to be repaired");
    parse();

    LineWork work({.program = "parse", .input = input_file, .outputs = {output_file}, .also_read = decoding.inputs()},
                  bad_lines);
    decoding.check_device();
    work.open_input();
    const Translator translator = decoding.open();
    work.set_windows(decoding.windows(translator));
    if (!TreeConstraints(translator.vocabularies().target).can_write_trees()) {
      throw Error(decoding.model(), "is no parser: its vocabulary has no brackets that open and close constituents",
                  "give the directory of a model that was trained on trees, as `treebank linearize` writes them");
    }

    const auto identity = [&] {
      auto all = decoding.identity(translator);
      all["form of output"] = fmt::format("pretty: {}, free: {}", request.pretty, request.free);
      return all;
    };
    const int status = work.run(identity, Parsing(translator, request, work, bad_lines));
    if (verbose) std::cerr << fmt::format("{} of {} trees repaired\n", work.tally().repaired, work.lines());
    return status;
  });
}
