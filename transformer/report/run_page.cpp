#include "transformer/report/run_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "transformer/base/counted.h"
#include "transformer/base/unicode.h"
#include "transformer/report/markup.h"
#include "transformer/report/number_text.h"
#include "transformer/report/page.css.h"
#include "transformer/report/plot.h"
#include "transformer/report/report_table.h"
#include "transformer/report/report_table.js.h"
#include "transformer/report/run_page.css.h"
#include "transformer/report/run_page.html.h"
#include "transformer/report/run_page.js.h"
#include "transformer/report/word_differences.h"

namespace transformer {
namespace {

using Value = std::optional<double> RunPoint::*;

enum class Over { step, time };

constexpr size_t points_a_curve = 400;  // of a longer one the extremes of that many stretches are drawn, two each
constexpr size_t marks_a_curve = 40;    // about

std::optional<double> place(const RunPoint& point, Over over) {
  if (over == Over::step) return static_cast<double>(point.step);
  if (!point.seconds) return std::nullopt;
  return *point.seconds / 3600;
}

std::string memory_text(double bytes) {
  return bytes < 1e9 ? fmt::format("{:.0f} MB", bytes / 1e6) : rounded_number(bytes / 1e9, 1) + " GB";
}

std::string value_text(Value value, double number) {
  if (value == &RunPoint::memory) return memory_text(number);
  if (value == &RunPoint::rate) return fmt::format("{:.3g}", number);
  return short_number(number, 5);
}

/// Whatever a file says.
std::string rounded(double value) {
  return grouped_number(std::llround(std::clamp(value, -9e15, 9e15)));
}

/// The points' values, thinned so that peaks stay, and gaps where values are not finite.
std::vector<PlotPoint> curve(const std::vector<RunPoint>& points, Over over, Value value) {
  std::vector<PlotPoint> all;
  for (const auto& point : points) {
    const auto x = place(point, over);
    const auto y = point.*value;
    if (x && y) all.push_back({.x = *x, .y = *y, .title = "", .label = "", .marked = false});
  }
  if (all.size() <= 2 * points_a_curve) return all;
  std::vector<PlotPoint> kept;
  for (size_t i = 0; i < points_a_curve; ++i) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * all.size() / points_a_curve);
    const auto last = all.begin() + static_cast<std::ptrdiff_t>((i + 1) * all.size() / points_a_curve);
    auto least = last, most = last;
    for (auto at = first; at != last; ++at) {
      if (!std::isfinite(at->y)) continue;
      if (least == last || at->y < least->y) least = at;
      if (most == last || at->y >= most->y) most = at;
    }
    const auto add_gap = [&](auto from, auto to) {
      const auto gap = std::find_if(from, to, [](const PlotPoint& point) { return !std::isfinite(point.y); });
      if (gap != to) kept.push_back(*gap);
    };
    const auto [one, other] = std::minmax(least, most);
    add_gap(first, one);
    if (one == last) continue;
    kept.push_back(*one);
    add_gap(one, other);
    if (other != one) kept.push_back(*other);
    add_gap(other, last);
  }
  return kept;
}

struct Curves {
  const char* title;
  const char* label;
  Value value;
  Scale scale = Scale::linear;
  bool of_validation = false;  // of the validated models too, with marks
};

const std::vector<Curves>& all_curves() {
  static const std::vector<Curves> curves = {
      {"Perplexity", "per word piece", &RunPoint::perplexity, Scale::logarithmic, true},
      {"BLEU of validations", "BLEU", &RunPoint::bleu, Scale::linear, true},
      {"Loss", "nats a target token", &RunPoint::loss, Scale::linear, true},
      {"Learning rate", "rate", &RunPoint::rate},
      {"Norm of the gradient, before it is clipped", "mean", &RunPoint::gradient_norm, Scale::logarithmic},
      {"Largest norm of the gradient", "largest", &RunPoint::largest_norm, Scale::logarithmic},
      {"Speed", "target tokens a second", &RunPoint::speed},
      {"Memory of the process", "bytes", &RunPoint::memory}};
  return curves;
}

