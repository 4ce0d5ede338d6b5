#pragma once

#include <string>
#include <vector>

#include "transformer/report/sweep_figures.h"

namespace transformer {

// What a report says in words, as plain text, a paragraph a string.

/// "4 rows, 6 runs: 5 finished, 1 failed. Training took 3.5 h in all and 3.3·10¹⁸ floating-point operations."
std::string summary_of(const SweepFigures& sweep);

/// How differences to the base row are judged, and how often chance alone passes for more.
std::vector<std::string> rule_of(const SweepReport& report, const SweepFigures& sweep);

/// Which kinds of BLEU there are, and what else cannot be compared.
std::vector<std::string> signatures_of(const SweepFigures& sweep);

/// Which rows are better and worse than the base row, and whether rows stand in the paper's order.
std::vector<std::string> findings_of(const SweepFigures& sweep);

/// The paragraphs of `text`, which empty lines part; without those that are blank.
std::vector<std::string> paragraphs_of(const std::string& text);

}  // namespace transformer
