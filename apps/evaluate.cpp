// Scores translations (BLEU, chrF, whether one output is better than another by more than chance, what a model thinks
// of them) and parses; says what a model is.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/evaluate_mbr.h"
#include "apps/evaluate_options.h"
#include "apps/evaluate_scores.h"
#include "apps/evaluate_speed.h"
#include "apps/line_input.h"
#include "apps/line_work.h"
#include "apps/manual.h"
#include "apps/number_option.h"
#include "apps/program.h"
#include "transformer/architecture/longest_text.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/parameter_count.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/base/model_files.h"
#include "transformer/base/tensor_file.h"
#include "transformer/base/threads.h"
#include "transformer/evaluation/bleu.h"
#include "transformer/evaluation/bootstrap.h"
#include "transformer/evaluation/brackets.h"
#include "transformer/evaluation/chrf.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/perplexity.h"
#include "transformer/text/lines.h"
#include "transformer/text/treebank.h"

namespace {

using namespace transformer;
using Lines = std::vector<std::string>;
using nlohmann::ordered_json;

struct InputFlag {
  std::string file;
  explicit InputFlag(CLI::App& command) {
    command.add_option("--input", file, "What is judged, plain or .gz; standard input for - or if not given")
        ->type_name("FILE");
  }
  std::string name() const { return is_standard(file) ? standard_input : file; }
};

Lines read_input(const InputFlag& flag, BadLines& bad_lines) {
  Lines lines;
  LineInput input(flag.file);
  for (InputLine line; input.next(line);) {
    bad_lines.check(input, static_cast<int64_t>(lines.size()) + 1, line);
    lines.push_back(line.usable() ? std::move(line.text) : bad_lines.instead_of(line));
  }
  return lines;
}

constexpr const char* bad_translation = "not UTF-8, or longer than 1 MiB";

struct ReferenceFlags {
  std::vector<std::string> files;
  explicit ReferenceFlags(CLI::App& command) {
    command.add_option("--reference", files, "Reference file, plain or .gz; repeat for several references")
        ->required()
        ->allow_extra_args(false)
        ->type_name("FILE");
  }
};

struct FormatFlag {
  std::string name = "text";
  explicit FormatFlag(CLI::App& command) {
    command.add_option("--format", name, "text or json")
        ->check(CLI::IsMember({"text", "json"}))
        ->type_name("KIND")
        ->capture_default_str();
  }
  bool json() const { return name == "json"; }
};

struct BleuFlags {
  std::string tokenizer = "13a", smoothing;
  bool tokenized = false, lowercase = false, compound_split = false;
  std::optional<double> smoothing_value;

  explicit BleuFlags(CLI::App& command) {
    auto* tokenize = command.add_option("--tokenize", tokenizer, "13a (mteval's, as sacreBLEU by default) or none")
                         ->check(CLI::IsMember({"13a", "none"}))
                         ->type_name("KIND")
                         ->capture_default_str();
    command.add_flag("--tokenized", tokenized, "The text is tokenized already; the same as --tokenize none")
        ->excludes(tokenize);
    command.add_flag("--lowercase", lowercase, "Ignore upper and lower case");
    command.add_flag("--compound-split", compound_split,
                     "Score the parts of hyphenated words as tokens, as the paper's English-German figures do; "
                     "not comparable with plain BLEU");
    command.add_option("--smooth", smoothing, "exp, floor, add-k or none [exp; none with --compound-split]")
        ->check(CLI::IsMember({"exp", "floor", "add-k", "none"}))
        ->type_name("KIND");
    command.add_option("--smooth-value", smoothing_value, "What floor or add-k adds [0.1 or 1]")
        ->transform(number_between(0.0, 1e6))
        ->type_name("NUMBER");
  }