std::string plot_of(const RunReport& report, const Curves& what, Over over) {
  LinePlot plot;
  plot.title = what.title;
  plot.x.label = over == Over::step ? "step" : "hours of training";
  plot.y = {.label = what.label, .scale = what.scale, .lower = std::nullopt, .upper = std::nullopt};
  int64_t style = 0;
  std::vector<double> lasts;  // finite value of each curve
  double highest = 0;
  for (const auto& run : report.runs) {
    const std::string name = report.runs.size() > 1 ? run.name : "";
    const auto add = [&](const std::vector<RunPoint>& points, bool validation) {
      PlotSeries series{.name = validation && name.empty() ? "validation" : name,
                        .points = curve(points, over, what.value),
                        .markers = validation,
                        .style = style,
                        .dashed = !validation && what.of_validation};
      const size_t stride = (series.points.size() + marks_a_curve - 1) / marks_a_curve;
      for (size_t i = 0; validation && i < series.points.size(); ++i) {
        auto& point = series.points[i];
        point.marked = i % stride == 0 || i + 1 == series.points.size();
        const auto at = over == Over::step ? rounded(point.x) : short_number(point.x, 4);
        point.title =
            fmt::format("{}\n{} {}\n{} {}", run.name, plot.x.label, at, what.title, value_text(what.value, point.y));
      }
      if (series.points.empty()) return;
      std::optional<double> last;
      for (const auto& point : series.points) {
        if (!std::isfinite(point.y)) continue;
        highest = std::max(highest, point.y);
        last = point.y;
      }
      if (last) lasts.push_back(*last);
      plot.series.push_back(std::move(series));
    };
    add(run.training, false);
    if (what.of_validation) add(run.validation, true);
    ++style;
  }
  if (lasts.empty()) return "";
  // The first steps lie orders of magnitude above what runs differ by.
  if (what.value == &RunPoint::perplexity) {
    const double enough = 8 * *std::max_element(lasts.begin(), lasts.end());
    if (highest > enough) plot.y.upper = enough;
  }
  return line_plot(plot);
}

std::string figures(const RunReport& report, Over over) {
  std::string out = fmt::format("<div class=\"figures\" data-over=\"{}\"{}>\n", over == Over::step ? "step" : "time",
                                over == Over::step ? "" : " hidden");
  for (const auto& what : all_curves()) {
    const auto plot = plot_of(report, what, over);
    if (!plot.empty()) fmt::format_to(std::back_inserter(out), "<figure>{}</figure>\n", plot);
  }
  return out + "</div>\n";
}

/// All finite values of the points, in no order.
std::vector<double> values_of(const std::vector<RunPoint>& points, Value value) {
  std::vector<double> values;
  for (const auto& point : points) {
    if (point.*value && std::isfinite(*(point.*value))) values.push_back(*(point.*value));
  }
  return values;
}

