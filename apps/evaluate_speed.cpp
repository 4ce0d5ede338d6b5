#include "apps/evaluate_speed.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/evaluate_options.h"
#include "apps/messages.h"
#include "apps/number_option.h"
#include "apps/output.h"
#include "apps/search_options.h"
#include "transformer/architecture/parameter_count.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/evaluation/bleu.h"
#include "transformer/evaluation/chrf.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/precision.h"
#include "transformer/inference/translator.h"
#include "transformer/report/speed_report.h"
#include "transformer/text/lines.h"

namespace transformer {

namespace {

using nlohmann::ordered_json;
using Lines = std::vector<std::string>;

/// Sentences that are decoded at the same time: as an answer is waited for, and as files are translated.
constexpr int64_t batch_sizes[] = {1, 32};

struct SpeedFlags {
  explicit SpeedFlags(CLI::App& command) : search(command, "each model's", {"batch_sentences", "proposals"}) {
    auto* const named = command.add_option("models", models, "Model directories")->option_text("MODEL...");
    auto* const text = command.add_option("--source", source, "Text to translate, plain or .gz")->type_name("FILE");
    auto* const translation =
        command.add_option("--reference", references, "Its translation, plain or .gz; repeat for several references");
    named->needs(text)->needs(translation);
    translation->allow_extra_args(false)->type_name("FILE");
    command
        .add_option("--precision", precisions,
                    "What weights and activations are rounded to: float32, bf16, int8, or several of them "
                    "(float32,int8); if not given, as each model is stored")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::IsMember({"float32", "bf16", "int8"}))
        ->option_text("{float32,bf16,int8},...");
    command.add_option("--threads", threads, "Processor threads")
        ->type_name("N")
        ->transform(number_between(1, 1024))
        ->capture_default_str();
    command
        .add_option("--rounds", rounds,
                    "How often each model is timed, turn about with the others; the best round counts")
        ->transform(number_between(1, 1000))
        ->type_name("N")
        ->capture_default_str();
    command
        .add_option("--timed", timed,
                    "How many lines are timed, from the first on; all are scored. If not given, all are timed, too")
        ->transform(number_between(int64_t{1}, std::numeric_limits<int64_t>::max()))
        ->type_name("N");
    measuring = command.get_options();
    command
        .add_option("--figures", kept,
                    "Figures that an earlier run left (--format json), of these or of other systems, to stand in the "
                    "same table and picture; repeat for more. Without models, these alone. Those of another text, of "
                    "other threads or metrics are told on standard error")
        ->allow_extra_args(false)
        ->type_name("FILE");
    command.add_option("--picture", picture, "Write a picture of BLEU against words a second there, as SVG")
        ->type_name("FILE");
    command.add_option("--format", format, "text or json")
        ->check(CLI::IsMember({"text", "json"}))
        ->type_name("KIND")
        ->capture_default_str();
  }

  std::vector<std::string> models, references, precisions, kept;
  std::string source, picture, format = "text";
  int threads = 1, rounds = 3;
  int64_t timed = 0;
  SearchOptions search;
  std::vector<CLI::Option*> measuring;  // what is for models alone
};

/// A model that takes its turns.
struct Candidate {
  std::string directory;
  SpeedFigures figures;
  std::vector<Translator> translators;  // for each of batch_sizes
  struct Rounds {
    std::vector<double> seconds, core_seconds;
  };
  std::vector<Rounds> rounds;  // for each of batch_sizes
};

double core_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// What decoding reads of a model directory.
int64_t bytes_of(const std::filesystem::path& directory) {
  int64_t bytes = 0;
  for (const char* name : model_names) {
    if (something_at(directory / name)) bytes += static_cast<int64_t>(std::filesystem::file_size(directory / name));
  }
  return bytes;
}

std::vector<Candidate> opened(const SpeedFlags& flags) {
  std::vector<std::optional<Precision>> precisions = {std::nullopt};
  if (!flags.precisions.empty()) precisions.clear();
  for (const auto& name : flags.precisions) precisions.push_back(precision_named(name));
  const auto names = folder_names(flags.models);
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < flags.models.size(); ++i) {
    for (const auto& precision : precisions) {
      const Translator translator(flags.models[i], "cpu", {.precision = precision, .threads = flags.threads});
      auto& candidate = candidates.emplace_back();
      candidate.directory = flags.models[i];
      candidate.figures.model = printable(names[i]);
      candidate.figures.precision = precision_name(translator.packed()->precision());
      candidate.figures.bytes = bytes_of(flags.models[i]);
      candidate.figures.parameters = parameter_count(translator.model_settings());
      candidate.rounds.resize(std::size(batch_sizes));
      auto settings = flags.search.over(translator.settings(), translator.vocabularies());
      for (const int64_t sentences : batch_sizes) {
        settings.batch_sentences = sentences;
        candidate.translators.emplace_back(translator.packed(), translator.vocabularies(), settings, flags.threads);
      }
    }
  }
  return candidates;
}

