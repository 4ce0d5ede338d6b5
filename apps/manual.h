#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace transformer {

/// Two commands to begin with, a line each, that `program --help` ends with; of "evaluate bleu", those of that command.
std::string examples_of(const std::string& program);

/// The declared options as a page for man(1), in roff; `version` is the project's.
std::string man_page(const CLI::App& app, const std::string& version);

/// The declared options and commands, and the values of options that have few, as a script for bash to complete by.
std::string bash_completion(const CLI::App& app);

}  // namespace transformer