  BleuOptions options() const {
    using Smoothing = BleuOptions::Smoothing;
    BleuOptions result{.lowercase = lowercase, .compound_split = compound_split};
    if (tokenized || tokenizer == "none") result.tokenizer = BleuOptions::Tokenizer::none;
    const std::string kind = !smoothing.empty() ? smoothing : compound_split ? "none" : "exp";
    result.smoothing = kind == "exp"     ? Smoothing::exponential
                       : kind == "floor" ? Smoothing::floor
                       : kind == "add-k" ? Smoothing::add_k
                                         : Smoothing::none;
    if (smoothing_value && kind != "floor" && kind != "add-k") {
      throw Error("--smooth-value", fmt::format("smoothing '{}' takes no value", kind),
                  "give --smooth floor or --smooth add-k with it");
    }
    result.smoothing_value = smoothing_value;
    return result;
  }
};

struct ChrfFlags {
  ChrfOptions options;
  /// Where BLEU's flags stand beside these, its --lowercase serves both.
  ChrfFlags(CLI::App& command, bool own_lowercase) {
    command.add_option("--word-order", options.word_order, "Longest word n-gram: 0 is chrF, 2 is chrF++")
        ->transform(number_between(0, 9))
        ->type_name("N")
        ->capture_default_str();
    if (own_lowercase) command.add_flag("--lowercase", options.lowercase, "Ignore upper and lower case");
  }
};

void bleu(CLI::App& app) {
  struct Flags {
    explicit Flags(CLI::App& command)
        : input(command),
          references(command),
          bleu(command),
          bad_lines(command, bad_translation, /*copies=*/true, BadLines::OneFigure()),
          format(command) {}
    InputFlag input;
    ReferenceFlags references;
    BleuFlags bleu;
    BadLines bad_lines;
    FormatFlag format;
  };
  auto* command = app.add_subcommand("bleu", "BLEU of translations, as sacreBLEU computes it");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] {
    const BleuOptions options = flags->bleu.options();
    const Lines hypotheses = read_input(flags->input, flags->bad_lines);
    const auto references = read_references(flags->references.files, hypotheses.size(), flags->input.name());
    const Bleu result = corpus_bleu(hypotheses, references, options);
    const std::string signature = bleu_signature(options, static_cast<int64_t>(references.size()));
    if (flags->format.json()) {
      std::cout << ordered_json{{"name", bleu_name(options)},
                                {"score", result.score},
                                {"signature", signature},
                                {"precisions", result.precisions},
                                {"brevity_penalty", result.brevity_penalty},
                                {"ratio", result.ratio()},
                                {"hypothesis_length", result.hypothesis_length},
                                {"reference_length", result.reference_length},
                                {"matches", result.matches},
                                {"totals", result.totals}}
                       .dump(1)
                << '\n';
    } else {
      std::cout << to_string(result, options) << '\n' << signature << '\n';
    }
    flags->bad_lines.report("evaluate");
  });
}

void chrf(CLI::App& app) {
  struct Flags {
    explicit Flags(CLI::App& command)
        : input(command),
          references(command),
          chrf(command, true),
          bad_lines(command, bad_translation, /*copies=*/true, BadLines::OneFigure()),
          format(command) {}
    InputFlag input;
    ReferenceFlags references;
    ChrfFlags chrf;
    BadLines bad_lines;
    FormatFlag format;
  };
  auto* command = app.add_subcommand("chrf", "chrF or chrF++ of translations");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] {
    const ChrfOptions& options = flags->chrf.options;
    const Lines hypotheses = read_input(flags->input, flags->bad_lines);
    const auto references = read_references(flags->references.files, hypotheses.size(), flags->input.name());
    const double score = corpus_chrf(hypotheses, references, options);
    const std::string signature = chrf_signature(options, static_cast<int64_t>(references.size()));
    if (flags->format.json()) {
      std::cout << ordered_json{{"name", chrf_name(options)}, {"score", score}, {"signature", signature}}.dump(1)
                << '\n';
    } else {
      std::cout << fmt::format("{} = {:.2f}\n{}\n", chrf_name(options), score, signature);
    }
    flags->bad_lines.report("evaluate");
  });
}