void time_once(Candidate& candidate, const Lines& lines) {
  for (size_t i = 0; i < std::size(batch_sizes); ++i) {
    const auto& translator = candidate.translators[i];
    const auto start = std::chrono::steady_clock::now();
    const double core_start = core_seconds();
    if (batch_sizes[i] == 1) {
      for (const auto& line : lines) translator.translate({line});
    } else {
      translator.translate(lines);
    }
    const auto end = std::chrono::steady_clock::now();
    candidate.rounds[i].core_seconds.push_back(core_seconds() - core_start);
    candidate.rounds[i].seconds.push_back(std::chrono::duration<double>(end - start).count());
  }
}

int64_t words_of(const Lines& lines) {
  int64_t words = 0;
  for (const auto& line : lines) {
    std::istringstream stream(line);
    words += std::distance(std::istream_iterator<std::string>(stream), {});
  }
  return words;
}

void measure(const SpeedFlags& flags, std::vector<Candidate>& candidates, const Lines& sources,
             const std::vector<Lines>& references, const Lines& timed) {
  for (auto& candidate : candidates) {
    Lines hypotheses;
    for (const auto& translations : candidate.translators.back().translate(sources)) {
      hypotheses.push_back(translations.front().text);
    }
    candidate.figures.bleu = corpus_bleu(hypotheses, references).score;
    candidate.figures.chrf = corpus_chrf(hypotheses, references);
  }
  for (int round = 0; round < flags.rounds; ++round) {
    for (auto& candidate : candidates) time_once(candidate, timed);
  }
  const auto words = static_cast<double>(words_of(timed));
  const auto rate = [&](const std::vector<double>& seconds) {
    return words / std::max(*std::min_element(seconds.begin(), seconds.end()), 1e-9);
  };
  for (auto& candidate : candidates) {
    for (size_t i = 0; i < std::size(batch_sizes); ++i) {
      const auto& rounds = candidate.rounds[i];
      candidate.figures.timed.push_back({.sentences = batch_sizes[i],
                                         .words_per_second = rate(rounds.seconds),
                                         .words_per_core_second = rate(rounds.core_seconds)});
    }
  }
}

ordered_json json_of(const Candidate& candidate) {
  const auto& figures = candidate.figures;
  const auto& settings = candidate.translators.front().model_settings();
  ordered_json speed = ordered_json::array();
  for (size_t i = 0; i < figures.timed.size(); ++i) {
    const auto& timed = figures.timed[i];
    speed.push_back({{"sentences_at_once", timed.sentences},
                     {"words_per_second", timed.words_per_second},
                     {"words_per_core_second", timed.words_per_core_second},
                     {"seconds", candidate.rounds[i].seconds},
                     {"core_seconds", candidate.rounds[i].core_seconds}});
  }
  const auto& how = *figures.measured;
  ordered_json measured = {{"text", how.text},
                           {"sentences", how.sentences},
                           {"timed_sentences", how.timed_sentences},
                           {"timed_words", how.timed_words},
                           {"threads", how.threads},
                           {"bleu_signature", how.bleu_signature},
                           {"chrf_signature", how.chrf_signature}};
  return {{"model", candidate.directory},
          {"name", figures.model},
          {"precision", figures.precision},
          {"bleu", figures.bleu},
          {"chrf", figures.chrf},
          {"bytes", figures.bytes},
          {"parameters", figures.parameters},
          {"encoder_layers", settings.encoder_layers},
          {"decoder_layers", settings.decoder_layers},
          {"d_model", settings.d_model},
          {"speed", std::move(speed)},
          {"measured", std::move(measured)}};
}

/// What is scored, and what is timed of it.
struct Text {
  Lines sources, timed;
  std::vector<Lines> references;
};

Text read_text(const SpeedFlags& flags) {
  Text text{.sources = read_lines(flags.source), .timed = {}, .references = {}};
  text.references = read_references(flags.references, text.sources.size(), flags.source);
  text.timed = text.sources;
  if (flags.timed > 0 && static_cast<size_t>(flags.timed) < text.timed.size()) {
    text.timed.resize(static_cast<size_t>(flags.timed));
  }
  if (words_of(text.timed) == 0) throw Error(flags.source, "has no words in the lines that are to be timed");
  return text;
}

