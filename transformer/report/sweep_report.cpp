#include "transformer/report/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "transformer/report/markup.h"
#include "transformer/report/number_text.h"
#include "transformer/report/plot.h"
#include "transformer/report/sweep_page.css.h"
#include "transformer/report/sweep_page.html.h"
#include "transformer/report/sweep_page.js.h"

namespace transformer {
namespace {

using Verdict = RowDifference::Verdict;
using State = SweepRun::State;

constexpr size_t points_a_curve = 120;  // of a longer one that many are drawn
constexpr size_t marks_a_curve = 10;    // about

// --- Numbers as text --------------------------------------------------------------------------------------

// With a minus sign as wide as a plus.
std::string with_minus(std::string number) {
  if (number.starts_with('-')) number.replace(0, 1, "−");
  return number;
}

std::string fixed(double value) {
  const double size = std::abs(value);
  return with_minus(fmt::format("{:.{}f}", value, size < 100 ? 2 : size < 1000 ? 1 : 0));
}

std::string with_sign(double value) {
  const double size = std::abs(value);
  return with_minus(fmt::format("{:+.{}f}", value, size < 100 ? 2 : size < 1000 ? 1 : 0));
}

std::string with_deviation(const Spread& spread) {
  std::string text = fixed(spread.mean);
  if (spread.deviation) text += fmt::format(" ± {}", fixed(*spread.deviation));
  return text;
}

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / 86400);
}

// 3.3·10¹⁸
std::string power_of_ten(double value) {
  auto exponent = static_cast<int64_t>(std::floor(std::log10(value)));
  double mantissa = value / std::pow(10, static_cast<double>(exponent));
  if (mantissa >= 9.95) {
    mantissa /= 10;
    ++exponent;
  }
  static const std::array<const char*, 10> superscripts = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = fmt::format("{:.1f}·10{}", mantissa, exponent < 0 ? "⁻" : "");
  for (const char digit : std::to_string(std::abs(exponent))) text += superscripts[static_cast<size_t>(digit - '0')];
  return text;
}

std::string counted(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", i ? separator : "", parts[i]);
  return text;
}

const char* name_of(State state) {
  switch (state) {
    case State::waiting:
      return "waiting";
    case State::running:
      return "running";
    case State::finished:
      return "finished";
    case State::failed:
      return "failed";
  }
  throw std::logic_error("a state without a name");
}

// --- What the report says about a row ---------------------------------------------------------------------

struct RowView {
  const SweepRow* row = nullptr;
  bool is_base = false;
  std::map<State, int64_t> states;
  Spread perplexity, bleu, seconds, flops;
  bool not_finite = false;  // a finished run's perplexity is
  int64_t parameters = 0;
  std::set<std::string> signatures;
  std::optional<RowDifference> perplexity_difference, bleu_difference;

  int64_t count(State state) const {
    const auto found = states.find(state);
    return found == states.end() ? 0 : found->second;
  }
};

struct Views {
  std::vector<RowView> rows;
  const RowView* base = nullptr;  // among `rows`
  std::set<std::string> signatures;
  std::map<State, int64_t> states;
  double seconds = 0, flops = 0;  // of all runs together
};

RowView view_of(const SweepRow& row) {
  RowView view;
  view.row = &row;
  std::vector<double> perplexities, bleus, seconds, flops;
  for (const auto& run : row.runs) {
    ++view.states[run.state];
    if (view.parameters == 0) view.parameters = run.parameters;
    if (run.state != State::finished) continue;
    if (run.perplexity) {
      perplexities.push_back(*run.perplexity);
      view.not_finite = view.not_finite || !std::isfinite(*run.perplexity);
    }
    if (run.bleu) {
      bleus.push_back(*run.bleu);
      view.signatures.insert(run.bleu_signature);
    }
    if (run.seconds > 0) seconds.push_back(run.seconds);
    if (run.flops > 0) flops.push_back(run.flops);
  }
  if (row.runs.empty()) view.states[State::waiting] = 1;
  view.perplexity = spread_of(perplexities);
  view.bleu = spread_of(bleus);
  view.seconds = spread_of(seconds);
  view.flops = spread_of(flops);
  return view;
}