ReportTable table_of(const RunReport& report) {
  using Cell = ReportTable::Cell;
  ReportTable table;
  table.columns = {{"run", "", false},
                   {"state", "", false},
                   {"step", "", true},
                   {"target tokens", "trained on so far", true},
                   {"time", "of training", true},
                   {"loss", "of training, as last reported", true},
                   {"PPL", "perplexity of the last model that was validated, per word piece", true},
                   {"best PPL", "the least of all validations", true},
                   {"BLEU", "of the last model that was validated", true},
                   {"best BLEU", "the greatest of all validations by the last one's kind of BLEU", true},
                   {"tokens/s", "target tokens a second: the median of all reports", true},
                   {"memory", "the most of the process that a report saw", true},
                   {"parameters", "", true}};
  const auto cell = [](const std::optional<double>& value, const std::function<std::string(double)>& text) {
    if (!value) return Cell{};
    return std::isfinite(*value) ? Cell{text(*value), *value, ""} : Cell{"not finite", std::nullopt, "failed"};
  };
  for (const auto& run : report.runs) {
    auto validated = run.validation;
    if (run.final_model) validated.push_back(*run.final_model);
    const RunPoint nothing;
    const auto& at = run.training.empty() ? (validated.empty() ? nothing : validated.back()) : run.training.back();
    const auto& judged = validated.empty() ? nothing : validated.back();
    auto judged_alike = validated;
    std::erase_if(judged_alike, [&](const RunPoint& point) { return point.bleu_kind != judged.bleu_kind; });
    const auto least = [](const std::vector<double>& all) {
      return all.empty() ? std::nullopt : std::optional(*std::min_element(all.begin(), all.end()));
    };
    const auto most = [](const std::vector<double>& all) {
      return all.empty() ? std::nullopt : std::optional(*std::max_element(all.begin(), all.end()));
    };
    auto speeds = values_of(run.training, &RunPoint::speed);
    std::optional<double> speed;
    if (!speeds.empty()) {
      std::sort(speeds.begin(), speeds.end());
      const size_t middle = speeds.size() / 2;
      speed = speeds.size() % 2 == 1 ? speeds[middle] : std::midpoint(speeds[middle - 1], speeds[middle]);
    }
    std::optional<double> parameters;
    if (run.parameters) parameters = static_cast<double>(*run.parameters);
    const std::string state = run.finished ? "finished"
                              : run.steps  ? fmt::format("not finished, of {} steps", grouped_number(*run.steps))
                                           : "not finished";
    table.rows.push_back({{run.name, {}, "name"},
                          {state, {}, run.finished ? "state finished" : "state running"},
                          cell(static_cast<double>(std::max(at.step, judged.step)), rounded),
                          cell(at.target_tokens, rounded),
                          cell(most(values_of({at, judged}, &RunPoint::seconds)), duration_text),
                          cell(at.loss, fixed_number),
                          cell(judged.perplexity, fixed_number),
                          cell(least(values_of(validated, &RunPoint::perplexity)), fixed_number),
                          cell(judged.bleu, fixed_number),
                          cell(most(values_of(judged_alike, &RunPoint::bleu)), fixed_number),
                          cell(speed, rounded),
                          cell(most(values_of(run.training, &RunPoint::memory)), memory_text),
                          cell(parameters, rounded)});
  }
  // Without validation there is no BLEU, and a run that goes on has not counted its parameters yet.
  drop_empty_columns(table, [](const auto& column) { return column.number; });
  return table;
}

std::string choice(std::string_view name, std::string_view value, std::string_view text, bool checked) {
  return fmt::format("<label class=\"choice\"><input type=\"radio\" name=\"{}\" value=\"{}\"{}><span>{}</span></label>",
                     name, value, checked ? " checked" : "", text);
}

/// What the reference has and the output has not, and the other way round.
std::string differing(const std::string& reference, const std::string& output) {
  std::string out;
  for (const auto& stretch : word_differences(reference, output)) {
    const auto words = escape_markup(stretch.words);
    if (!out.empty()) out += ' ';
    out += stretch.in == WordStretch::In::both    ? words
           : stretch.in == WordStretch::In::first ? fmt::format("<del>{}</del>", words)
                                                  : fmt::format("<ins>{}</ins>", words);
  }
  return out;
}

