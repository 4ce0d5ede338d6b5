#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "transformer/report/markup.h"
#include "transformer/report/page.css.h"
#include "transformer/report/plot.h"
#include "transformer/report/report_table.js.h"
#include "transformer/report/sweep_figures.h"
#include "transformer/report/sweep_page.css.h"
#include "transformer/report/sweep_page.html.h"
#include "transformer/report/sweep_plots.h"
#include "transformer/report/sweep_report.h"
#include "transformer/report/sweep_sentences.h"
#include "transformer/report/sweep_tables.h"

namespace transformer {
namespace {

void add_paragraphs(std::string& out, const std::vector<std::string>& paragraphs, std::string_view look = "") {
  for (const auto& paragraph : paragraphs) {
    fmt::format_to(std::back_inserter(out), "<p{}>{}</p>\n", look.empty() ? "" : fmt::format(" class=\"{}\"", look),
                   escape_markup(paragraph));
  }
}

void add_figures(std::string& out, const std::string& title, const std::vector<std::string>& plots) {
  std::string figures;
  for (const auto& plot : plots) {
    if (!plot.empty()) fmt::format_to(std::back_inserter(figures), "<figure>{}</figure>\n", plot);
  }
  if (figures.empty()) return;
  fmt::format_to(std::back_inserter(out), "<section><h2>{}</h2>\n<div class=\"figures\">\n{}</div></section>\n",
                 escape_markup(title), figures);
}

}  // namespace

std::string sweep_html(const SweepReport& report) {
  const SweepFigures sweep = sweep_figures(report);
  const std::string title = report.title.empty() ? "Sweep" : report.title;
  std::string out = fmt::format("<h1>{}</h1>\n", escape_markup(title));
  add_paragraphs(out, paragraphs_of(report.description));
  add_paragraphs(out, {summary_of(sweep)});
  if (!sweep.rows.empty()) out += html_table(results_table(sweep), "results");
  add_paragraphs(out, rule_of(report, sweep), "small");
  add_paragraphs(out, signatures_of(sweep), "small");
  const auto findings = findings_of(sweep);
  if (!findings.empty()) {
    out += "<section><h2>Findings</h2>\n";
    add_paragraphs(out, findings);
    out += "</section>\n";
  }
  if (sweep.base() && sweep.base()->perplexity.count + sweep.base()->bleu.count > 0) {
    std::vector<std::string> plots;
    if (sweep.base()->perplexity.count > 0) {
      plots.push_back(differences_plot(sweep, "Perplexity: difference to the base row", "← better · PPL · worse →",
                                       Figure::perplexity));
    }
    if (sweep.base()->bleu.count > 0) {
      plots.push_back(
          differences_plot(sweep, "BLEU: difference to the base row", "← worse · BLEU · better →", Figure::bleu));
    }
    add_figures(out, "Differences", plots);
  }

  std::vector<std::string> groups;
  for (const auto& row : report.rows) {
    if (std::find(groups.begin(), groups.end(), row.group) == groups.end()) groups.push_back(row.group);
  }
  std::vector<std::string> perplexities, bleus;
  for (const auto& group : groups) {
    perplexities.push_back(curves_plot(sweep, group, "perplexity", Scale::logarithmic,
                                       [](const CurvePoint& point) { return std::optional(point.perplexity); }));
    bleus.push_back(
        curves_plot(sweep, group, "BLEU", Scale::linear, [](const CurvePoint& point) { return point.bleu; }));
  }
  add_figures(out, "Learning curves: perplexity", perplexities);
  add_figures(out, "Learning curves: BLEU", bleus);
  add_figures(out, "Beside the paper",
              {paper_plot(sweep, "perplexity", Figure::perplexity), paper_plot(sweep, "BLEU", Figure::bleu)});

  const ReportTable runs = runs_table(report);
  if (!runs.rows.empty()) {
    fmt::format_to(std::back_inserter(out), "<details><summary>Every run</summary>\n{}</details>\n",
                   html_table(runs, "runs"));
  }
  if (!report.base_config.empty()) {
    fmt::format_to(std::back_inserter(out), "<details><summary>Base configuration</summary>\n<pre>{}</pre></details>\n",
                   escape_markup(report.base_config));
  }
  // The script sorts a table by a click on a head: numbers as numbers, cells without one last; a second click turns the
  // order.
  return fmt::format(fmt::runtime(embedded::sweep_page_html), fmt::arg("format", sweep_report_version),
                     fmt::arg("title", escape_markup(title)), fmt::arg("plot_style", plot_style()),
                     fmt::arg("page_style", fmt::format("{}{}", embedded::page_css, embedded::sweep_page_css)),
                     fmt::arg("content", out), fmt::arg("script", embedded::report_table_js));
}

}  // namespace transformer
