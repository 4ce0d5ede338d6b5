// Makes one page of training runs: while they go on, and afterwards.

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/messages.h"
#include "apps/number_option.h"
#include "apps/output.h"
#include "apps/program.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/run_files.h"
#include "transformer/base/unicode.h"
#include "transformer/evaluation/bleu.h"
#include "transformer/report/run_page.h"
#include "transformer/text/lines.h"

namespace {

using namespace transformer;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

struct Request {
  std::vector<std::string> runs, source, reference;
  size_t sentences = 8;
  double watch = 0;  // seconds; 0: once
};

Lines read_all(const Lines& files) {
  Lines lines;
  for (const auto& file : files) {
    for (auto& line : read_lines(file)) lines.push_back(std::move(line));
  }
  return lines;
}

/// A validation text: lines and their translations.
struct Text {
  Lines source, reference;  // as many; or no source, where it is not known
  bool operator==(const Text&) const = default;
};

/// The text that was named; nothing where none was. Throws Error where it cannot be what it was named for.
std::optional<Text> given_text(const Request& request) {
  if (request.reference.empty()) return std::nullopt;
  Text text{.source = read_all(request.source), .reference = read_all(request.reference)};
  if (!request.source.empty() && text.source.size() != text.reference.size()) {
    throw Error("--reference",
                fmt::format("has {}, and --source {}", counted(text.reference.size(), "line"), text.source.size()),
                "give texts of the same sentences, line by line");
  }
  if (text.reference.empty())
    throw Error("--reference", "has no line of text", "name the validation text's translation");
  return text;
}

/// The validation translations of all runs, sentence by sentence, of the text that is `given` or the one that the runs
/// name; those of runs without any, or of another text than the first run's, are left out, and remarked on.
void compare_translations(const Request& request, const std::optional<Text>& given, const Lines& names,
                          RunReport& report) {
  std::vector<ComparedSentence> sentences;
  std::optional<Text> text;
  for (size_t run = 0; run < request.runs.size() && request.sentences > 0; ++run) {
    try {
      const auto file = newest_validation(request.runs[run]);
      if (file.empty()) {
        report.remarks.push_back(
            fmt::format("{} has no validation translations: training.validate_bleu writes them", names[run]));
        continue;
      }
      auto own = given;
      if (!own) {
        const auto files = validation_text(request.runs[run]);
        own = Text{.source = read_all(files.source), .reference = read_all(files.target)};
        if (own->reference.empty() || (!own->source.empty() && own->source.size() != own->reference.size())) {
          report.remarks.push_back(
              fmt::format("{} does not say what its validation text is; --source and --reference do", names[run]));
          continue;
        }
      }
      if (!text) {
        text = own;
        for (size_t i = 0; i < text->reference.size(); ++i) {
          sentences.push_back({.line = static_cast<int64_t>(i) + 1,
                               .source = text->source.empty() ? "" : text->source[i],
                               .reference = text->reference[i],
                               .outputs = std::vector<std::optional<ComparedSentence::Output>>(request.runs.size())});
        }
      }
      auto outputs = read_lines(file);
      if (own != text || outputs.size() != sentences.size()) {
        report.remarks.push_back(fmt::format("The translations in {} are of another text", file.string()));
        continue;
      }
      for (size_t i = 0; i < sentences.size(); ++i) {
        // Of blank lines there is no BLEU.
        const bool blank = trim(outputs[i]).empty() && trim(sentences[i].reference).empty();
        const double score = blank ? 100 : sentence_bleu(outputs[i], {sentences[i].reference}).score;
        sentences[i].outputs[run] = {.text = std::move(outputs[i]), .score = score};
      }
    } catch (const Error& error) {
      report.remarks.push_back(fmt::format("Translations of {} are left out: {}", names[run], error.what()));
    } catch (const Failure& error) {
      report.remarks.push_back(fmt::format("Translations of {} are left out: {}", names[run], error.what()));
    }
  }
  choose_sentences(report, std::move(sentences), request.sentences);
}

RunReport read_runs(const Request& request, const std::optional<Text>& given) {
  const auto names = folder_names(request.runs);
  RunReport report;
  bool all_finished = true;
  for (size_t run = 0; run < request.runs.size(); ++run) {
    report.runs.push_back(read_run_log(request.runs[run], names[run]));
    all_finished = all_finished && report.runs.back().finished;
  }
  report.remarks = remarks_on(report.runs);
  if (!all_finished) report.reload_seconds = request.watch;
  compare_translations(request, given, names, report);
  return report;
}

/// What the page is made of, validations to come not counted.
std::vector<fs::path> files_read(const Request& request) {
  std::vector<fs::path> files(request.source.begin(), request.source.end());
  files.insert(files.end(), request.reference.begin(), request.reference.end());
  for (const auto& run : request.runs) {
    const fs::path folder = run;
    files.push_back(folder);  // its model's
    files.push_back(folder / run_record_name);
    for (const char* name : run_file_names) files.push_back(folder / name);
    const auto text = validation_text(folder);
    files.insert(files.end(), text.source.begin(), text.source.end());
    files.insert(files.end(), text.target.begin(), text.target.end());
    for (const auto& written : entries_of(folder / validations_name)) files.push_back(written);
  }
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    Request request;
    std::string output_file;
    app.description(
        "Makes one page of training runs, side by side: loss, perplexity, BLEU, rate, gradients, speed, memory, the "
        "best "
        "and the worst validation translations. The page needs nothing but itself.");
    app.add_option("RUN", request.runs, "Folders of runs, finished or not, as train writes them")
        ->required()
        ->type_name("");
    app.add_option("--output", output_file, "The page; standard output for - or if not given")->type_name("FILE");
    app.add_option("--watch", request.watch,
                   "Write the page anew so often until all runs are finished; open in a browser, it follows")
        ->transform(number_between(0.1, 1e6))
        ->type_name("SECONDS");
    app.add_option("--sentences", request.sentences, "Validation translations shown of the best, and of the worst")
        ->transform(number_between(0, 10000))
        ->type_name("N")
        ->capture_default_str();
    auto* const source = app.add_option("--source", request.source,
                                        "The validation text, in place of the files that the runs' config.yaml names")
                             ->type_name("FILE");
    auto* const reference =
        app.add_option("--reference", request.reference, "Its translation, line by line")->type_name("FILE");
    source->needs(reference)->allow_extra_args(false);
    reference->allow_extra_args(false);
    parse();

    if (request.watch > 0 && is_standard(output_file)) {
      throw Error("--watch", "writes the page again and again", "give a file with --output");
    }
    const auto given = given_text(request);  // once: it may be a pipe
    std::vector<fs::path> inputs;
    const auto read = [&] {
      inputs = files_read(request);
      return read_runs(request, given);
    };
    auto report = std::optional(read());
    std::string told;  // of what keeps the last page
    while (true) {
      if (report) {
        check_output("--output", output_file, inputs);
        Output output(output_file);
        output.write(run_html(*report));
        output.commit();
        if (report->reload_seconds <= 0) break;
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(request.watch));
      // A run that begins anew has no figures for a while.
      const auto keep_page = [&](const std::string& reason) {
        if (reason != told) std::cerr << one_line("report: warning: the page stays as it is: " + reason) << '\n';
        told = reason;
        report.reset();
      };
      try {
        report = read();
        told.clear();
      } catch (const Error& error) {
        keep_page(error.what());
      } catch (const Failure& failure) {
        keep_page(failure.what());
      }
    }
  });
}
