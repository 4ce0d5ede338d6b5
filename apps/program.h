#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <type_traits>

#include "transformer/base/settings.h"

namespace transformer {

/// What a program does, for run_program: returns the exit status.
using ProgramBody = std::function<int(CLI::App& app, const std::function<void()>& parse)>;

/// The shared frame of every program: parses arguments, and turns whatever the body throws into one line on standard
/// error and an exit status, never a stack trace.
///
/// `body(app, parse)` declares its options on `app` (a CLI::App), calls `parse()`, then does the work; it returns the
/// exit status, or nothing for 0:
///
///     int main(int argc, char** argv) {
///       return transformer::run_program(argc, argv, [](CLI::App& app, auto parse) {
///         std::string model;
///         app.add_option("--model", model, "Model directory")->required();
///         parse();
///         ...
///       });
///     }
///
/// `program --man` prints a page for man(1), `program --completion bash` a script that completes its options.
///
/// Standard streams that are closed stay so: no file that the program opens takes their place. Pipes and terminals that
/// do not wait for their readers are waited for.
///
/// Status 0: done, or --help, --version or one of these was asked for. 1: Failure, out of memory, output that could not
/// be written, or any other exception. 2: wrong arguments, or Error.
int run_program(int argc, char** argv, const ProgramBody& body);

/// The same for a body that returns nothing.
template <class Body>
requires(std::is_void_v<std::invoke_result_t<Body, CLI::App&, const std::function<void()>&>>) int run_program(
    int argc, char** argv, Body body) {
  return run_program(argc, argv, ProgramBody([&](CLI::App& app, const std::function<void()>& parse) {
                       body(app, parse);
                       return 0;
                     }));
}

/// `parse()`, for programs that take settings with --set: an unknown option of a setting's name is answered with it.
void parse_beside_settings(const CLI::App& app, const std::function<void()>& parse, const Settings& settings);

}  // namespace transformer
