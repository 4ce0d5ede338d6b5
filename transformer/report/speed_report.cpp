#include "transformer/report/speed_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/base/setting_field.h"
#include "transformer/base/unicode.h"
#include "transformer/report/number_text.h"
#include "transformer/report/plot.h"
#include "transformer/report/text_width.h"

namespace transformer {

namespace {

std::string at_once(int64_t sentences) {
  return sentences == 1 ? "one sentence" : fmt::format("{} sentences", sentences);
}

/// Thrown by what is wrong with a model's figures, in words.
struct Damaged {
  std::string what;
};

/// `slack`: how far rounding may take a number out of its range.
double number(const nlohmann::json& json, const char* key, const Range& range, double slack = 0) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_number()) {
    const auto value = found->get<double>();
    const double within = std::clamp(value, range.lowest, range.highest);
    const double rounded = std::abs(value - within) <= slack ? within : value;
    if (std::isfinite(rounded) && range.contains(rounded)) return rounded;
  }
  throw Damaged{fmt::format("{} is no number that is {}", key, range.text())};
}

/// A short line of text.
std::string label(const nlohmann::json& json, const char* key, size_t longest = 80) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) throw Damaged{fmt::format("{} is no text", key)};
  return printable(found->get_ref<const std::string&>(), longest);
}

SpeedFigures::Measured measured_of(const nlohmann::json& json) {
  if (!json.is_object()) throw Damaged{"measured is no object"};
  const auto count = [&](const char* key, double least) {
    return static_cast<int64_t>(number(json, key, between(least, 1e15)));
  };
  constexpr size_t longest = 1000;  // of a signature, which is compared whole
  return {.text = label(json, "text"),
          .sentences = count("sentences", 1),
          .timed_sentences = count("timed_sentences", 1),
          .timed_words = count("timed_words", 1),
          .threads = count("threads", 1),
          .bleu_signature = label(json, "bleu_signature", longest),
          .chrf_signature = label(json, "chrf_signature", longest)};
}

SpeedFigures figures_of(const nlohmann::json& json, const std::vector<int64_t>& sizes) {
  constexpr double slack = 1e-9;
  SpeedFigures figures;
  figures.model = label(json, "name");
  figures.precision = label(json, "precision");
  figures.bleu = number(json, "bleu", between(0, 100), slack);
  figures.chrf = number(json, "chrf", between(0, 100), slack);
  constexpr double most = 1e18;  // of what is counted
  figures.bytes = static_cast<int64_t>(std::min(number(json, "bytes", at_least(0)), most));
  figures.parameters = static_cast<int64_t>(std::min(number(json, "parameters", at_least(0)), most));
  const auto speed = json.find("speed");
  if (speed == json.end() || !speed->is_array() || speed->size() != sizes.size()) {
    throw Damaged{fmt::format("speed is no list of {} measurements", sizes.size())};
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto& timed = (*speed)[i];
    if (!timed.is_object() || number(timed, "sentences_at_once", more_than(0)) != static_cast<double>(sizes[i])) {
      throw Damaged{fmt::format("measurement {} is not of {} sentences at once", i + 1, sizes[i])};
    }
    figures.timed.push_back({.sentences = sizes[i],
                             .words_per_second = number(timed, "words_per_second", more_than(0)),
                             .words_per_core_second = number(timed, "words_per_core_second", more_than(0))});
  }
  if (const auto measured = json.find("measured"); measured != json.end()) figures.measured = measured_of(*measured);
  return figures;
}

