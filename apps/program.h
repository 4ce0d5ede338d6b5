#pragma once

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <type_traits>

#include "apps/manual.h"
#include "apps/messages.h"
#include "transformer/base/described.h"
#include "transformer/base/error.h"

namespace transformer {

/// What is asked for in place of a program's work.
struct Printed {
  std::string text;
};

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
/// Status 0: done, or --help, --version or one of these was asked for. 1: Failure, out of memory, output that could not
/// be written, or any other exception. 2: wrong arguments, or Error.
template <class Body>
int run_program(int argc, char** argv, Body body) {
  // A parent may have SIGPIPE ignored; `program | head` should end quietly all the same.
  std::signal(SIGPIPE, SIG_DFL);
  const std::string name = std::filesystem::path(argc > 0 ? argv[0] : "program").filename().string();
  const auto fail = [&](const std::string& message, int status) {
    std::cout.flush();
    std::cerr << one_line(name) << ": error: " << one_line(message) << std::endl;
    return status;
  };

  CLI::App app;
  app.name(name);
  app.set_version_flag("--version", name + " " TRANSFORMER_VERSION);
  app.footer(examples_of(name));
  try {
    const auto parse = [&] {
      // For who installs: from the declarations alone, whatever else they require.
      const std::string asked = argc > 1 ? argv[1] : "";
      if (argc == 2 && asked == "--man") throw Printed{man_page(app, TRANSFORMER_VERSION)};
      if (argc == 3 && asked == "--completion" && argv[2] == std::string("bash")) throw Printed{bash_completion(app)};
      app.parse(argc, argv);
    };
    int status = 0;
    if constexpr (std::is_void_v<decltype(body(app, parse))>) {
      body(app, parse);
    } else {
      status = body(app, parse);
    }
    std::cout.flush();
    if (!std::cout || std::fflush(stdout) != 0) throw Failure("standard output", "could not be written");
    return status;
  } catch (const Printed& printed) {
    std::cout << printed.text << std::flush;
    return std::cout ? 0 : fail("standard output: could not be written", 1);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return fail(argument_mistake(app, error), 2);
  } catch (...) {
    const auto described = described_exception();
    return fail(described.text, described.mistake ? 2 : 1);
  }
}

}  // namespace transformer
