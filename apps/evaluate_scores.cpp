#include "apps/evaluate_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/decoding_options.h"
#include "apps/evaluate_options.h"
#include "apps/line_input.h"
#include "apps/line_work.h"
#include "apps/n_best_list.h"
#include "apps/number_option.h"
#include "apps/output.h"
#include "transformer/base/counted.h"
#include "transformer/base/threads.h"
#include "transformer/inference/perplexity.h"
#include "transformer/inference/told_languages.h"
#include "transformer/inference/translator.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

namespace {

using nlohmann::ordered_json;

// Lines judged together: many of one length, whatever their order. Fewer where they are long.
constexpr size_t window_lines = 2048, window_bytes = size_t{4} << 20;

/// A source, or a translation of it, that can be judged.
struct Pieces {
  std::vector<int64_t> ids;
  std::string problem;  // empty: none
};

struct Score {
  std::vector<double> tokens;  // log p, the end's last
  double log_probability = 0;
  double normalised = 0;  // by the length penalty alone
};

/// The model that judges, its flags, and how it judges pairs of lines.
class Judge {
 public:
  /// The model's.
  const std::string& directory() const { return directory_; }

  explicit Judge(CLI::App& command) {
    command.add_option("--model", directory_, "Model directory")->required()->type_name("DIR");
    add_precision_option(command, precision_);
    add_threads_option(command, threads_);
    command.add_option("--from", from_, "The language that the model reads here, where it knows many")
        ->option_text("LANGUAGE");
    command.add_option("--to", to_, "The language that it writes")->option_text("LANGUAGE");
    command.add_flag("--reverse", reverse_,
                     "The model translates the other way: it judges how likely the source is, given the translation");
  }

  /// After parsing. Throws Error for a folder that is no model, and languages that it does not know.
  void open() {
    const InferenceOptions inference{.precision = precision_named(precision_),
                                     .threads = threads_ > 0 ? threads_ : default_threads()};
    translator_.emplace(directory_, "cpu", inference);
    search_ = translator_->settings();
    const auto tell = [](const Vocabulary& vocabulary, const std::string& code, const char* option, std::string& told) {
      if (code.empty() && (!told.empty() || vocabulary.languages().empty())) return;
      vocabulary.languages().piece(code, option);
      told = code;
    };
    tell(*translator_->vocabularies().source, from_, "--from", search_.source_language);
    tell(*translator_->vocabularies().target, to_, "--to", search_.target_language);
    const ToldLanguages checked(translator_->vocabularies(), search_);
    threads_ = static_cast<int>(inference.threads);
  }

  Pieces source(const std::string& line) const { return pieces(line, !reverse_); }
  Pieces target(const std::string& line) const { return pieces(line, reverse_); }

  /// Of pairs without problems.
  std::vector<Score> judge(std::vector<std::vector<int64_t>> sources, std::vector<std::vector<int64_t>> targets) const {
    if (reverse_) std::swap(sources, targets);
    std::vector<Score> scores;
    for (auto& tokens : translator_->score(sources, targets, search_, threads_)) {
      auto& score = scores.emplace_back();
      score.tokens = std::move(tokens);
      score.log_probability = std::accumulate(score.tokens.begin(), score.tokens.end(), 0.0);
      score.normalised = normalised_score(score.tokens, search_, translator_->languages_told());
    }
    return scores;
  }

  /// The word pieces that a score's tokens are: of the translation, or in reverse of the source; and the end.
  std::vector<std::string> written(const std::vector<int64_t>& ids) const {
    std::vector<std::string> result;
    const auto& vocabulary = *translator_->vocabularies().target;
    for (const int64_t id : ids) result.push_back(vocabulary.piece(id));
    result.push_back(vocabulary.piece(Vocabulary::end));
    return result;
  }
  bool reverse() const { return reverse_; }

 private:
  Pieces pieces(const std::string& line, bool read) const {
    const auto& vocabularies = translator_->vocabularies();
    auto ids = (read ? vocabularies.source : vocabularies.target)->encode_line(line);
    auto problem = translator_->problem(ids.size());
    return {std::move(ids), std::move(problem)};
  }

  std::string directory_, precision_, from_, to_;
  DecodingSettings search_;
  int threads_ = 0;
  bool reverse_ = false;
  std::optional<Translator> translator_;
};

/// A line of each side, numbered alike.
struct LinePair {
  int64_t number = 0;
  InputLine source, target;
};

/// Throws Error where one side ends before the other.
bool read_pair(LineInput& sources, LineInput& targets, int64_t number, LinePair& pair) {
  pair.number = number;
  const bool source = sources.next(pair.source), target = targets.next(pair.target);
  if (source != target)
    throw source ? ends_early(targets, sources, number - 1) : ends_early(sources, targets, number - 1);
  return source;
}

class Scoring {
 public:
  Scoring(const Judge& judge, BadLines& bad_lines, std::string form)
      : judge_(judge), bad_lines_(bad_lines), form_(std::move(form)) {}

