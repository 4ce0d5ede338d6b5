#include "apps/evaluate_mbr.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/evaluate_options.h"
#include "apps/least_risk.h"
#include "apps/line_input.h"
#include "apps/n_best_list.h"
#include "apps/output.h"
#include "transformer/base/error.h"
#include "transformer/base/threads.h"

namespace transformer {

namespace {

// Lines judged together: enough for all threads, few enough to stay small.
constexpr size_t window_candidates = 4096;

struct MbrFlags {
  explicit MbrFlags(CLI::App& command) {
    command.add_option("--input", input, "The list, plain or .gz; standard input for - or if not given")
        ->type_name("FILE");
    command.add_option("--metric", metric, "By what translations are judged against each other")
        ->check(CLI::IsMember(utility_names))
        ->option_text("{chrf,chrf++,bleu} [chrf]");
    command
        .add_option("--probabilities", probabilities,
                    "How likely each translation of a line is to be the truth: uniform: all alike, as samples are; "
                    "score: as the list's scores say, which are taken for log-probabilities")
        ->check(CLI::IsMember({"uniform", "score"}))
        ->option_text("{uniform,score} [uniform]");
    add_threads_option(command, threads);
    command.add_flag("--best", best, "Write the best translation of every line alone, without number and score");
  }

  std::string input, metric = "chrf", probabilities = "uniform";
  int threads = 0;
  bool best = false;
};

}  // namespace

void declare_mbr(CLI::App& app) {
  auto* command = app.add_subcommand(
      "mbr",
      "Sorts an n-best list, as translate writes it, by minimum Bayes risk: the translation comes first that is most "
      "like all others of its line; scores become the mean of its scores against all of them, itself included, in per "
      "cent");
  const auto flags = std::make_shared<MbrFlags>(*command);
  command->callback([flags] {
    check_output("", "", {input_path(flags->input)});
    LineInput input(flags->input);
    std::vector<std::vector<Listed>> window;  // the translations of each line
    size_t lines = 0;
    const auto write = [&] {
      in_parallel(window.size(), 1, flags->threads > 0 ? flags->threads : default_threads(),
                  [&](size_t first, size_t last) {
                    for (size_t i = first; i < last; ++i) {
                      put_in_order_of_risk(window[i], utility_named(flags->metric), flags->probabilities == "score");
                    }
                  });
      for (const auto& line : window) {
        for (const auto& listed : line) {
          if (flags->best) {
            std::cout << listed.text << '\n';
            break;
          }
          std::cout << fmt::format("{} ||| {} ||| {:.6f}\n", listed.index, listed.text, listed.score);
        }
      }
      flush_standard_output();
      window.clear();
      lines = 0;
    };
    int64_t number = 0, current = -1;
    bool whole = false;  // the last line's translations, where the list goes wrong behind them
    try {
      for (InputLine line; input.next(line);) {
        ++number;
        if (!line.usable()) throw input.error(number, line);
        auto listed = read_listed(input, number, line.text);
        if (listed.index < current || listed.index > current + 1) {
          whole = listed.index > current;
          throw Error(input.where(number), fmt::format("is of line {}, but {} comes next", listed.index, current + 1),
                      "the list has to be in the order of the text, and to leave no line out");
        }
        if (listed.index > current) {
          current = listed.index;
          if (lines >= window_candidates) write();  // never within a line's translations
          window.emplace_back();
        }
        window.back().push_back(std::move(listed));
        ++lines;
      }
    } catch (const Error&) {  // what is whole before it is written all the same
      if (!whole && !window.empty()) window.pop_back();
      write();
      throw;
    }
    write();
  });
}

}  // namespace transformer