std::string list_of(const RunReport& report, const std::vector<ComparedSentence>& sentences, std::string_view name,
                    bool hidden) {
  std::string out = fmt::format("<ol class=\"sentences\" data-show=\"{}\"{}>\n", name, hidden ? " hidden" : "");
  for (size_t i = 0; i < sentences.size(); ++i) {
    const auto& sentence = sentences[i];
    fmt::format_to(std::back_inserter(out),
                   "<li tabindex=\"{}\"><dl><dt>line {}</dt><dd dir=\"auto\">{}</dd>\n"
                   "<dt>reference</dt><dd dir=\"auto\">{}</dd>\n",
                   i == 0 ? 0 : -1, grouped_number(sentence.line), escape_markup(sentence.source),
                   escape_markup(sentence.reference));
    for (size_t run = 0; run < report.runs.size() && run < sentence.outputs.size(); ++run) {
      const auto& output = sentence.outputs[run];
      if (!output) continue;
      fmt::format_to(std::back_inserter(out), "<dt>{}</dt><dd dir=\"auto\"><b>{:.1f}</b>{}</dd>\n",
                     escape_markup(report.runs[run].name), output->score, differing(sentence.reference, output->text));
    }
    out += "</dl></li>\n";
  }
  return out + "</ol>\n";
}

/// What runs are told apart by, and the names of those that have it.
using Groups = std::vector<std::pair<std::string, std::vector<std::string>>>;

/// Where `what` is known.
void add_to(Groups& groups, const std::string& what, const std::string& name) {
  if (what.empty()) return;
  const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == what; });
  if (known == groups.end()) {
    groups.push_back({what, {name}});
  } else {
    known->second.push_back(name);
  }
}

/// "a, b; c".
std::string names_in(const Groups& groups) {
  std::vector<std::string> names;
  for (const auto& [what, runs] : groups) names.push_back(fmt::format("{}", fmt::join(runs, ", ")));
  return fmt::format("{}", fmt::join(names, "; "));
}

}  // namespace

void choose_sentences(RunReport& report, std::vector<ComparedSentence> sentences, size_t count) {
  const auto mean = [](const ComparedSentence& sentence) {
    double sum = 0, outputs = 0;
    for (const auto& output : sentence.outputs) {
      if (output) sum += output->score, outputs += 1;
    }
    return outputs > 0 ? sum / outputs : -1;
  };
  const auto all_outputs = [](const ComparedSentence& sentence, const auto& is) {
    return std::all_of(sentence.outputs.begin(), sentence.outputs.end(),
                       [&](const auto& output) { return !output || is(split_words(output->text)); });
  };
  std::vector<std::pair<double, size_t>> order, mistaken;
  for (size_t i = 0; i < sentences.size(); ++i) {
    const double score = mean(sentences[i]);
    const auto reference = split_words(sentences[i].reference);
    if (score < 0) continue;
    // A blank line scores nothing and is no translation.
    const bool is_right = all_outputs(sentences[i], [&](const auto& words) { return words == reference; });
    if (is_right && reference.empty()) continue;
    order.emplace_back(score, i);
    if (!is_right) mistaken.emplace_back(score, i);
  }
  std::sort(mistaken.begin(), mistaken.end());
  for (size_t i = 0; i < std::min(count, mistaken.size()); ++i) report.worst.push_back(sentences[mistaken[i].second]);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < std::min(count, order.size()); ++i) report.best.push_back(sentences[order[i].second]);
}

std::vector<std::string> remarks_on(const std::vector<RunLog>& runs) {
  std::vector<std::string> remarks;
  Groups vocabularies, texts, signatures;
  for (const auto& run : runs) {
    if (run.damaged_lines > 0) {
      remarks.push_back(fmt::format("{}: {} {} damaged and left out; the first is line {}", run.metrics.string(),
                                    counted(run.damaged_lines, "line"), run.damaged_lines == 1 ? "is" : "are",
                                    run.first_damaged));
    }
    add_to(vocabularies, run.vocabulary, run.name);
    add_to(texts, run.validated_on, run.name);
    for (const auto& signature : run.bleu_signatures) add_to(signatures, signature, run.name);
  }
  if (vocabularies.size() > 1) {
    remarks.push_back(
        fmt::format("Perplexities and losses are per word piece, of different vocabularies, and do not compare: {}",
                    names_in(vocabularies)));
  }
  if (texts.size() > 1) {
    remarks.push_back(fmt::format("Validations are of different texts, and do not compare: {}", names_in(texts)));
  }
  if (signatures.size() > 1) {
    std::vector<std::string> kinds;
    for (const auto& [signature, names] : signatures) {
      kinds.push_back(fmt::format("{}: {}", signature, fmt::join(names, ", ")));
    }
    remarks.push_back(
        fmt::format("BLEU is of several kinds, which do not compare with each other: {}", fmt::join(kinds, "; ")));
  }
  return remarks;
}

