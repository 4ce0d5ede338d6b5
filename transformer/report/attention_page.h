#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "transformer/report/attention_report.h"

namespace transformer {

/// What the page shows in the beginning.
struct AttentionPageOptions {
  /// Index of the word that is picked in the beginning, of the first view's queries, which then is what is shown first.
  /// Otherwise that is cross-attention, where there is some, with its first query picked.
  std::optional<size_t> picked = {};
};

/// The report as one self-contained HTML page: nothing is loaded from elsewhere, it works from a file, in light and
/// dark, on a phone and by keyboard. A reader chooses among the views, layers and heads, and hovers over, taps or walks
/// to a word to see what it attends to and what attends to it; lines or a heat map; what is shown stands in the
/// page's address, so that a link keeps it. Weights are carried in 16 bits. A <meta> element holds the format's
/// version.
std::string attention_html(const AttentionReport& report, const AttentionPageOptions& options = {});

}  // namespace transformer