void compare(CLI::App& app) {
  struct Flags {
    explicit Flags(CLI::App& command) : references(command), bleu(command), chrf(command, false), format(command) {
      command.add_option("--baseline", baseline, "The output to compare with")->required()->type_name("FILE");
      command.add_option("--system", system, "The output that may be better")->required()->type_name("FILE");
      command.add_option("--samples", resampling.samples, "Random draws of sentences")
          ->transform(number_between(int64_t{1}, int64_t{10000000}))
          ->type_name("N")
          ->capture_default_str();
      command.add_option("--seed", resampling.seed, "Seed of the draws")
          ->type_name("N")
          ->transform(number_between(uint64_t{0}, uint64_t{1} << 53))
          ->capture_default_str();
    }
    ReferenceFlags references;
    BleuFlags bleu;
    ChrfFlags chrf;
    FormatFlag format;
    std::string baseline, system;
    BootstrapOptions resampling;
  };
  auto* command =
      app.add_subcommand("compare", "Is one output better than another? BLEU and chrF, paired bootstrap resampling");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] {
    const BleuOptions bleu_options = flags->bleu.options();
    ChrfOptions chrf_options = flags->chrf.options;
    chrf_options.lowercase = bleu_options.lowercase;
    const Lines baseline = read_lines(flags->baseline), system = read_lines(flags->system);
    if (baseline.size() != system.size()) {
      throw Error(
          flags->system,
          fmt::format("has {}, but {} has {}", counted(system.size(), "line"), flags->baseline, baseline.size()),
          "compare translations of the same text");
    }
    const auto references = read_references(flags->references.files, baseline.size(), flags->baseline);

    ordered_json json = {{"baseline", flags->baseline},
                         {"system", flags->system},
                         {"sentences", baseline.size()},
                         {"metrics", ordered_json::array()}};
    std::string text = fmt::format("baseline: {}\nsystem:   {}\n", flags->baseline, flags->system);
    const auto report = [&](const std::string& name, const std::string& signature, const Comparison& result) {
      const auto estimate = [](const Estimate& value) {
        return ordered_json{
            {"score", value.score}, {"mean", value.mean}, {"lower", value.lower}, {"upper", value.upper}};
      };
      json["metrics"].push_back({{"name", name},
                                 {"baseline", estimate(result.baseline)},
                                 {"system", estimate(result.system)},
                                 {"difference", estimate(result.difference)},
                                 {"p_value", result.p_value},
                                 {"signature", signature}});
      const auto line = [&](const char* what, const Estimate& value) {
        text +=
            fmt::format("  {:<10} {:6.2f} (mean {:.2f} ± {:.2f})\n", what, value.score, value.mean, value.half_width());
      };
      text += fmt::format("{}\n", name);
      line("baseline", result.baseline);
      line("system", result.system);
      text += fmt::format("  {:<10} {:+6.2f} (95 % between {:+.2f} and {:+.2f}), p = {:.4f}\n  {}\n", "difference",
                          result.difference.score, result.difference.lower, result.difference.upper, result.p_value,
                          signature);
    };

    const auto count = static_cast<int64_t>(references.size());
    const auto& resampling = flags->resampling;
    const std::string draws = fmt::format("bs:{}|seed:{}", resampling.samples, resampling.seed);
    report(bleu_name(bleu_options), bleu_signature(bleu_options, count, draws),
           paired_bootstrap(
               bleu_statistics(baseline, references, bleu_options), bleu_statistics(system, references, bleu_options),
               [&](auto sum) { return bleu_from_statistics(sum, bleu_options).score; }, resampling));
    report(chrf_name(chrf_options), chrf_signature(chrf_options, count, draws),
           paired_bootstrap(
               chrf_statistics(baseline, references, chrf_options), chrf_statistics(system, references, chrf_options),
               [&](auto sum) { return chrf_from_statistics(sum, chrf_options); }, resampling));
    if (std::ssize(baseline) < few_sentences) {
      text += fmt::format("{} {} little: with fewer than {}, p is small by chance too often\n",
                          counted(baseline.size(), "sentence"), baseline.size() == 1 ? "tells" : "tell", few_sentences);
    }
    std::cout << (flags->format.json() ? json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n"
                                       : text);
  });
}

