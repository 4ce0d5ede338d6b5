#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "transformer/base/ascii.h"
#include "transformer/base/unicode.h"
#include "transformer/report/sweep_figures.h"
#include "transformer/report/sweep_report.h"
#include "transformer/report/sweep_sentences.h"
#include "transformer/report/sweep_tables.h"

namespace transformer {
namespace {

// Whether a character shows nothing and may be a terminal's command: ASCII's controls, and those of two bytes.
bool is_control(const std::string& text, size_t i) {
  const auto c = static_cast<unsigned char>(text[i]);
  if (c == 0xC2 && i + 1 < text.size()) return static_cast<unsigned char>(text[i + 1]) < 0xA0;
  return c < 0x20 || c == 0x7F;
}

// Text as text: no character has a meaning to Markdown, line ends are spaces, and what no page can show (controls,
// bytes that are no UTF-8) is U+FFFD.
std::string markdown_text(const std::string& given) {
  const std::string text = repaired_utf8(given);
  static const std::string special = "\\`*{}[]|#~$";
  const auto is_word = [&](size_t i) {
    return i < text.size() && (is_ascii_alphanumeric(text[i]) || (text[i] & 0x80) != 0);
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    // Within a word, as in d_model, an underscore is one.
    const bool emphasis = c == '_' && !(i > 0 && is_word(i - 1) && is_word(i + 1));
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += ' ';
    } else if (is_control(text, i)) {
      if (c == '\xC2') ++i;
      append_utf8(U'\uFFFD', out);
    } else if (emphasis || special.find(c) != std::string::npos) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

// Whose beginning makes no list, heading or block of code of it either.
std::string markdown_paragraph(const std::string& text) {
  std::string out = markdown_text(text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size())));
  const size_t digits = std::min(out.find_first_not_of("0123456789"), out.size());
  if (digits < out.size() && (digits == 0 ? std::string_view("-+=").find(out[0]) != std::string_view::npos
                                          : out[digits] == '.' || out[digits] == ')')) {
    out.insert(digits, 1, '\\');
  }
  return out;
}

std::string markdown_table(const ReportTable& table) {
  std::string out = "|";
  for (const auto& column : table.columns) fmt::format_to(std::back_inserter(out), " {} |", markdown_text(column.head));
  out += "\n|";
  for (const auto& column : table.columns) out += column.number ? "---:|" : "---|";
  out += "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const auto& cell : row) {
      const std::string text = markdown_text(cell.text);
      const bool bold = !text.empty() && (cell.look.starts_with("beyond") || cell.look.ends_with("base"));
      const std::string_view mark = bold ? "**" : "";
      fmt::format_to(std::back_inserter(out), " {0}{1}{0} |", mark, text);
    }
    out += "\n";
  }
  return out;
}

bool several_seeds(const SweepReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(), [](const auto& row) { return row.runs.size() > 1; });
}

}  // namespace

std::string sweep_markdown(const SweepReport& report) {
  const SweepFigures sweep = sweep_figures(report);
  std::string out = fmt::format("<!-- sweep report, format {} -->\n# {}\n\n", sweep_report_version,
                                report.title.empty() ? "Sweep" : markdown_text(report.title));
  const auto paragraphs = [&](const std::vector<std::string>& texts) {
    for (const auto& text : texts) fmt::format_to(std::back_inserter(out), "{}\n\n", markdown_paragraph(text));
  };
  paragraphs(paragraphs_of(report.description));
  paragraphs({summary_of(sweep)});
  if (!sweep.rows.empty()) fmt::format_to(std::back_inserter(out), "{}\n", markdown_table(results_table(sweep)));
  paragraphs(rule_of(report, sweep));
  paragraphs(signatures_of(sweep));
  const auto findings = findings_of(sweep);
  if (!findings.empty()) out += "## Findings\n\n";
  paragraphs(findings);
  if (several_seeds(report)) {
    fmt::format_to(std::back_inserter(out), "## Runs\n\n{}\n", markdown_table(runs_table(report)));
  }
  if (!report.base_config.empty()) {
    out += "## Base configuration\n\n";
    for (size_t from = 0; from < report.base_config.size();) {
      // An indented block: no text within ends it.
      const size_t end = std::min(report.base_config.find('\n', from), report.base_config.size());
      fmt::format_to(std::back_inserter(out), "    {}\n", report.base_config.substr(from, end - from));
      from = end + 1;
    }
  }
  return out;
}

}  // namespace transformer
