#pragma once

#include <CLI/CLI.hpp>

namespace transformer {

/// `evaluate mbr`: an n-best list, or samples, in the order of least risk.
void declare_mbr(CLI::App& app);

}  // namespace transformer