  /// The lines of output for a window of pairs. Where the work ends at a bad line: those before it, then what is wrong.
  void operator()(LineInput& sources, LineInput& targets, const std::vector<LinePair>& window) {
    std::vector<std::vector<int64_t>> source_ids, target_ids;
    std::vector<bool> judged;
    std::optional<Error> ended;
    for (const auto& pair : window) {
      const auto source = judge_.source(pair.source.text), target = judge_.target(pair.target.text);
      const bool good = usable(sources, pair, pair.source, source.problem, ended) &&
                        usable(targets, pair, pair.target, target.problem, ended);
      if (ended) break;
      judged.push_back(good);
      if (!good) continue;
      source_ids.push_back(source.ids);
      target_ids.push_back(target.ids);
    }
    const auto scores = judge_.judge(source_ids, target_ids);
    size_t next = 0;
    for (const bool scored : judged) {
      if (!scored) {
        std::cout << (form_ == "jsonl" ? "null\n" : "\n");
        continue;
      }
      print(scores[next], judge_.reverse() ? source_ids[next] : target_ids[next]);
      ++next;
    }
    flush_standard_output();
    if (ended) throw *ended;
  }

 private:
  /// Whether this side of a pair can be used; where it cannot and the work ends with it, with what is in `ended`.
  bool usable(const LineInput& input, const LinePair& pair, const InputLine& line, const std::string& too_long,
              std::optional<Error>& ended) {
    if (line.usable() && too_long.empty()) return true;
    InputLine found = line;
    if (found.usable()) found.refuse(too_long, Translator::remedy);
    if (bad_lines_.stop()) {
      ended = input.error(pair.number, found);
    } else {
      bad_lines_.add(pair.number, found.problem);
    }
    return false;
  }

  void print(const Score& score, const std::vector<int64_t>& ids) const {
    const auto count = static_cast<double>(score.tokens.size());
    if (form_ == "jsonl") {
      std::cout << ordered_json{{"log_probability", score.log_probability},
                                {"score", score.normalised},
                                {"perplexity", std::exp(-score.log_probability / count)},
                                {"tokens", judge_.written(ids)},
                                {"token_log_probabilities", score.tokens}}
                       .dump()
                << '\n';
    } else {
      std::cout << fmt::format("{:.6f}\n", form_ == "score"       ? score.normalised
                                           : form_ == "per-token" ? score.log_probability / count
                                                                  : score.log_probability);
    }
  }

  const Judge& judge_;
  BadLines& bad_lines_;
  std::string form_;
};

}  // namespace

void declare_score(CLI::App& app) {
  struct Flags {
    explicit Flags(CLI::App& command)
        : judge(command),
          bad_lines(command, "not UTF-8, longer than 1 MiB, or of more word pieces than the model takes",
                    /*copies=*/false) {
      command.add_option("--source", source, "Text, plain or .gz; standard input for -")->required()->type_name("FILE");
      command.add_option("--target", target, "Its translation, line by line; standard input for -")
          ->required()
          ->type_name("FILE");
      command
          .add_option("--format", form,
                      "log-probability: a number a line, the sum over the translation's word pieces and its end; "
                      "per-token: divided by how many these are; score: by the model's length penalty, as translate "
                      "prints it, but for penalties of coverage and repetition; jsonl: all of that, and each word "
                      "piece's")
          ->check(CLI::IsMember({"log-probability", "per-token", "score", "jsonl"}))
          ->option_text("{log-probability,per-token,score,jsonl}")
          ->capture_default_str();
    }
    Judge judge;
    BadLines bad_lines;
    std::string source, target, form = "log-probability";
  };
  auto* command = app.add_subcommand("score", "What a model thinks of given translations, in nats");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] {
    if (is_standard(flags->source) && is_standard(flags->target)) {
      throw Error("--target", "standard input cannot be both sides", "give a file for one of them");
    }
    check_output("", "", {input_path(flags->source), input_path(flags->target), flags->judge.directory()});
    LineInput sources(flags->source), targets(flags->target);
    flags->judge.open();
    Scoring score(flags->judge, flags->bad_lines, flags->form);
    std::vector<LinePair> window;
    bool more = true;
    for (int64_t number = 0; more;) {
      window.clear();
      std::optional<Error> uneven;
      size_t bytes = 0;
      while (window.size() < window_lines && bytes < window_bytes) {
        LinePair pair;
        try {
          more = read_pair(sources, targets, ++number, pair);
        } catch (const Error& error) {  // what is before it is judged all the same
          uneven = error;
          more = false;
        }
        if (!more) break;
        bytes += pair.source.text.size() + pair.target.text.size();
        window.push_back(std::move(pair));
      }
      score(sources, targets, window);
      if (uneven) throw *uneven;
    }
    flags->bad_lines.report("evaluate");
  });
}