std::string run_html(const RunReport& report) {
  std::vector<std::string> names;
  for (const auto& run : report.runs) names.push_back(run.name);
  const std::string title = names.size() == 1  ? fmt::format("Run {}", names.front())
                            : names.size() < 4 ? fmt::format("Runs {}", fmt::join(names, ", "))
                                               : counted(names.size(), "run");
  std::string out = html_table(table_of(report), "runs");
  std::vector<std::string> signatures;
  for (const auto& run : report.runs) {
    for (const auto& signature : run.bleu_signatures) {
      if (std::find(signatures.begin(), signatures.end(), signature) == signatures.end()) {
        signatures.push_back(signature);
      }
    }
  }
  if (!signatures.empty()) {
    fmt::format_to(std::back_inserter(out), "<p class=\"small\">{}</p>\n",
                   escape_markup(fmt::format("{}", fmt::join(signatures, "; "))));
  }
  out +=
      "<section><h2>Curves</h2>\n<p class=\"small\">Dashed: as training reports it, against smoothed targets; with "
      "marks: of the models that were validated.</p>\n";
  fmt::format_to(std::back_inserter(out),
                 "<form class=\"controls\"><fieldset><legend>Over</legend>{}{}</fieldset></form>\n",
                 choice("over", "step", "steps", true), choice("over", "time", "time", false));
  out += figures(report, Over::step) + figures(report, Over::time) + "</section>\n";
  if (!report.best.empty()) {
    out +=
        "<section><h2>Validation translations</h2>\n<p class=\"small\">By the BLEU of each sentence, the mean of all "
        "runs. <del>Struck out</del>: words of the reference that are missing; <ins>underlined</ins>: words that "
        "stand there instead.</p>\n";
    fmt::format_to(std::back_inserter(out),
                   "<form class=\"controls\"><fieldset><legend>Show</legend>{}{}</fieldset></form>\n",
                   choice("show", "worst", "the worst", true), choice("show", "best", "the best", false));
    out += report.worst.empty()
               ? "<p class=\"small\" data-show=\"worst\">All translations are as their references.</p>\n"
               : list_of(report, report.worst, "worst", false);
    out += list_of(report, report.best, "best", true) + "</section>\n";
  }
  for (const auto& remark : report.remarks) {
    fmt::format_to(std::back_inserter(out), "<p class=\"small\">{}</p>\n", escape_markup(remark));
  }
  out +=
      "<p class=\"keys\">By keyboard: <kbd>Tab</kbd> to a table's head, <kbd>Enter</kbd> to sort by it, again to turn "
      "the order; <kbd>←</kbd> <kbd>→</kbd> between choices; <kbd>↑</kbd> <kbd>↓</kbd> from sentence to "
      "sentence.</p>\n";
  return fmt::format(fmt::runtime(embedded::run_page_html), fmt::arg("format", run_report_version),
                     fmt::arg("title", escape_markup(title)), fmt::arg("plot_style", plot_style()),
                     fmt::arg("page_style", fmt::format("{}{}", embedded::page_css, embedded::run_page_css)),
                     fmt::arg("reload", std::isfinite(report.reload_seconds) ? report.reload_seconds : 0),
                     fmt::arg("content", out), fmt::arg("table_script", embedded::report_table_js),
                     fmt::arg("script", embedded::run_page_js));
}

}  // namespace transformer