Views views_of(const SweepReport& report) {
  Views views;
  for (const auto& row : report.rows) {
    views.rows.push_back(view_of(row));
    const RowView& view = views.rows.back();
    views.signatures.insert(view.signatures.begin(), view.signatures.end());
    for (const auto& [state, count] : view.states) views.states[state] += count;
    for (const auto& run : row.runs) {
      if (std::isfinite(run.seconds)) views.seconds += run.seconds;
      if (std::isfinite(run.flops)) views.flops += run.flops;
    }
  }
  for (auto& view : views.rows) {
    if (views.base || report.base_row.empty() || view.row->name != report.base_row) continue;
    view.is_base = true;
    views.base = &view;
  }
  if (!views.base) return views;
  for (auto& view : views.rows) {
    if (view.is_base) continue;
    view.perplexity_difference = compare_to_base(view.perplexity, views.base->perplexity);
    // Two kinds of BLEU have no difference worth the name.
    if (view.signatures.size() == 1 && view.signatures == views.base->signatures) {
      view.bleu_difference = compare_to_base(view.bleu, views.base->bleu);
    }
  }
  return views;
}

// "2 finished, 1 running", or "waiting" alone where that is all there is to say.
std::string state_text(const RowView& view) {
  std::vector<std::string> parts;
  for (const auto& [state, count] : view.states) {
    parts.push_back(view.row->runs.size() < 2 ? std::string(name_of(state))
                                              : fmt::format("{} {}", count, name_of(state)));
  }
  std::reverse(parts.begin(), parts.end());  // failed and finished before what is still to come
  return joined(parts, ", ");
}

// What matters most about a row's runs.
State worst_state(const RowView& view) {
  for (const State state : {State::failed, State::running, State::waiting}) {
    if (view.count(state) > 0) return state;
  }
  return State::finished;
}

std::string progress_text(const SweepRun& run) {
  if (run.curve.empty()) return "";
  const CurvePoint& last = run.curve.back();
  return fmt::format("step {}, perplexity {}", grouped_number(last.step), fixed(last.perplexity));
}

std::string difference_text(const RowDifference& difference) {
  switch (difference.verdict) {
    case Verdict::within:
      return fmt::format("≈ {}", with_sign(difference.difference));
    case Verdict::beyond:
      return with_sign(difference.difference);
    case Verdict::unknown:
      return fmt::format("{} ?", with_sign(difference.difference));
  }
  throw std::logic_error("a verdict without a text");
}

// --- Tables, in either format -----------------------------------------------------------------------------

struct Cell {
  std::string text;
  std::optional<double> sort;  // what the column is sorted by; absent: the text
  std::string look;            // class names in HTML; "beyond" is bold in Markdown
};