/// How a text is measured: of the lines alone, however the files are called and packed.
SpeedFigures::Measured measured_of(const Text& text, int threads) {
  Checksum checksum;
  const auto add = [&](const Lines& lines) {
    for (const auto& line : lines) {
      checksum.add(line);
      checksum.add("\n");
    }
    checksum.add(std::string_view("\0", 1));
  };
  add(text.sources);
  for (const auto& reference : text.references) add(reference);
  const auto count = std::ssize(text.references);
  return {.text = checksum.text(),
          .sentences = std::ssize(text.sources),
          .timed_sentences = std::ssize(text.timed),
          .timed_words = words_of(text.timed),
          .threads = threads,
          .bleu_signature = bleu_signature({}, count),
          .chrf_signature = chrf_signature({}, count)};
}

/// Figures as they were kept, in `json`, and read.
std::vector<SpeedFigures> kept_figures(const SpeedFlags& flags, ordered_json& json) {
  std::vector<SpeedFigures> all;
  for (const auto& file : flags.kept) {
    const auto text = read_file(file);  // once: it may be a pipe
    const auto of_file = read_speed_figures(text, file, {std::begin(batch_sizes), std::end(batch_sizes)});
    all.insert(all.end(), of_file.begin(), of_file.end());
    auto whole = ordered_json::parse(text);
    for (auto& model : whole["models"]) json["models"].push_back(std::move(model));
  }
  return all;
}

void run(const SpeedFlags& flags) {
  if (flags.models.empty() && flags.kept.empty()) {
    throw Error("evaluate speed", "has nothing to show",
                "name models, which are directories, or --figures of an earlier run");
  }
  for (const auto* option : flags.measuring) {
    if (flags.models.empty() && option->count() > 0) {
      throw Error(option->get_name(), "is for measuring, and no model is named", "name models, or leave it out");
    }
  }
  std::vector<std::filesystem::path> inputs(flags.kept.begin(), flags.kept.end());
  inputs.insert(inputs.end(), flags.references.begin(), flags.references.end());
  if (!flags.source.empty()) inputs.emplace_back(flags.source);
  inputs.insert(inputs.end(), flags.models.begin(), flags.models.end());
  if (flags.picture == "-") throw Error("--picture", "a picture is written to a file", "name one");
  check_output_file("--picture", flags.picture, inputs);
  ordered_json json = {{"models", ordered_json::array()}};
  const auto kept = kept_figures(flags, json);
  std::string remarks;
  std::vector<SpeedFigures> figures;
  if (!flags.models.empty()) {
    const auto text = read_text(flags);
    auto candidates = opened(flags);
    measure(flags, candidates, text.sources, text.references, text.timed);
    const auto how = measured_of(text, flags.threads);
    ordered_json measured = {{"bleu_signature", how.bleu_signature}, {"chrf_signature", how.chrf_signature},
                             {"sentences", how.sentences},           {"timed_sentences", how.timed_sentences},
                             {"timed_words", how.timed_words},       {"threads", how.threads},
                             {"models", ordered_json::array()}};
    for (auto& candidate : candidates) {
      candidate.figures.measured = how;
      figures.push_back(candidate.figures);
      measured["models"].push_back(json_of(candidate));
    }
    for (auto& model : json["models"]) measured["models"].push_back(std::move(model));
    json = std::move(measured);
    remarks = fmt::format("{} of {} timed, {}, {}, the best of {}\n{}\n{}\n", how.timed_sentences,
                          counted(how.sentences, "sentence"), counted(how.timed_words, "word"),
                          counted(how.threads, "thread"), counted(flags.rounds, "round"), how.bleu_signature,
                          how.chrf_signature);
  }
  figures.insert(figures.end(), kept.begin(), kept.end());
  // Beside what is written: a picture and JSON have no place for them.
  for (const auto& remark : speed_remarks(figures)) std::cerr << one_line("evaluate: warning: " + remark) << '\n';
  // Neither is lost where the other cannot be written.
  std::exception_ptr not_drawn;
  try {
    if (!flags.picture.empty()) write_atomically(flags.picture, speed_picture(figures));
  } catch (...) {
    not_drawn = std::current_exception();
  }
  if (flags.format == "json") {
    std::cout << json.dump(1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  } else {
    std::cout << speed_table(figures) << remarks;
  }
  if (not_drawn) {
    std::cout.flush();
    std::rethrow_exception(not_drawn);
  }
}

}  // namespace

void declare_speed(CLI::App& app) {
  auto* command = app.add_subcommand(
      "speed",
      "How well models translate a text and how fast: BLEU, chrF, size, words a second one sentence at a time "
      "and 32 at once");
  const auto flags = std::make_shared<SpeedFlags>(*command);
  command->callback([flags] { run(*flags); });
}

}  // namespace transformer
