#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>

namespace transformer {

/// A message as one line for a terminal: whatever paths, tokens and names in it could do to a terminal is written out
/// (see printable), and what is longer than a screen loses its middle: where it was comes first, what to do last.
std::string one_line(std::string_view given);

/// What an option takes, in the words of settings: "an integer, from 1 to 1024".
std::string option_expectation(const CLI::Option& option);

/// The mistake in a program's arguments that `error` is about, and what to do: the option by its name, what it takes,
/// what was found, and the nearest name for one that there is none of. `arguments`: those of main.
std::string argument_mistake(const CLI::App& program, std::span<const char* const> arguments,
                             const CLI::ParseError& error);

}  // namespace transformer
