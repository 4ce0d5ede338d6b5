#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include "transformer/base/described.h"

namespace transformer {

/// The exit status of a benchmark that `body` is: it declares its options, calls `parse()`, and measures. Whatever it
/// throws is one line on standard error: 2 for wrong arguments and Error, 1 for anything else.
inline int run_benchmark(int argc, char** argv, const char* description,
                         const std::function<void(CLI::App& app, const std::function<void()>& parse)>& body) {
  CLI::App app(description, std::filesystem::path(argc > 0 ? argv[0] : "benchmark").filename().string());
  const auto fail = [&](const std::string& message, int status) {
    std::fflush(stdout);
    fmt::print(stderr, "{}: error: {}\n", app.get_name(), message);
    return status;
  };
  try {
    body(app, [&] { app.parse(argc, argv); });
    return 0;
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return fail(error.what(), 2);
  } catch (...) {
    const auto described = described_exception();
    return fail(described.text, described.mistake ? 2 : 1);
  }
}

/// For CLI::Option::check: numbers above 0.
inline CLI::Validator above_zero() {
  return CLI::Validator(
      [](std::string& text) {
        double number = 0;
        const bool is = CLI::detail::lexical_cast(text, number) && number > 0;
        return is ? std::string() : fmt::format("expected a number above 0, not '{}'", text);
      },
      "POSITIVE");
}

/// The same: threads.
inline CLI::Range thread_count() {
  return {1, 1024};
}

}  // namespace transformer