/// How one was measured otherwise than the other.
std::string difference(const SpeedFigures::Measured& one, const SpeedFigures::Measured& other) {
  std::vector<std::string> all;
  if (one.text != other.text) all.push_back(fmt::format("on another text ({})", counted(one.sentences, "sentence")));
  if (one.timed_sentences != other.timed_sentences || one.timed_words != other.timed_words) {
    all.push_back(fmt::format("with {} timed, not {}", counted(one.timed_words, "word"), other.timed_words));
  }
  if (one.threads != other.threads) {
    all.push_back(fmt::format("with {}, not {}", counted(one.threads, "thread"), other.threads));
  }
  if (one.bleu_signature != other.bleu_signature) all.push_back(fmt::format("by {}", one.bleu_signature));
  if (one.chrf_signature != other.chrf_signature) all.push_back(fmt::format("by {}", one.chrf_signature));
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

std::vector<SpeedFigures> read_speed_figures(std::string_view text, const std::string& file,
                                             const std::vector<int64_t>& sizes) {
  const std::string expected = "expected what evaluate speed --format json writes";
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto models = json.is_object() ? json.find("models") : json.end();
  if (models == json.end() || !models->is_array()) throw Error(file, "holds no figures", expected);
  std::vector<SpeedFigures> all;
  for (const auto& model : *models) {
    const auto where = fmt::format("{}, model {}", file, all.size() + 1);
    if (!model.is_object()) throw Error(where, "is no object", expected);
    try {
      all.push_back(figures_of(model, sizes));
    } catch (const Damaged& damaged) {
      throw Error(where, damaged.what, expected);
    }
  }
  return all;
}

std::vector<std::string> speed_remarks(const std::vector<SpeedFigures>& figures) {
  const auto first = std::find_if(figures.begin(), figures.end(), [](const auto& row) { return row.measured; });
  std::vector<std::string> remarks;
  if (first == figures.end()) return remarks;
  const auto silent = std::count_if(figures.begin(), figures.end(), [](const auto& row) { return !row.measured; });
  if (silent > 0) {
    remarks.push_back(fmt::format("{} {} not say on which text and with how many threads {} measured",
                                  counted(silent, "line"), silent == 1 ? "does" : "do",
                                  silent == 1 ? "it was" : "they were"));
  }
  for (const auto& row : figures) {
    if (!row.measured) continue;
    const auto name = fmt::format("{}, {}", row.model, row.precision);
    if (const auto other = difference(*row.measured, *first->measured); !other.empty()) {
      remarks.push_back(
          fmt::format("{} was measured otherwise than {}, {}: {}", name, first->model, first->precision, other));
    }
  }
  return remarks;
}

std::string speed_table(const std::vector<SpeedFigures>& figures) {
  std::vector<std::vector<std::string>> lines = {{"model", "precision", "BLEU", "chrF", "MB", "parameters"}};
  if (!figures.empty()) {
    for (const auto& timed : figures.front().timed) {
      lines.front().push_back("words/s, " + at_once(timed.sentences));
      lines.front().emplace_back("by processor");
    }
  }
  for (const auto& row : figures) {
    auto& line = lines.emplace_back();
    line = {row.model,
            row.precision,
            rounded_number(row.bleu, 2),
            rounded_number(row.chrf, 2),
            rounded_number(static_cast<double>(row.bytes) / 1e6, 1),
            grouped_number(row.parameters)};
    for (const auto& timed : row.timed) {
      line.push_back(rounded_number(timed.words_per_second, 0));
      line.push_back(rounded_number(timed.words_per_core_second, 0));
    }
  }
  std::vector<size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], terminal_width(line[i]));
  }
  std::string text;
  for (const auto& line : lines) {
    // Names to the left, numbers to the right.
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - terminal_width(line[i]), ' ');
      if (i > 0) text += "  ";
      text += i < 2 ? line[i] + blanks : blanks + line[i];
    }
    text += '\n';
  }
  return text;
}

std::string speed_picture(const std::vector<SpeedFigures>& figures) {
  LinePlot plot;
  plot.title = "BLEU against speed";
  plot.x = {.label = "words of the source a second", .scale = Scale::logarithmic, .lower = {}, .upper = {}};
  plot.y = {.label = "BLEU", .scale = Scale::linear, .lower = {}, .upper = {}};
  plot.width = 640;
  plot.height = 360;
  // Colours are models, shapes ways, and hollow ones more than one sentence at once.
  std::vector<std::string> models, ways;
  const auto place_of = [](std::vector<std::string>& names, const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    const auto place = found - names.begin();
    if (found == names.end()) names.push_back(name);
    return static_cast<int64_t>(place);
  };
  std::set<int64_t> at_a_time;
  for (const auto& row : figures) {
    const int64_t model = place_of(models, row.model), way = place_of(ways, row.precision);
    for (const auto& timed : row.timed) {
      at_a_time.insert(timed.sentences);
      plot.series.push_back(
          {.name = "",
           .points = {{.x = timed.words_per_second,
                       .y = row.bleu,
                       .title = fmt::format("{}, {}, {}: BLEU {}, {} words/s", row.model, row.precision,
                                            at_once(timed.sentences), rounded_number(row.bleu, 2),
                                            rounded_number(timed.words_per_second, 0)),
                       .label = ""}},
           .line = false,
           .style = model,
           .shape = way,
           .hollow = timed.sentences > 1});
    }
  }
  constexpr size_t told_apart = 6;  // colours, and shapes
  if (std::max(models.size(), ways.size()) > told_apart) {
    for (auto& series : plot.series) series.points.front().label = models[static_cast<size_t>(series.style)];
  }
  for (size_t i = 0; i < models.size(); ++i) {
    plot.series.push_back({.name = models[i], .points = {}, .markers = false, .style = static_cast<int64_t>(i)});
  }
  for (size_t i = 0; i < ways.size(); ++i) {
    plot.series.push_back(
        {.name = ways[i], .points = {}, .line = false, .style = -1, .shape = static_cast<int64_t>(i)});
  }
  for (const int64_t sentences : at_a_time) {
    if (at_a_time.size() < 2) break;
    plot.series.push_back({.name = fmt::format("{}: {}", sentences > 1 ? "hollow" : "filled", at_once(sentences)),
                           .points = {},
                           .line = false,
                           .style = -1,
                           .shape = 0,
                           .hollow = sentences > 1});
  }
  return line_plot(plot, SvgUse::standalone);
}

}  // namespace transformer