struct Column {
  std::string head, explanation;
  bool number = false;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

Cell number_cell(const Spread& spread, bool not_finite = false) {
  if (spread.count == 0) return {not_finite ? "not finite" : "", std::nullopt, not_finite ? "failed" : ""};
  return {with_deviation(spread), spread.mean, ""};
}

Cell paper_cell(const std::optional<double>& value, int digits, std::string_view unit = "") {
  if (!value) return {};
  return {fmt::format("{:.{}f}{}", *value, digits, unit), *value, "paper"};
}

Cell difference_cell(const RowView& view, const std::optional<RowDifference>& difference, bool more_is_better) {
  if (view.is_base) return {"base", 0.0, "soft"};
  if (!difference) return {};
  std::string look = "soft";
  if (difference->verdict == Verdict::beyond) {
    look = (difference->difference > 0) == more_is_better ? "beyond better" : "beyond worse";
  }
  return {difference_text(*difference), difference->difference, look};
}

Cell state_cell(const RowView& view) {
  const State state = worst_state(view);
  std::string text = state_text(view);
  for (const auto& run : view.row->runs) {
    if (run.state == State::running && !progress_text(run).empty()) {
      text += fmt::format("; {}", progress_text(run));
      break;
    }
  }
  std::set<std::string> reasons;
  for (const auto& run : view.row->runs) {
    if (run.state == State::failed && !run.reason.empty() && reasons.insert(run.reason).second) {
      text += fmt::format("; {}", run.reason);
    }
  }
  return {text, static_cast<double>(state), fmt::format("state {}", name_of(state))};
}

Table table_of(const Views& views) {
  const bool groups =
      std::any_of(views.rows.begin(), views.rows.end(), [](const auto& v) { return !v.row->group.empty(); });
  Table table;
  if (groups) table.columns.push_back({"", "block of the table", false});
  for (const Column& column :
       std::initializer_list<Column>{{"row", "", false},
                                     {"changed", "what differs from the base configuration", false},
                                     {"PPL paper", "perplexity per word piece in the paper's Table 3", true},
                                     {"PPL", "perplexity per word piece: mean ± standard deviation over seeds", true},
                                     {"Δ PPL", "difference to the base row; lower is better", true},
                                     {"BLEU paper", "BLEU in the paper's Table 3", true},
                                     {"BLEU", "mean ± standard deviation over seeds", true},
                                     {"Δ BLEU", "difference to the base row; higher is better", true},
                                     {"params paper", "parameters in the paper's Table 3", true},
                                     {"params", "parameters that are trained", true},
                                     {"time", "of training one seed", true},
                                     {"FLOPs", "floating-point operations of training one seed", true},
                                     {"runs", "", false}}) {
    table.columns.push_back(column);
  }
  for (const auto& view : views.rows) {
    const SweepRow& row = *view.row;
    const PublishedFigures paper = row.paper.value_or(PublishedFigures{});
    std::vector<Cell> cells;
    if (groups) cells.push_back({row.group, std::nullopt, "soft"});
    cells.push_back({row.name, std::nullopt, view.is_base ? "name base" : "name"});
    cells.push_back({row.changes, std::nullopt, "changes"});
    cells.push_back(paper_cell(paper.perplexity, 2));
    cells.push_back(number_cell(view.perplexity, view.not_finite));
    cells.push_back(difference_cell(view, view.perplexity_difference, /*more_is_better=*/false));
    cells.push_back(paper_cell(paper.bleu, 1));
    cells.push_back(number_cell(view.bleu));
    cells.push_back(difference_cell(view, view.bleu_difference, /*more_is_better=*/true));
    cells.push_back(paper_cell(paper.parameters_millions, 0, " M"));
    const double millions = static_cast<double>(view.parameters) / 1e6;
    cells.push_back(
        view.parameters == 0 ? Cell{} : Cell{fmt::format("{:.{}f} M", millions, millions < 10 ? 2 : 1), millions, ""});
    cells.push_back(view.seconds.count == 0 ? Cell{} : Cell{duration(view.seconds.mean), view.seconds.mean, ""});
    cells.push_back(view.flops.count == 0 ? Cell{} : Cell{power_of_ten(view.flops.mean), view.flops.mean, ""});
    cells.push_back(state_cell(view));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

// Every run by itself.
Table runs_of(const SweepReport& report) {
  Table table;
  table.columns = {{"row", "", false}, {"seed", "", true}, {"state", "", false}, {"PPL", "", true},
                   {"BLEU", "", true}, {"time", "", true}, {"FLOPs", "", true},  {"", "", false}};
  for (const auto& row : report.rows) {
    for (const auto& run : row.runs) {
      const auto number = [](const std::optional<double>& value) {
        if (!value) return Cell{};
        return std::isfinite(*value) ? Cell{fixed(*value), *value, ""} : Cell{"not finite", std::nullopt, "failed"};
      };
      table.rows.push_back({{row.name, std::nullopt, "name"},
                            {std::to_string(run.seed), static_cast<double>(run.seed), ""},
                            {name_of(run.state), std::nullopt, fmt::format("state {}", name_of(run.state))},
                            number(run.perplexity),
                            number(run.bleu),
                            run.seconds > 0 ? Cell{duration(run.seconds), run.seconds, ""} : Cell{},
                            run.flops > 0 ? Cell{power_of_ten(run.flops), run.flops, ""} : Cell{},
                            {run.state == State::failed    ? run.reason
                             : run.state == State::running ? progress_text(run)
                                                           : "",
                             std::nullopt, ""}});
    }
  }
  return table;
}

// --- Sentences, in either format --------------------------------------------------------------------------

std::string summary_of(const Views& views) {
  int64_t runs = 0;
  std::vector<std::string> parts;
  for (const State state : {State::finished, State::running, State::waiting, State::failed}) {
    const auto found = views.states.find(state);
    if (found == views.states.end()) continue;
    runs += found->second;
    parts.push_back(fmt::format("{} {}", found->second, name_of(state)));
  }
  std::string text =
      fmt::format("{}, {}", counted(static_cast<int64_t>(views.rows.size()), "row"), counted(runs, "run"));
  if (!parts.empty()) text += fmt::format(": {}", joined(parts, ", "));
  text += ".";
  if (views.seconds > 0) text += fmt::format(" Training took {} in all", duration(views.seconds));
  if (views.seconds > 0 && views.flops > 0)
    text += fmt::format(" and {} floating-point operations", power_of_ten(views.flops));
  if (views.seconds > 0) text += ".";
  return text;
}

std::string yardstick_sentence(const std::string& figure, const Spread& base) {
  if (base.count == 0) return fmt::format("The base row has no {} yet.", figure);
  if (!base.deviation) {
    return fmt::format("{}: one seed of the base row, so it is unknown which differences are chance.", figure);
  }
  return fmt::format(
      "{}: s = {:.3g} over {} seeds of the base row; by chance alone, a row that equals it is found beyond in {:.0f} "
      "of "
      "100 cases (Student's t, {}).",
      figure, *base.deviation, base.count, 100 * chance_beyond(base.count),
      base.count == 2 ? "1 degree of freedom" : fmt::format("{} degrees of freedom", base.count - 1));
}

std::vector<std::string> rule_of(const SweepReport& report, const Views& views) {
  if (!views.base) {
    return {report.base_row.empty() ? "No base row is named, so rows are compared with the paper alone."
                                    : fmt::format("There is no row '{}' to compare the others with.", report.base_row)};
  }
  return {fmt::format(
              "Differences are to the row {}. “≈” marks one within the seeds' spread: |Δ| ≤ 2·s·√(1/n + 1/m), where "
              "s is the standard deviation of the base row over its m seeds and n is the number of the row's "
              "seeds. “?” marks one that cannot be judged. The others are beyond the spread.",
              views.base->row->name),
          yardstick_sentence("PPL", views.base->perplexity), yardstick_sentence("BLEU", views.base->bleu)};
}

// "Perplexity beyond the seeds' spread: better C-N8 (−0.12); worse A-h1 (+0.37). Within it: E."
std::vector<std::string> findings_of(const Views& views) {
  std::vector<std::string> sentences;
  const auto find = [&](const std::string& figure, std::optional<RowDifference> RowView::*member, bool more_is_better) {
    std::vector<std::string> better, worse, within;
    for (const auto& view : views.rows) {
      const auto& difference = view.*member;
      if (!difference || difference->verdict == Verdict::unknown) continue;
      if (difference->verdict == Verdict::within) {
        within.push_back(view.row->name);
        continue;
      }
      auto& list = (difference->difference > 0) == more_is_better ? better : worse;
      list.push_back(fmt::format("{} ({})", view.row->name, with_sign(difference->difference)));
    }
    if (better.empty() && worse.empty() && within.empty()) return;
    sentences.push_back(
        fmt::format("{}: better than the base row beyond the seeds' spread: {}. Worse: {}. Within the spread: {}.",
                    figure, better.empty() ? "none" : joined(better, ", "),
                    worse.empty() ? "none" : joined(worse, ", "), within.empty() ? "none" : joined(within, ", ")));
  };
  find("Perplexity", &RowView::perplexity_difference, false);
  find("BLEU", &RowView::bleu_difference, true);

  const auto correlate = [&](const std::string& figure, std::optional<double> PublishedFigures::*printed,
                             Spread RowView::*ours) {
    std::vector<std::pair<double, double>> pairs;
    for (const auto& view : views.rows) {
      if (!view.row->paper || !((*view.row->paper).*printed) || (view.*ours).count == 0) continue;
      pairs.emplace_back(*((*view.row->paper).*printed), (view.*ours).mean);
    }
    const auto correlation = rank_correlation(pairs);
    if (!correlation) return;
    sentences.push_back(fmt::format("{} beside the paper's over {} rows: rank correlation {} (1: the same order).",
                                    figure, pairs.size(), with_minus(fmt::format("{:.2f}", *correlation))));
  };
  correlate("Perplexity", &PublishedFigures::perplexity, &RowView::perplexity);
  correlate("BLEU", &PublishedFigures::bleu, &RowView::bleu);
  return sentences;
}

std::vector<std::string> signatures_of(const Views& views) {
  std::vector<std::string> sentences;
  const auto shown = [](const std::string& signature) { return signature.empty() ? "of unknown kind" : signature; };
  if (views.signatures.size() == 1)
    sentences.push_back(fmt::format("Signature of BLEU: {}", shown(*views.signatures.begin())));
  if (views.signatures.size() > 1) {
    sentences.emplace_back("BLEU is of several kinds, which cannot be compared with each other:");
    for (const auto& signature : views.signatures) {
      std::vector<std::string> names;
      for (const auto& view : views.rows) {
        if (view.signatures.count(signature)) names.push_back(view.row->name);
      }
      sentences.push_back(fmt::format("{}: {}", shown(signature), joined(names, ", ")));
    }
  }
  if (std::any_of(views.rows.begin(), views.rows.end(),
                  [](const auto& v) { return v.row->paper && v.row->paper->bleu; })) {
    sentences.emplace_back(
        "The paper's BLEU is of tokenized text with compounds split, on newstest2013; it is higher than sacreBLEU's on "
        "the same translations.");
  }
  return sentences;
}

std::vector<std::string> paragraphs_of(const std::string& text) {
  std::vector<std::string> paragraphs;
  std::string paragraph;
  const auto finish = [&] {
    if (paragraph.find_first_not_of(" \t\r\n") != std::string::npos) paragraphs.push_back(paragraph);
    paragraph.clear();
  };
  size_t from = 0;
  while (from <= text.size()) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, end - from);
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      finish();
    } else {
      fmt::format_to(std::back_inserter(paragraph), "{}{}", paragraph.empty() ? "" : "\n", line);
    }
    from = end + 1;
  }
  finish();
  return paragraphs;
}