void perplexity(CLI::App& app) {
  struct Flags {
    explicit Flags(CLI::App& command) : format(command) {
      command.add_option("--model", model, "Model directory")->required()->type_name("DIR");
      command.add_option("--source", source, "Text")->required()->type_name("FILE");
      command.add_option("--target", target, "Its translation, line by line")->required()->type_name("FILE");
      add_precision_option(command, precision);
      command.add_option("--from", source_language, "The text's language, where the model knows many")
          ->type_name("LANGUAGE");
      command.add_option("--to", target_language, "That of its translation")->type_name("LANGUAGE");
      add_threads_option(command, threads);
    }
    FormatFlag format;
    std::string model, source, target, precision, source_language, target_language;
    int threads = 0;
  };
  auto* command = app.add_subcommand("perplexity", "How well a model predicts translations, per word piece");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] {
    const auto settings = read_model_settings(flags->model);
    const auto model = InferenceModel::load(flags->model, settings, precision_named(flags->precision));
    const auto vocabularies =
        Vocabularies::load(flags->model, settings.source_vocabulary_size, settings.target_vocabulary_size);
    const auto check_language = [](const Vocabulary& vocabulary, const std::string& code, const char* option) {
      if (!code.empty() || !vocabulary.languages().empty()) vocabulary.languages().piece(code, option);
    };
    check_language(*vocabularies.source, flags->source_language, "--from");
    check_language(*vocabularies.target, flags->target_language, "--to");
    const auto corpus = Corpus::read({flags->source}, {flags->target}, *vocabularies.source, *vocabularies.target,
                                     {.max_length = longest_text(settings),
                                      .keep_all = true,
                                      .source_language = flags->source_language,
                                      .target_language = flags->target_language});
    if (corpus.report().too_long > 0) std::cerr << corpus.report().cut_text(longest_text(settings)) << '\n';
    if (corpus.size() == 0) throw Error("--source", "has no line of text", "give text and its translation");
    const auto result =
        transformer::perplexity(*model, corpus, flags->threads > 0 ? flags->threads : default_threads());
    if (flags->format.json()) {
      std::cout
          << ordered_json{{"perplexity", result.perplexity}, {"loss", result.loss}, {"tokens", result.tokens}}.dump(1)
          << '\n';
    } else {
      std::cout << fmt::format("perplexity = {:.3f} (per word piece; {} target tokens, {:.4f} nats each)\n",
                               result.perplexity, result.tokens, result.loss);
    }
  });
}

/// Parses for `count` sentences: one a line where there are so many lines, and a blank line where there is none;
/// otherwise trees over any number of lines.
std::vector<Tree> read_parses(const Lines& lines, const std::string& name, size_t count, BadLines& bad_lines) {
  std::vector<Tree> parses;
  if (lines.size() == count) {
    for (const auto& line : lines) {
      try {
        parses.push_back(read_tree(line, fmt::format("{}:{}", name, parses.size() + 1)));
      } catch (const Error&) {
        if (bad_lines.stop()) throw;
        parses.emplace_back();
        bad_lines.add(static_cast<int64_t>(parses.size()), "is no tree");
      }
    }
    return parses;
  }
  size_t next = 0;
  TreebankReader reader(
      [&](std::string& line) {
        if (next == lines.size()) return false;
        line = lines[next++];
        return true;
      },
      name);
  for (Tree tree; reader.next(tree);) parses.push_back(std::move(tree));
  if (parses.size() != count) {
    throw Error(name,
                fmt::format("has {} in {}, but the reference has {}", counted(parses.size(), "tree"),
                            counted(lines.size(), "line"), counted(count, "tree")),
                "expected a tree for each sentence, or as many lines as sentences with blank lines where there is no "
                "tree");
  }
  return parses;
}

