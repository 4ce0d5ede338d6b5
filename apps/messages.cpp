#include "apps/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "transformer/base/spelling.h"
#include "transformer/base/unicode.h"

namespace transformer {

std::string option_expectation(const CLI::Option& option) {
  const std::string described = option.get_type_name();  // "INT:INT in [1 - 1024]", "TEXT:{svg,html}"
  const size_t colon = described.find(':');
  std::string rest = colon == std::string::npos ? "" : described.substr(colon + 1);
  std::string type = described.substr(0, colon);
  if (const size_t in = rest.find(" in ["); in != std::string::npos) {
    type = rest.substr(0, in);
    rest = rest.substr(in + 5, rest.find(']', in) - in - 5);
    if (const size_t dash = rest.find(" - "); dash != std::string::npos) {
      rest = fmt::format("from {} to {}", rest.substr(0, dash), rest.substr(dash + 3));
    }
  }
  if (rest.starts_with('{')) {
    std::string names;
    for (const char character : rest.substr(1, rest.find('}') - 1))
      names += character == ',' ? ", " : std::string(1, character);
    return "one of: " + names;
  }
  static const std::map<std::string, std::string> types = {
      {"INT", "an integer"}, {"UINT", "an integer of at least 0"}, {"FLOAT", "a number"}, {"BOOLEAN", "true or false"}};
  const auto known = types.find(type);
  const std::string text = known == types.end() ? "another value" : known->second;
  return rest.empty() ? text : fmt::format("{}, {}", text, rest);
}

std::string one_line(std::string_view given) {
  constexpr size_t longest_head = 3000, longest_tail = 1000;
  while (!given.empty() && given.back() == '\n') given.remove_suffix(1);
  const auto line = [](std::string_view part) {
    std::string text(part);
    std::replace(text.begin(), text.end(), '\n', ' ');
    return printable(text, std::string::npos);
  };
  if (given.size() <= longest_head + longest_tail) return line(given);
  const auto inside = [&](size_t position) { return continues_character(given[position]); };
  size_t head = longest_head, tail = given.size() - longest_tail;
  while (head > longest_head - 3 && inside(head)) --head;
  while (tail < given.size() - longest_tail + 3 && inside(tail)) ++tail;
  return line(given.substr(0, head)) + " ... " + line(given.substr(tail));
}

std::string argument_mistake(const CLI::App& program, std::span<const char* const> arguments,
                             const CLI::ParseError& error) {
  const CLI::App* command = &program;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const auto see =
      fmt::format("; see {}{} --help", program.get_name(), command == &program ? "" : " " + command->get_name());
  const auto nearest = [&](const std::string& word, const std::vector<std::string>& names) {
    const auto near = nearest_word(word, names);
    return near.empty() ? see : fmt::format("; did you mean {}?", near);
  };
  const std::string what = error.what();

  // A mistyped name is the mistake even where what it should have given is then missing.
  const bool missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (missing || dynamic_cast<const CLI::ExtrasError*>(&error)) {
    const auto words = program.remaining(/*recurse=*/true);
    const auto is_option = [](const std::string& word) { return word.size() > 1 && word.front() == '-'; };
    const auto choices = command->get_subcommands([](const CLI::App*) { return true; });
    std::vector<std::string> commands;
    for (const auto* known : choices) commands.push_back(known->get_name());
    // Before options, which are the command's.
    if (!commands.empty() && !words.empty() && !is_option(words.front())) {
      return fmt::format("unknown command {}{}", in_quotes(words.front()), nearest(words.front(), commands));
    }
    // Behind the mark nothing is an option.
    const auto mark = std::find(arguments.begin(), arguments.end(), std::string_view("--"));
    const auto option = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
      return is_option(word) && std::find(arguments.begin(), mark, word) != mark;
    });
    if (option != words.end()) {
      const std::string name = option->substr(0, option->find('='));
      const auto has = [&](const CLI::App* known) { return known->get_option_no_throw(name) != nullptr; };
      if (has(command) || std::any_of(choices.begin(), choices.end(), has)) {
        return fmt::format("{0} belongs behind the command: {1} {2} {0} ...", name, program.get_name(),
                           command == &program ? "COMMAND" : command->get_name());
      }
      std::vector<std::string> names;
      for (const auto* known : command->get_options()) {
        for (const auto& known_name : known->get_lnames()) names.push_back("--" + known_name);
      }
      return fmt::format("unknown option {}{}", in_quotes(name), nearest(name, names));
    }
    if (!commands.empty() && missing) return fmt::format("a command is missing: {}{}", fmt::join(commands, ", "), see);
    if (!missing) {
      const auto extra = std::find_if(words.begin(), words.end(), [](const std::string& word) { return word != "--"; });
      return fmt::format("{} is one argument too many{}{}", in_quotes(extra == words.end() ? "--" : *extra),
                         command->get_option_no_throw("--input") ? "; a file to read is named with --input" : "", see);
    }
    return what + see;
  }

  // CLI11 begins with the option's name, and says "Could not convert: NAME = VALUE".
  constexpr std::string_view conversion = "Could not convert: ";
  const bool converts = what.starts_with(conversion);
  const std::string rest = converts ? what.substr(conversion.size()) : what;
  const size_t end = rest.find(converts ? " = " : ":");
  const auto* option = command->get_option_no_throw(rest.substr(0, end));
  if (!option || end == std::string::npos) return what + see;
  const auto given = option->results();
  const std::string name = option->get_name();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
    if (!given.empty()) return fmt::format("{} is given {} times{}", name, given.size(), see);
    const auto expected = option_expectation(*option);
    return fmt::format("{} needs a value{}{}", name, expected == "another value" ? "" : ": " + expected, see);
  }
  if (!converts && given.empty()) return what + see;
  const std::string found = converts ? rest.substr(end + 3) : fmt::format("{}", fmt::join(given, ","));
  return fmt::format("{} takes {}, found {}{}", name, option_expectation(*option), in_quotes(found), see);
}

}  // namespace transformer
