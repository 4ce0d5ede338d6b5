#pragma once

#include <CLI/CLI.hpp>

namespace transformer {

/// `evaluate score`: log-probabilities of given translations.
void declare_score(CLI::App& app);

/// `evaluate rescore`: an n-best list in the order that another model, or another direction, prefers.
void declare_rescore(CLI::App& app);

}  // namespace transformer