void brackets(CLI::App& app) {
  struct Flags {
    explicit Flags(CLI::App& command)
        : input(command),
          bad_lines(command, "not UTF-8, longer than 1 MiB, or, where there is one for each sentence, no tree",
                    /*copies=*/false, BadLines::OneFigure()),
          format(command) {
      command.add_option("--reference", files, "Treebank, plain or .gz; several are taken one after the other")
          ->required()
          ->type_name("FILE");
    }
    InputFlag input;
    BadLines bad_lines;
    FormatFlag format;
    std::vector<std::string> files;
  };
  auto* command = app.add_subcommand("brackets", "Labelled bracket F1 of parses, by EVALB's rules with COLLINS.prm");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] {
    std::vector<Tree> gold;
    for (const auto& file : flags->files) {
      for (auto& tree : read_treebank(file)) gold.push_back(std::move(tree));
    }
    if (gold.empty()) throw Error(flags->files.front(), "holds no tree");
    const auto score = score_brackets(gold, read_parses(read_input(flags->input, flags->bad_lines), flags->input.name(),
                                                        gold.size(), flags->bad_lines));
    flags->bad_lines.report("evaluate");
    if (flags->format.json()) {
      const auto json = [](const BracketCounts& counts) {
        return ordered_json{{"sentences", counts.sentences},
                            {"unparsed", counts.unparsed},
                            {"unscored", counts.unscored},
                            {"f1", counts.f1()},
                            {"precision", counts.precision()},
                            {"recall", counts.recall()},
                            {"exact_match", counts.exact_match()},
                            {"average_crossing", counts.average_crossing()},
                            {"no_crossing", counts.without_crossing()},
                            {"two_or_less_crossing", counts.with_two_or_less_crossing()},
                            {"gold_brackets", counts.gold},
                            {"parsed_brackets", counts.parsed},
                            {"matched_brackets", counts.matched}};
      };
      std::cout << ordered_json{{"name", "bracket F1"},
                                {"score", score.all.f1()},
                                {"signature", "rules:evalb|labels:collins|version:" TRANSFORMER_VERSION},
                                {"all", json(score.all)},
                                {"up_to_40_words", json(score.short_sentences)}}
                       .dump(1)
                << '\n';
      return;
    }
    const auto& all = score.all;
    const auto& some = score.short_sentences;
    std::string text = fmt::format("bracket F1 = {:.2f}\n{:<22}{:>10}{:>16}\n", all.f1(), "", "all", "up to 40 words");
    const auto count = [&](const char* name, int64_t BracketCounts::*value) {
      text += fmt::format("{:<22}{:>10}{:>16}\n", name, all.*value, some.*value);
    };
    const auto figure = [&](const char* name, double (BracketCounts::*value)() const) {
      text += fmt::format("{:<22}{:>10.2f}{:>16.2f}\n", name, (all.*value)(), (some.*value)());
    };
    count("sentences", &BracketCounts::sentences);
    count("without a parse", &BracketCounts::unparsed);
    count("only punctuation", &BracketCounts::unscored);
    figure("labelled F1", &BracketCounts::f1);
    figure("labelled precision", &BracketCounts::precision);
    figure("labelled recall", &BracketCounts::recall);
    figure("exact match", &BracketCounts::exact_match);
    figure("average crossing", &BracketCounts::average_crossing);
    figure("no crossing", &BracketCounts::without_crossing);
    figure("2 or less crossing", &BracketCounts::with_two_or_less_crossing);
    std::cout << text << "rules:evalb|labels:collins|version:" TRANSFORMER_VERSION "\n";
  });
}

