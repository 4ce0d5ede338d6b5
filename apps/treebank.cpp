// Turns treebanks into text: parallel files to train a parser on, or clean trees.

#include "transformer/text/treebank.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/line_input.h"
#include "apps/manual.h"
#include "apps/output.h"
#include "apps/program.h"
#include "transformer/base/atomic_file.h"

namespace {

using namespace transformer;

struct Flags {
  std::vector<std::string> files;
  std::string output;
  LinearizeOptions linearize;

  explicit Flags(CLI::App& command) {
    command
        .add_option("FILE", files,
                    "Treebanks in Penn Treebank brackets, plain or .gz, read one after the other; standard input for -")
        ->required()
        ->type_name("");
    command
        .add_option("--output", output, "Where the lines go, once all are read; standard output for - or if not given")
        ->type_name("FILE");
  }
};

/// Trees of a file, or of standard input for "-".
TreebankReader reader_of(const std::string& file) {
  if (!is_standard(file)) return TreebankReader(file);
  const auto input = std::make_shared<LineInput>(file);
  const auto next_line = [input, number = int64_t{0}](std::string& text) mutable {
    InputLine line;
    if (!input->next(line)) return false;
    if (!line.usable()) throw input->error(number + 1, line);
    ++number;
    text = std::move(line.text);
    return true;
  };
  return {next_line, standard_input};
}

/// One line for every tree.
void write_lines(const Flags& flags, const std::function<std::string(const Tree&)>& line_of) {
  const auto each = [&](const std::function<void(std::string_view)>& write) {
    for (const auto& file : flags.files) {
      auto reader = reader_of(file);
      for (Tree tree; reader.next(tree);) write(line_of(cleaned(tree)) + "\n");
    }
  };
  std::vector<std::filesystem::path> inputs;
  for (const auto& file : flags.files) inputs.push_back(input_path(file));
  check_output("--output", flags.output, inputs);
  if (is_standard(flags.output)) {
    each([](std::string_view line) { std::cout << line; });
    return;
  }
  AtomicFile output(flags.output);
  each([&](std::string_view line) { output.write(line); });
  output.commit();
}

void linearize_command(CLI::App& app) {
  auto* command = app.add_subcommand("linearize", "Trees as the parser learns to write them: (S (NP XX XX )NP )S");
  const auto flags = std::make_shared<Flags>(*command);
  command->add_flag("--copy-words", flags->linearize.copy_words, "Write words as they are instead of XX");
  command->callback(
      [flags] { write_lines(*flags, [&](const Tree& tree) { return linearize(tree, flags->linearize); }); });
}

void words_command(CLI::App& app) {
  auto* command = app.add_subcommand("words", "Sentences as the parser reads them: words and nothing else");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] {
    write_lines(*flags, [](const Tree& tree) { return fmt::format("{}", fmt::join(words_of(tree), " ")); });
  });
}

void clean_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("clean", "Trees as they are scored: without traces and function tags, one on a line");
  const auto flags = std::make_shared<Flags>(*command);
  command->callback([flags] { write_lines(*flags, [](const Tree& tree) { return to_string(tree); }); });
}

}  // namespace

int main(int argc, char** argv) {
  return transformer::run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description("Turns treebanks into text, a line for every tree. Lines of the commands belong together.");
    app.require_subcommand(1);
    for (const auto declare : {linearize_command, words_command, clean_command}) declare(app);
    for (auto* command : app.get_subcommands([](CLI::App*) { return true; })) {
      command->footer(transformer::examples_of("treebank " + command->get_name()));
    }
    parse();  // runs the chosen one
  });
}