// --- Markdown ---------------------------------------------------------------------------------------------

// Text as text: no character has a meaning to Markdown, and line ends are spaces.
std::string markdown_text(const std::string& text) {
  static const std::string special = "\\`*{}[]|#~$";
  const auto is_word = [&](size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || (text[i] & 0x80) != 0);
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

std::string markdown_table(const Table& table) {
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

// --- Plots ------------------------------------------------------------------------------------------------

// The curves of one group, the base row's in ink beside them. Empty where no run has a point of `figure`.
std::string curves_plot(const Views& views, const std::string& group, const std::string& what, Scale scale,
                        const std::function<std::optional<double>(const CurvePoint&)>& figure) {
  LinePlot plot;
  plot.title = group.empty() ? what : fmt::format("{}, rows {}", what, group);
  plot.x.label = "step";
  plot.y = {.label = what, .scale = scale, .lower = std::nullopt, .upper = std::nullopt};
  int64_t style = 0;
  bool any_of_group = false, only_base = true;
  std::vector<double> lasts;
  for (const auto& view : views.rows) {
    if (!view.is_base && view.row->group != group) continue;
    const int64_t row_style = view.is_base ? -1 : style++;
    for (const auto& run : view.row->runs) {
      PlotSeries series{.name = view.row->name, .points = {}, .style = row_style};
      std::vector<PlotPoint> points;
      for (const auto& point : run.curve) {
        const auto value = figure(point);
        if (!value) continue;
        const std::string tokens =
            point.target_tokens > 0
                ? fmt::format(", {} target tokens", short_number(static_cast<double>(point.target_tokens), 4))
                : "";
        points.push_back({.x = static_cast<double>(point.step),
                          .y = *value,
                          .title = fmt::format("{}, seed {}\nstep {}{}\n{} {}", view.row->name, run.seed,
                                               grouped_number(point.step), tokens, what, fixed(*value)),
                          .label = ""});
      }
      if (points.empty()) continue;
      const size_t kept = std::min(points.size(), points_a_curve);
      for (size_t i = 0; i < kept; ++i) {
        series.points.push_back(points[kept == 1 ? 0 : i * (points.size() - 1) / (kept - 1)]);
      }
      // Each curve's marks at other points than its neighbour's, so that they do not hide each other.
      const size_t stride = (kept + marks_a_curve - 1) / marks_a_curve;
      for (size_t i = 0; i < kept; ++i) series.points[i].marked = (i + plot.series.size()) % stride == 0;
      if (scale == Scale::logarithmic && std::isfinite(series.points.back().y)) lasts.push_back(series.points.back().y);
      any_of_group = any_of_group || view.row->group == group;
      only_base = only_base && view.is_base;
      plot.series.push_back(std::move(series));
    }
  }
  // A picture of the base row alone says something only where there is no other.
  const bool other_rows = std::any_of(views.rows.begin(), views.rows.end(), [](const auto& v) {
    return !v.is_base &&
           std::any_of(v.row->runs.begin(), v.row->runs.end(), [](const auto& run) { return !run.curve.empty(); });
  });
  if (!any_of_group || (only_base && other_rows)) return "";
  if (!lasts.empty()) {
    // The first evaluations lie orders of magnitude above what the rows differ by: the picture shows where they end.
    std::sort(lasts.begin(), lasts.end());
    const double enough = std::max(4 * lasts[lasts.size() / 2], 1.2 * lasts.back());
    double highest = 0;
    for (const auto& series : plot.series) {
      for (const auto& point : series.points) {
        if (std::isfinite(point.y)) highest = std::max(highest, point.y);
      }
    }
    if (highest > enough) plot.y.upper = enough;
  }
  return line_plot(plot);
}

std::string differences_plot(const Views& views, const std::string& title, const std::string& axis,
                             std::optional<double> PublishedFigures::*printed, Spread RowView::*ours,
                             std::optional<RowDifference> RowView::*difference) {
  DotPlot plot;
  plot.title = title;
  plot.x_label = axis;
  const auto& base = *views.base;
  bool filled = false, hollow = false, bands = false, references = false;
  for (const auto& view : views.rows) {
    if (view.is_base) continue;
    DotRow row;
    row.label = view.row->name;
    row.group = view.row->group;
    row.title = view.row->changes.empty() ? view.row->name : fmt::format("{}: {}", view.row->name, view.row->changes);
    const auto& found = view.*difference;
    if (found) {
      row.value = found->difference;
      row.error = (view.*ours).deviation.value_or(0);
      row.band = found->verdict == Verdict::unknown ? 0 : found->limit;
      row.hollow = found->verdict != Verdict::beyond;
      row.note = difference_text(*found);
      row.title += fmt::format("\n{} − {} = {}", with_deviation(view.*ours), with_deviation(base.*ours), row.note);
      (row.hollow ? hollow : filled) = true;
      bands = bands || row.band > 0;
    } else {
      const State state = worst_state(view);
      row.note = state == State::finished ? "no value" : name_of(state);
    }
    if (view.row->paper && base.row->paper) {
      const auto& a = (*view.row->paper).*printed;
      const auto& b = (*base.row->paper).*printed;
      if (a && b) {
        row.reference = *a - *b;
        row.title += fmt::format("\npaper: {}", with_sign(*row.reference));
        references = true;
      }
    }
    plot.rows.push_back(std::move(row));
  }
  if (plot.rows.empty()) return "";
  if (filled) plot.filled_name = "ours, beyond the seeds' spread";
  if (hollow) plot.hollow_name = bands ? "ours, within it" : "ours, spread unknown";
  if (bands) plot.band_name = "seeds' spread: ±2·s·√(1/n + 1/m)";
  if (references) plot.reference_name = "paper's difference";
  return dot_plot(plot);
}

std::string paper_plot(const Views& views, const std::string& what, std::optional<double> PublishedFigures::*printed,
                       Spread RowView::*ours) {
  LinePlot plot;
  plot.title = fmt::format("{}: ours against the paper's", what);
  plot.x.label = fmt::format("{}, paper", what);
  plot.y.label = fmt::format("{}, ours", what);
  plot.diagonal = true;
  std::map<std::string, size_t> group_series;
  int64_t style = 0;
  for (const auto& view : views.rows) {
    if (!view.row->paper || !((*view.row->paper).*printed) || (view.*ours).count == 0) continue;
    const std::string name = view.is_base ? "base row" : view.row->group.empty() ? "other rows" : view.row->group;
    const auto [found, is_new] =
        group_series.try_emplace(view.is_base ? std::string("\0base", 5) : name, plot.series.size());
    if (is_new) {
      plot.series.push_back({.name = name, .points = {}, .line = false, .style = view.is_base ? -1 : style++});
    }
    const double x = *((*view.row->paper).*printed);
    plot.series[found->second].points.push_back(
        {.x = x,
         .y = (view.*ours).mean,
         .error = (view.*ours).deviation.value_or(0),
         .title = fmt::format("{}: {}\npaper {}, ours {}", view.row->name, view.row->changes, fixed(x),
                              with_deviation(view.*ours)),
         .label = view.row->name});
  }
  if (plot.series.empty()) return "";
  return line_plot(plot);
}

// --- HTML -------------------------------------------------------------------------------------------------

std::string html_table(const Table& table, const std::string& look) {
  std::string out = fmt::format("<div class=\"scroll\"><table class=\"{}\">\n<thead><tr>", look);
  for (const auto& column : table.columns) {
    fmt::format_to(std::back_inserter(out), "<th scope=\"col\" tabindex=\"0\"{}{}>{}</th>",
                   column.number ? " class=\"number\"" : "",
                   column.explanation.empty() ? "" : fmt::format(" title=\"{}\"", escape_markup(column.explanation)),
                   column.head.empty() ? "&#160;" : escape_markup(column.head));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      std::string names = table.columns[i].number ? "number" : "";
      if (!row[i].look.empty())
        fmt::format_to(std::back_inserter(names), "{}{}", names.empty() ? "" : " ", row[i].look);
      const std::string sort =
          row[i].sort && std::isfinite(*row[i].sort) ? fmt::format(" data-sort=\"{}\"", *row[i].sort) : "";
      fmt::format_to(std::back_inserter(out), "<td{}{}>{}</td>",
                     names.empty() ? "" : fmt::format(" class=\"{}\"", names), sort, escape_markup(row[i].text));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

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

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    ++spread.count;
    spread.mean += (value - spread.mean) / static_cast<double>(spread.count);
  }
  if (spread.count < 2) return spread;
  double squares = 0;
  for (const double value : values) {
    if (std::isfinite(value)) squares += (value - spread.mean) * (value - spread.mean);
  }
  spread.deviation = std::sqrt(squares / static_cast<double>(spread.count - 1));
  return spread;
}

std::optional<RowDifference> compare_to_base(const Spread& row, const Spread& base) {
  if (row.count == 0 || base.count == 0) return std::nullopt;
  RowDifference result{.difference = row.mean - base.mean};
  if (!base.deviation) return result;
  const double n = static_cast<double>(row.count), m = static_cast<double>(base.count);
  result.limit = 2 * *base.deviation * std::sqrt(1 / n + 1 / m);
  result.verdict = std::abs(result.difference) <= result.limit ? Verdict::within : Verdict::beyond;
  return result;
}

double chance_beyond(int64_t base_seeds) {
  if (base_seeds < 2) throw std::invalid_argument("chance_beyond: fewer than two seeds");
  // Student's t by the finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
  const int64_t freedom = base_seeds - 1;
  if (freedom > 100000) return std::erfc(2 / std::sqrt(2.0));
  const double angle = std::atan(2 / std::sqrt(static_cast<double>(freedom)));
  const double sine = std::sin(angle), square = std::cos(angle) * std::cos(angle);
  if (freedom % 2 == 0) {
    double sum = 0, term = 1;
    for (int64_t i = 0; i < freedom / 2; ++i) {
      sum += term;
      term *= square * static_cast<double>(2 * i + 1) / static_cast<double>(2 * i + 2);
    }
    return 1 - sine * sum;
  }
  double sum = 0, term = std::cos(angle);
  for (int64_t i = 1; i <= (freedom - 1) / 2; ++i) {
    sum += term;
    term *= square * static_cast<double>(2 * i) / static_cast<double>(2 * i + 1);
  }
  return 1 - 2 / std::numbers::pi * (angle + sine * sum);
}

std::optional<double> rank_correlation(const std::vector<std::pair<double, double>>& pairs) {
  if (pairs.size() < 3) return std::nullopt;
  const auto ranks = [&](double std::pair<double, double>::*side) {
    std::vector<size_t> order(pairs.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return pairs[a].*side < pairs[b].*side; });
    std::vector<double> result(pairs.size());
    for (size_t from = 0; from < order.size();) {
      size_t to = from;
      while (to < order.size() && pairs[order[to]].*side == pairs[order[from]].*side) ++to;
      for (size_t i = from; i < to; ++i) result[order[i]] = 0.5 * static_cast<double>(from + to - 1);
      from = to;
    }
    return result;
  };
  const auto first = ranks(&std::pair<double, double>::first), second = ranks(&std::pair<double, double>::second);
  const double mean = 0.5 * static_cast<double>(pairs.size() - 1);
  double product = 0, first_square = 0, second_square = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    product += (first[i] - mean) * (second[i] - mean);
    first_square += (first[i] - mean) * (first[i] - mean);
    second_square += (second[i] - mean) * (second[i] - mean);
  }
  if (first_square == 0 || second_square == 0) return std::nullopt;
  return product / std::sqrt(first_square * second_square);
}

