#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/decoding_options.h"
#include "apps/line_work.h"
#include "apps/program.h"
#include "transformer/inference/translator.h"
#include "transformer/inference/tree_constraint.h"
#include "transformer/inference/word_alignment.h"

namespace transformer {

namespace {

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

/// The links of every line's translations, of all where all are written.
std::vector<std::string> aligned(const WordAligner& aligner, const std::vector<std::string>& lines,
                                 const std::vector<std::vector<Translation>>& translations, int64_t first_line,
                                 const Format& format) {
  // One hypothesis of every line at a time, so that messages count lines.
  std::vector<std::string> texts(lines.size());
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
      if (rank < translations[i].size()) texts[i].append(to_pharaoh(links[i])).append("\n");
    }
  }
  return texts;
}

class Translating {
 public:
  Translating(const Translator& translator, const WordAligner* aligner, Format format, const LineWork& work,
              const BadLines& bad_lines)
      : translator_(translator), aligner_(aligner), format_(format), work_(work), bad_lines_(bad_lines) {}

  LineWork::Done operator()(std::vector<InputLine>& lines, int64_t first) const {
    std::vector<std::string> texts;
    for (const auto& line : lines) texts.push_back(line.usable() ? line.text : "");
    auto sources = translator_.encode(texts);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (static_cast<int64_t>(sources[i].size()) <= translator_.longest_source()) continue;
      lines[i].problem = translator_.too_long(sources[i].size());
      lines[i].remedy = "split it into sentences";
      sources[i].clear();
    }
    sources.resize(work_.usable(lines));
    auto translations = translator_.translate_encoded(sources);
    if (aligner_) find_unalignable(lines, sources, translations);
    const size_t count = std::min(sources.size(), work_.usable(lines));
    translations.resize(count);
    texts.resize(count);
    for (size_t i = 0; i < count; ++i) {
      if (lines[i].usable()) continue;
      translations[i] = {Translation{.text = bad_lines_.instead_of(lines[i]), .tokens = {}}};
      texts[i].clear();
    }
    LineWork::Done done{.lines = count, .texts = {""}};
    for (size_t i = 0; i < count; ++i) {
      done.texts[0] += formatted(translations[i], first - 1 + static_cast<int64_t>(i), format_);
    }
    if (aligner_)
      done.texts.push_back(fmt::format("{}", fmt::join(aligned(*aligner_, texts, translations, first, format_), "")));
    return done;
  }

 private:
  void find_unalignable(std::vector<InputLine>& lines, const std::vector<std::vector<int64_t>>& sources,
                        const std::vector<std::vector<Translation>>& translations) const {
    for (size_t i = 0; i < sources.size(); ++i) {
      for (const auto& translation : translations[i]) {
        if (!lines[i].usable() || sources[i].empty()) break;
        lines[i].problem = aligner_->problem(sources[i].size(), translation.tokens.size());
        lines[i].remedy = "split it into sentences";
      }
    }
  }

  const Translator& translator_;
  const WordAligner* aligner_;
  Format format_;
  const LineWork& work_;
  const BadLines& bad_lines_;
};

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description(
        "Translates text, a sentence a line: one line out for every line in, in the same order. Where output goes to a "
        "file, the same command goes on after whatever ended it: what is done is kept in FILE.partial until all is.");
    std::string input_file, output_file, alignments_file;
    Format format;
    DecodingOptions decoding(app);
    SettingOptions<AlignmentSettings> alignment(app, "Word alignments");
    app.add_option("--input", input_file, "Text to translate, plain or .gz; standard input for - or if not given");
    app.add_option("--output", output_file,
                   "Where translations go, once all are done; standard output for - or if not given");
    BadLines bad_lines(app, "not UTF-8, longer than 1 MiB, or of more word pieces than the model takes");
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

    LineWork::Options options{.program = "translate", .input = input_file, .outputs = {output_file}};
    if (wanted->count() > 0) options.outputs.push_back(alignments_file);
    LineWork work(options, bad_lines);
    decoding.check_device();
    work.open_input();
    const Translator translator = decoding.open();
    work.set_windows(decoding.windows(translator));
    if (TreeConstraints(translator.vocabularies().target).has_labels()) {
      std::cerr << fmt::format("translate: warning: {} writes trees; `parse` makes sure that they are\n",
                               decoding.model());
    }
    format.n_best = translator.settings().n_best > 1 || app.get_option("--n-best")->count() > 0;
    const auto alignment_settings = alignment.over({});
    std::unique_ptr<WordAligner> aligner;
    if (wanted->count() > 0) {
      aligner =
          std::make_unique<WordAligner>(decoding.packed(translator), translator.vocabularies(), alignment_settings);
    }

    const auto identity = [&] {
      auto all = decoding.identity(translator);
      all["form of output"] = fmt::format("scores: {}, n-best: {}", format.scores, format.n_best);
      if (aligner) {
        auto settings = alignment_settings;
        Settings aligning;
        aligning.section("alignment", settings, "");
        all["way of aligning"] = aligning.yaml();
      }
      return all;
    };
    return work.run(identity, Translating(translator, aligner.get(), format, work, bad_lines));
  });
}
