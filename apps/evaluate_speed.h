#pragma once

#include <CLI/CLI.hpp>

namespace transformer {

/// evaluate speed: how well models translate a text, and how fast, in one table and one picture.
void declare_speed(CLI::App& app);

}  // namespace transformer