std::string sweep_markdown(const SweepReport& report) {
  const Views views = views_of(report);
  std::string out = fmt::format("<!-- sweep report, format {} -->\n# {}\n\n", sweep_report_version,
                                report.title.empty() ? "Sweep" : markdown_text(report.title));
  const auto paragraphs = [&](const std::vector<std::string>& texts) {
    for (const auto& text : texts) fmt::format_to(std::back_inserter(out), "{}\n\n", markdown_paragraph(text));
  };
  paragraphs(paragraphs_of(report.description));
  paragraphs({summary_of(views)});
  if (!views.rows.empty()) fmt::format_to(std::back_inserter(out), "{}\n", markdown_table(table_of(views)));
  paragraphs(rule_of(report, views));
  paragraphs(signatures_of(views));
  const auto findings = findings_of(views);
  if (!findings.empty()) out += "## Findings\n\n";
  paragraphs(findings);
  if (several_seeds(report)) {
    fmt::format_to(std::back_inserter(out), "## Runs\n\n{}\n", markdown_table(runs_of(report)));
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

std::string sweep_html(const SweepReport& report) {
  const Views views = views_of(report);
  const std::string title = report.title.empty() ? "Sweep" : report.title;
  std::string out = fmt::format("<h1>{}</h1>\n", escape_markup(title));
  add_paragraphs(out, paragraphs_of(report.description));
  add_paragraphs(out, {summary_of(views)});
  if (!views.rows.empty()) out += html_table(table_of(views), "results");
  add_paragraphs(out, rule_of(report, views), "small");
  add_paragraphs(out, signatures_of(views), "small");
  const auto findings = findings_of(views);
  if (!findings.empty()) {
    out += "<section><h2>Findings</h2>\n";
    add_paragraphs(out, findings);
    out += "</section>\n";
  }
  if (views.base && views.base->perplexity.count + views.base->bleu.count > 0) {
    std::vector<std::string> plots;
    if (views.base->perplexity.count > 0) {
      plots.push_back(differences_plot(views, "Perplexity: difference to the base row", "← better · PPL · worse →",
                                       &PublishedFigures::perplexity, &RowView::perplexity,
                                       &RowView::perplexity_difference));
    }
    if (views.base->bleu.count > 0) {
      plots.push_back(differences_plot(views, "BLEU: difference to the base row", "← worse · BLEU · better →",
                                       &PublishedFigures::bleu, &RowView::bleu, &RowView::bleu_difference));
    }
    add_figures(out, "Differences", plots);
  }

  std::vector<std::string> groups;
  for (const auto& row : report.rows) {
    if (std::find(groups.begin(), groups.end(), row.group) == groups.end()) groups.push_back(row.group);
  }
  std::vector<std::string> perplexities, bleus;
  for (const auto& group : groups) {
    perplexities.push_back(curves_plot(views, group, "perplexity", Scale::logarithmic,
                                       [](const CurvePoint& point) { return std::optional(point.perplexity); }));
    bleus.push_back(
        curves_plot(views, group, "BLEU", Scale::linear, [](const CurvePoint& point) { return point.bleu; }));
  }
  add_figures(out, "Learning curves: perplexity", perplexities);
  add_figures(out, "Learning curves: BLEU", bleus);
  add_figures(out, "Beside the paper",
              {paper_plot(views, "perplexity", &PublishedFigures::perplexity, &RowView::perplexity),
               paper_plot(views, "BLEU", &PublishedFigures::bleu, &RowView::bleu)});

  const Table runs = runs_of(report);
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
                     fmt::arg("page_style", embedded::sweep_page_css), fmt::arg("content", out),
                     fmt::arg("script", embedded::sweep_page_js));
}

}  // namespace transformer