void declare_rescore(CLI::App& app) {
  struct Flags {
    explicit Flags(CLI::App& command) : judge(command) {
      command.add_option("--input", input, "The list, plain or .gz; standard input for - or if not given")
          ->type_name("FILE");
      command.add_option("--source", source, "The text that was translated, plain or .gz; standard input for -")
          ->required()
          ->type_name("FILE");
      command
          .add_option(
              "--weight", weight,
              "Share of this model's score; the rest is the list's own, so that several models can be asked one "
              "after the other")
          ->transform(number_between(0.0, 1.0))
          ->type_name("NUMBER")
          ->capture_default_str();
      command.add_flag("--best", best, "Write the best translation of every line alone, without number and score");
    }
    Judge judge;
    std::string input, source;
    double weight = 1;
    bool best = false;
  };
  auto* command =
      app.add_subcommand("rescore", "Sorts an n-best list, as translate writes it, by another model's scores");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] {
    if (is_standard(flags->input) && is_standard(flags->source)) {
      throw Error("--source", "and --input are both standard input", "give a file for one of them");
    }
    check_output("", "", {input_path(flags->source), input_path(flags->input), flags->judge.directory()});
    LineInput sources(flags->source), list(flags->input);
    flags->judge.open();
    const auto& judge = flags->judge;
    int64_t source_number = 0;  // lines read
    InputLine source;

    std::vector<Listed> window;
    std::vector<std::vector<int64_t>> source_ids, target_ids;
    std::vector<int64_t> current;
    size_t bytes = 0;    // of the window
    bool whole = false;  // the last line's translations, where the list goes wrong behind them
    const auto write = [&] {
      const auto scores = judge.judge(source_ids, target_ids);
      for (size_t i = 0; i < window.size(); ++i) {
        window[i].score = (1 - flags->weight) * window[i].score + flags->weight * scores[i].normalised;
      }
      std::stable_sort(window.begin(), window.end(), [](const Listed& a, const Listed& b) {
        return a.index != b.index ? a.index < b.index : a.score > b.score;
      });
      for (size_t i = 0; i < window.size(); ++i) {
        if (!flags->best) {
          std::cout << fmt::format("{} ||| {} ||| {:.6f}\n", window[i].index, window[i].text, window[i].score);
        } else if (i == 0 || window[i].index != window[i - 1].index) {
          std::cout << window[i].text << '\n';
        }
      }
      flush_standard_output();
      window.clear();
      source_ids.clear();
      target_ids.clear();
      bytes = 0;
    };
    const auto read_all = [&] {
      int64_t number = 0;
      for (InputLine line; list.next(line);) {
        ++number;
        if (!line.usable()) throw list.error(number, line);
        auto listed = read_listed(list, number, line.text);
        if (listed.index < source_number - 1) {
          throw Error(list.where(number), fmt::format("is of line {} again", listed.index),
                      "the list has to be in the order of the text");
        }
        if (flags->best && listed.index > source_number) {
          whole = true;
          throw Error(list.where(number), fmt::format("is of line {}, but {} comes next", listed.index, source_number),
                      "for --best the list has to leave no line out");
        }
        const auto too_long = [&](const LineInput& input, int64_t at, const std::string& problem) {
          if (!problem.empty()) throw Error(input.where(at), problem, Translator::remedy);
        };
        if (listed.index >= source_number) {
          if (window.size() >= window_lines || bytes >= window_bytes) write();  // never within a line's translations
          while (source_number <= listed.index) {
            ++source_number;
            if (!sources.next(source)) {
              throw Error(list.where(number),
                          fmt::format("is of line {}, but {} has {}", listed.index, sources.name(),
                                      counted(source_number - 1, "line")),
                          "give the text that was translated");
            }
          }
          if (!source.usable()) throw sources.error(source_number, source);
          const auto pieces = judge.source(source.text);
          too_long(sources, source_number, pieces.problem);
          current = pieces.ids;
        }
        const auto pieces = judge.target(listed.text);
        too_long(list, number, pieces.problem);
        bytes += source.text.size() + listed.text.size();
        source_ids.push_back(current);
        target_ids.push_back(pieces.ids);
        window.push_back(std::move(listed));
      }
    };
    try {
      read_all();
    } catch (const Error&) {  // what is whole before it is written all the same
      while (!whole && !window.empty() && window.back().index == source_number - 1) window.pop_back();
      source_ids.resize(window.size());
      target_ids.resize(window.size());
      write();
      throw;
    }
    write();
    if (InputLine next; flags->best && sources.next(next)) {
      throw Error(list.name(), fmt::format("ends after line {}, but {} has more", source_number - 1, sources.name()),
                  "for --best the list has to leave no line out");
    }
  });
}

}  // namespace transformer
