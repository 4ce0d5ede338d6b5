#include "transformer/report/speed_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "transformer/report/number_text.h"
#include "transformer/report/plot.h"

namespace transformer {

namespace {

std::string at_once(int64_t sentences) {
  return sentences == 1 ? "one sentence" : fmt::format("{} sentences", sentences);
}

}  // namespace

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
            fmt::format("{:.2f}", row.bleu),
            fmt::format("{:.2f}", row.chrf),
            fmt::format("{:.1f}", static_cast<double>(row.bytes) / 1e6),
            grouped_number(row.parameters)};
    for (const auto& timed : row.timed) {
      line.push_back(fmt::format("{:.0f}", timed.words_per_second));
      line.push_back(fmt::format("{:.0f}", timed.words_per_core_second));
    }
  }
  std::vector<size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    // Names to the left, numbers to the right.
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - line[i].size(), ' ');
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
  std::map<std::pair<std::string, int64_t>, size_t> places;
  for (const auto& row : figures) {
    for (const auto& timed : row.timed) {
      const auto [place, fresh] = places.try_emplace({row.precision, timed.sentences}, plot.series.size());
      if (fresh) {
        plot.series.push_back({.name = fmt::format("{}, {}", row.precision, at_once(timed.sentences)),
                               .points = {},
                               .line = false,
                               .style = static_cast<int64_t>(place->second)});
      }
      plot.series[place->second].points.push_back(
          {.x = timed.words_per_second,
           .y = row.bleu,
           .title = fmt::format("{}, {}: BLEU {:.2f}, {:.0f} words/s", row.model, row.precision, row.bleu,
                                timed.words_per_second),
           .label = row.model});
    }
  }
  return line_plot(plot, SvgUse::standalone);
}

}  // namespace transformer