/// What a model directory is, without computing anything.
void describe(CLI::App& app) {
  struct Flags {
    explicit Flags(CLI::App& command) : format(command) {
      command.add_option("--model", model, "Model directory")->required()->type_name("DIR");
    }
    std::string model;
    FormatFlag format;
  };
  auto* command = app.add_subcommand("describe", "What a model is: sizes, parameters, where it came from");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] {
    const std::filesystem::path directory = flags->model;
    const auto settings = read_model_settings(directory);
    verify_model_directory(directory);
    const TensorReader weights(directory / weights_name);
    std::map<std::string, int64_t> types;  // elements of each
    int64_t bytes = 0;
    for (const auto& [name, entry] : weights.entries()) {
      types[element_name(entry.type)] += entry.elements();
      bytes += entry.bytes();
    }
    std::vector<std::string> type_names;
    for (const auto& [type, elements] : types) type_names.push_back(type);
    ordered_json parts;
    for (const auto& [part, parameters] : parameter_counts(settings)) parts[part] = parameters;
    std::vector<std::string> variations;
    std::istringstream text(settings.variations());
    for (std::string line; std::getline(text, line);) variations.push_back(line);

    ordered_json json = {{"d_model", settings.d_model},
                         {"d_ff", settings.d_ff},
                         {"heads", settings.heads},
                         {"encoder_layers", settings.encoder_layers},
                         {"decoder_layers", settings.decoder_layers},
                         {"source_pieces", settings.source_vocabulary_size},
                         {"target_pieces", settings.target_vocabulary_size},
                         {"longest_text", longest_text(settings)},
                         {"parameters", parameter_count(settings)},
                         {"parts", parts},
                         {"types", type_names},
                         {"bytes", bytes},
                         {"variations", variations}};
    for (const auto& [key, said] : provenance(directory)) json[key] = said;
    if (flags->format.json()) {
      std::cout << json.dump(1) << '\n';
      return;
    }
    std::string lines;
    const auto add = [&](const char* name, const std::string& value) {
      lines += fmt::format("{:<16}{}\n", name, value);
    };
    add("layers",
        fmt::format("{} of the encoder, {} of the decoder", settings.encoder_layers, settings.decoder_layers));
    add("width", fmt::format("{}, {} within the feed-forward networks, {} heads", settings.d_model, settings.d_ff,
                             settings.heads));
    add("word pieces", fmt::format("{} of the source, {} of the target", settings.source_vocabulary_size,
                                   settings.target_vocabulary_size));
    add("longest text", fmt::format("{} word pieces", longest_text(settings)));
    add("parameters", fmt::format("{}", parameter_count(settings)));
    for (const auto& [part, parameters] : parts.items()) {
      add("", fmt::format("{} in {}", parameters.get<int64_t>(), part));
    }
    add("weights", fmt::format("{:.1f} MB of {}", static_cast<double>(bytes) / 1e6, fmt::join(type_names, ", ")));
    for (const auto& line : variations) add("variation", line);
    for (const auto& [key, name] : {std::pair{"origin", "origin"},
                                    {"origin_name", "its name there"},
                                    {"languages", "languages"},
                                    {"licence", "licence"}}) {
      if (json.contains(key)) add(name, json[key].get<std::string>());
    }
    std::cout << lines;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return transformer::run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description("Scores translations and parses against references, and says what a model is.");
    app.require_subcommand(1);
    for (const auto declare : {bleu, chrf, compare, ::perplexity, declare_score, declare_rescore, declare_mbr,
                               declare_speed, brackets, describe})
      declare(app);
    for (auto* command : app.get_subcommands([](CLI::App*) { return true; })) {
      command->footer(transformer::examples_of("evaluate " + command->get_name()));
    }
    parse();  // runs the chosen one
  });
}
