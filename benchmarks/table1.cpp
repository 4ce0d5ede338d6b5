#include "benchmarks/table1.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "transformer/base/error.h"
#include "transformer/report/number_text.h"
#include "transformer/report/plot.h"

namespace transformer::benchmark {
namespace {

constexpr int format_version = 1;

template <class Member>
std::vector<int64_t> values_of(const Measurements& measurements, Member member) {
  std::set<int64_t> values;
  for (const auto& measurement : measurements.list) values.insert(measurement.*member);
  return {values.begin(), values.end()};
}

std::optional<Exponents> fit(const Measurements& measurements, LayerType type, int64_t from,
                             double Measurement::*value) {
  std::vector<FitPoint> points;
  for (const auto& measurement : measurements.list) {
    if (measurement.type != type || measurement.batch != 1 || measurement.n < from) continue;
    points.push_back({static_cast<double>(measurement.n), static_cast<double>(measurement.d), measurement.*value});
  }
  return fit_exponents(points);
}

std::string text_of(const std::optional<Exponents>& exponents) {
  return exponents ? fmt::format("n^{:.2f} · d^{:.2f}", exponents->of_n, exponents->of_d) : "not measured";
}

std::string text_of(const Crossover& crossover) {
  switch (crossover.kind) {
    case Crossover::Kind::at:
      return grouped_number(std::lround(crossover.n));
    case Crossover::Kind::below_all:
      return fmt::format("< {}", grouped_number(std::lround(crossover.n)));
    case Crossover::Kind::above_all:
      return fmt::format("> {}", grouped_number(std::lround(crossover.n)));
    case Crossover::Kind::unknown:
      return "not measured";
  }
  throw std::logic_error("a kind of crossover without a text");
}

// The greatest d at which the longest sequences were measured with both kinds of layer.
int64_t plotted_width(const Measurements& measurements) {
  int64_t best = 0, reach = 0;
  for (const int64_t d : values_of(measurements, &Measurement::d)) {
    for (const int64_t n : values_of(measurements, &Measurement::n)) {
      const bool both = measurements.find(LayerType::self_attention, 1, n, d) &&
                        (measurements.find(LayerType::lstm, 1, n, d) || measurements.find(LayerType::gru, 1, n, d));
      if (both && n >= reach) {
        best = d;
        reach = n;
      }
    }
  }
  return best;
}

// How many steps a signal travels at most between two of n positions, through layers of this type one above the other.
std::string path_length(LayerType type, int64_t n, const LayerSizes& sizes) {
  switch (type) {
    case LayerType::self_attention:
    case LayerType::attention_alone:
      return "1";
    case LayerType::restricted_self_attention:
      return grouped_number((n + sizes.window - 1) / sizes.window);
    case LayerType::lstm:
    case LayerType::gru:
      return grouped_number(n);
    case LayerType::convolution:
    case LayerType::separable_convolution: {
      int64_t layers = 0;
      for (int64_t reach = 1; reach < n; reach *= sizes.kernel) ++layers;
      return grouped_number(layers);
    }
  }
  throw std::logic_error("a type of layer without a path length");
}

}  // namespace

const std::vector<LayerType>& layer_types() {
  static const std::vector<LayerType> types = {LayerType::self_attention,
                                               LayerType::attention_alone,
                                               LayerType::restricted_self_attention,
                                               LayerType::lstm,
                                               LayerType::gru,
                                               LayerType::convolution,
                                               LayerType::separable_convolution};
  return types;
}

LayerDescription describe(LayerType type) {
  switch (type) {
    case LayerType::self_attention:
      return {"self-attention", "self-attention", "O(n² · d)", "O(1)", "O(1)"};
    case LayerType::attention_alone:
      return {"attention-alone", "self-attention without projections", "O(n² · d)", "O(1)", "O(1)"};
    case LayerType::restricted_self_attention:
      return {"restricted-self-attention", "restricted self-attention", "O(r · n · d)", "O(1)", "O(n/r)"};
    case LayerType::lstm:
      return {"lstm", "recurrent: LSTM", "O(n · d²)", "O(n)", "O(n)"};
    case LayerType::gru:
      return {"gru", "recurrent: GRU", "O(n · d²)", "O(n)", "O(n)"};
    case LayerType::convolution:
      return {"convolution", "convolutional", "O(k · n · d²)", "O(1)", "O(log_k n)"};
    case LayerType::separable_convolution:
      return {"separable-convolution", "separable convolution", "O(k · n · d + n · d²)", "O(1)", "O(log_k n)"};
  }
  throw std::logic_error("a type of layer without a description");
}

double training_flops(LayerType type, int64_t batch, int64_t n, int64_t d, const LayerSizes& sizes) {
  const auto positions = static_cast<double>(n), width = static_cast<double>(d);
  const auto kernel = static_cast<double>(sizes.kernel);
  const double projections = 8 * positions * width * width;
  double forward = 0;
  switch (type) {
    case LayerType::self_attention:
      forward = projections + 4 * positions * positions * width;
      break;
    case LayerType::attention_alone:
      forward = 4 * positions * positions * width;
      break;
    case LayerType::restricted_self_attention: {
      const int64_t reach = std::min(sizes.window / 2, n - 1);  // to each side
      // n(2 reach + 1) less what the window would see before the beginning and behind the end.
      const int64_t pairs = n * (2 * reach + 1) - reach * (reach + 1);
      forward = projections + 4 * static_cast<double>(pairs) * width;
      break;
    }
    case LayerType::lstm:
      forward = 16 * positions * width * width;
      break;
    case LayerType::gru:
      forward = 12 * positions * width * width;
      break;
    case LayerType::convolution:
      forward = 2 * kernel * positions * width * width;
      break;
    case LayerType::separable_convolution:
      forward = 2 * kernel * positions * width + 2 * positions * width * width;
      break;
  }
  return 3 * forward * static_cast<double>(batch);
}

const Measurement* Measurements::find(LayerType type, int64_t batch, int64_t n, int64_t d) const {
  const auto found = std::find_if(list.begin(), list.end(), [&](const Measurement& m) {
    return m.type == type && m.batch == batch && m.n == n && m.d == d;
  });
  return found == list.end() ? nullptr : &*found;
}

std::optional<Exponents> fit_exponents(const std::vector<FitPoint>& points) {
  const auto count = static_cast<double>(points.size());
  if (points.size() < 3) return std::nullopt;
  double n_mean = 0, d_mean = 0, y_mean = 0;
  for (const auto& point : points) {
    n_mean += std::log(point.n) / count;
    d_mean += std::log(point.d) / count;
    y_mean += std::log(point.value) / count;
  }
  double nn = 0, nd = 0, dd = 0, ny = 0, dy = 0;
  for (const auto& point : points) {
    const double n = std::log(point.n) - n_mean, d = std::log(point.d) - d_mean, y = std::log(point.value) - y_mean;
    nn += n * n;
    nd += n * d;
    dd += d * d;
    ny += n * y;
    dy += d * y;
  }
  const double determinant = nn * dd - nd * nd;
  if (determinant <= 1e-9 * nn * dd || nn == 0 || dd == 0) return std::nullopt;
  Exponents result{.of_n = (ny * dd - dy * nd) / determinant,
                   .of_d = (dy * nn - ny * nd) / determinant,
                   .points = static_cast<int64_t>(points.size())};
  double squares = 0;
  for (const auto& point : points) {
    const double error = std::log(point.value) - y_mean - result.of_n * (std::log(point.n) - n_mean) -
                         result.of_d * (std::log(point.d) - d_mean);
    squares += error * error;
  }
  result.residual = points.size() > 3 ? std::sqrt(squares / (count - 3)) : 0;
  return result;
}

Crossover find_crossover(const Measurements& measurements, LayerType other, int64_t batch, int64_t d) {
  Crossover result;
  double last_n = 0, last_ratio = 0;
  for (const int64_t n : values_of(measurements, &Measurement::n)) {
    const Measurement* attention = measurements.find(LayerType::self_attention, batch, n, d);
    const Measurement* recurrent = measurements.find(other, batch, n, d);
    if (!attention || !recurrent) continue;
    const double ratio = std::log(attention->milliseconds / recurrent->milliseconds);
    const double place = std::log(static_cast<double>(n));
    if (result.kind == Crossover::Kind::unknown) {
      result = {ratio > 0 ? Crossover::Kind::below_all : Crossover::Kind::above_all, static_cast<double>(n)};
    } else if (ratio > 0 && last_ratio <= 0) {
      // Of several changes of sides, which noise can make, the last counts: from there on it stays so.
      result = {Crossover::Kind::at, std::exp(last_n - last_ratio * (place - last_n) / (ratio - last_ratio))};
    } else if (ratio <= 0) {
      result = {Crossover::Kind::above_all, static_cast<double>(n)};
    }
    last_n = place;
    last_ratio = ratio;
  }
  return result;
}

double arithmetic_crossover(LayerType other, int64_t d) {
  // 8nd² + 4n²d = c·nd²
  const double c = training_flops(other, 1, 1, d, {}) / 3 / (static_cast<double>(d) * static_cast<double>(d));
  return (c - 8) / 4 * static_cast<double>(d);
}

std::string to_json(const Measurements& measurements) {
  nlohmann::ordered_json document = {{"format", "layer-types"},
                                     {"format_version", format_version},
                                     {"cpu", measurements.cpu},
                                     {"torch", measurements.torch_version},
                                     {"threads", measurements.threads},
                                     {"window", measurements.sizes.window},
                                     {"kernel", measurements.sizes.kernel},
                                     {"measurements", nlohmann::ordered_json::array()}};
  for (const auto& m : measurements.list) {
    document["measurements"].push_back({{"layer", describe(m.type).key},
                                        {"batch", m.batch},
                                        {"n", m.n},
                                        {"d", m.d},
                                        {"milliseconds", m.milliseconds},
                                        {"fastest", m.fastest},
                                        {"slowest", m.slowest},
                                        {"samples", m.samples},
                                        {"flops", m.flops}});
  }
  // A measurement a line.
  std::string text = document.dump();
  for (size_t at = 0; (at = text.find("{\"layer\"", at)) != std::string::npos; at += 2) text.insert(at, 1, '\n');
  return fmt::format("{}\n", text);
}

Measurements parse_measurements(const std::string& text, const std::string& where) {
  try {
    const auto document = nlohmann::json::parse(text);
    if (document.at("format") != "layer-types" || document.at("format_version") != format_version) {
      throw Error(where, fmt::format("expected measurements of layer types in format {}", format_version),
                  "measure anew with this build");
    }
    Measurements result{.cpu = document.at("cpu"),
                        .torch_version = document.at("torch"),
                        .threads = document.at("threads"),
                        .sizes = {.window = document.at("window"), .kernel = document.at("kernel")},
                        .list = {}};
    for (const auto& entry : document.at("measurements")) {
      const auto type = std::find_if(layer_types().begin(), layer_types().end(),
                                     [&](LayerType t) { return entry.at("layer") == describe(t).key; });
      if (type == layer_types().end()) {
        throw Error(where, fmt::format("unknown layer {}", entry.at("layer").dump()), "measure anew with this build");
      }
      result.list.push_back({.type = *type,
                             .batch = entry.at("batch"),
                             .n = entry.at("n"),
                             .d = entry.at("d"),
                             .milliseconds = entry.at("milliseconds"),
                             .fastest = entry.at("fastest"),
                             .slowest = entry.at("slowest"),
                             .samples = entry.at("samples"),
                             .flops = entry.at("flops")});
    }
    return result;
  } catch (const nlohmann::json::exception& error) {
    throw Error(where, fmt::format("not measurements of layer types: {}", error.what()));
  }
}

std::string markdown(const Measurements& measurements, int64_t fit_from, const std::string& time_picture,
                     const std::string& crossover_picture) {
  const auto ns = values_of(measurements, &Measurement::n);
  const auto ds = values_of(measurements, &Measurement::d);
  const auto batches = values_of(measurements, &Measurement::batch);
  const LayerSizes& sizes = measurements.sizes;
  std::string out;
  const auto add = [&]<typename... A>(fmt::format_string<A...> pattern, A&&... arguments) {
    fmt::format_to(std::back_inserter(out), pattern, std::forward<A>(arguments)...);
  };
  if (ns.empty()) return "# Table 1, measured\n\nNothing was measured.\n";
  int64_t fewest = measurements.list.front().samples;
  double spread = 0;
  for (const auto& m : measurements.list) {
    fewest = std::min(fewest, m.samples);
    spread = std::max(spread, m.slowest / m.fastest);
  }

  add("<!-- layer types, format {} -->\n# Table 1, measured\n\n", format_version);
  add("Forward and backward pass of one layer of width d on a sequence of n positions, float32, {} of {}, LibTorch {}; "
      "r = {}, k = {}. Medians of {} or more interleaved repetitions, of which the slowest took at most {:.1f} times "
      "as "
      "long as the fastest. Times are this machine's; ratios and exponents are what to read.\n\n",
      measurements.threads == 1 ? std::string("one thread") : fmt::format("{} threads", measurements.threads),
      measurements.cpu, measurements.torch_version, sizes.window, sizes.kernel, fewest, spread);

  add("## Exponents\n\nc · n^a · d^b fitted by least squares over the logarithms of all measurements with n ≥ {} and "
      "batch "
      "1, to the arithmetic (matrix products and convolutions, counted) and to the time. The table names the leading "
      "term alone; the projections around attention add 8nd² to it, so that the same fit to the arithmetic is what the "
      "time compares with. ± is the deviation of times from the fit.\n\n",
      grouped_number(fit_from));
  add("| layer | table | arithmetic | time | ± | sequential operations | maximum path | path at n = 1,024 |\n"
      "|---|---|---|---|---:|---|---|---:|\n");
  for (const LayerType type : layer_types()) {
    const auto time = fit(measurements, type, fit_from, &Measurement::milliseconds);
    const LayerDescription layer = describe(type);
    add("| {} | {} | {} | {} | {} | {} | {} | {} |\n", layer.name, layer.complexity,
        text_of(fit(measurements, type, fit_from, &Measurement::flops)), text_of(time),
        time ? fmt::format("{:.0f} %", 100 * std::expm1(time->residual)) : "", layer.sequential, layer.path,
        path_length(type, 1024, sizes));
  }

  const int64_t width = plotted_width(measurements);
  if (width > 0) {
    add("\n## Time over n\n\nAs multiples of self-attention's at the same n, d = {}, batch 1. An empty field was not "
        "measured: "
        "too long or too large.\n\n| layer |",
        width);
    for (const int64_t n : ns) add(" n = {} |", grouped_number(n));
    add("\n|---|");
    for (size_t i = 0; i < ns.size(); ++i) add("---:|");
    add("\n");
    for (const LayerType type : layer_types()) {
      add("| {} |", describe(type).name);
      for (const int64_t n : ns) {
        const Measurement* one = measurements.find(type, 1, n, width);
        const Measurement* attention = measurements.find(LayerType::self_attention, 1, n, width);
        if (one && attention) {
          add(" {:.2f} |", one->milliseconds / attention->milliseconds);
        } else {
          add(" |");
        }
      }
      add("\n");
    }
    add("\n![Time over n]({})\n", time_picture);
  }

  add("\n## Where self-attention stops being cheaper than recurrence\n\nThe n from which on self-attention, "
      "projections "
      "included, takes longer than a recurrent layer of the same width, interpolated between measured n. In arithmetic "
      "8nd² + 4n²d meets the LSTM's 16nd² at n = 2d and the GRU's 12nd² at n = d. Recurrence cannot use what a "
      "processor does at once for one sequence, so that its arithmetic is slower; more sequences side by side "
      "make up for part of that.\n\n| d | LSTM, arithmetic |");
  for (const int64_t batch : batches) add(" LSTM, batch {} |", batch);
  add(" GRU, arithmetic |");
  for (const int64_t batch : batches) add(" GRU, batch {} |", batch);
  add("\n|---:|---:|");
  for (size_t i = 0; i < 2 * batches.size(); ++i) add("---:|");
  add("---:|\n");
  for (const int64_t d : ds) {
    add("| {} |", grouped_number(d));
    for (const LayerType other : {LayerType::lstm, LayerType::gru}) {
      add(" {} |", grouped_number(std::lround(arithmetic_crossover(other, d))));
      for (const int64_t batch : batches) add(" {} |", text_of(find_crossover(measurements, other, batch, d)));
    }
    add("\n");
  }
  add("\n![Crossover]({})\n", crossover_picture);
  return out;
}

std::string time_plot(const Measurements& measurements) {
  const int64_t width = plotted_width(measurements);
  LinePlot plot;
  plot.title = fmt::format("Forward and backward pass, d = {}", width);
  plot.x = {.label = "n", .scale = Scale::binary, .lower = {}, .upper = {}};
  plot.y = {.label = "milliseconds", .scale = Scale::logarithmic, .lower = {}, .upper = {}};
  plot.width = 640;
  plot.height = 420;
  int64_t style = -1;  // self-attention, what the others are compared with, in ink
  for (const LayerType type : layer_types()) {
    PlotSeries series{.name = describe(type).name, .points = {}, .style = style++};
    for (const int64_t n : values_of(measurements, &Measurement::n)) {
      const Measurement* found = measurements.find(type, 1, n, width);
      if (!found) continue;
      series.points.push_back({.x = static_cast<double>(n),
                               .y = found->milliseconds,
                               .title = fmt::format("{}, n = {}: {:.4g} ms, {:.3g} GFLOP", series.name, n,
                                                    found->milliseconds, found->flops / 1e9),
                               .label = ""});
    }
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  }
  return line_plot(plot, SvgUse::standalone);
}

std::string crossover_plot(const Measurements& measurements) {
  LinePlot plot;
  plot.title = "Below its line self-attention is the cheaper layer";
  plot.x = {.label = "d", .scale = Scale::binary, .lower = {}, .upper = {}};
  plot.y = {.label = "n", .scale = Scale::binary, .lower = {}, .upper = {}};
  plot.width = 640;
  plot.height = 420;
  int64_t style = 0;
  for (const LayerType other : {LayerType::lstm, LayerType::gru}) {
    const std::string name = other == LayerType::lstm ? "LSTM" : "GRU";
    PlotSeries arithmetic{
        .name = fmt::format("{}, arithmetic", name), .points = {}, .markers = false, .style = style, .dashed = true};
    for (const int64_t d : values_of(measurements, &Measurement::d)) {
      arithmetic.points.push_back(
          {.x = static_cast<double>(d), .y = arithmetic_crossover(other, d), .title = "", .label = ""});
    }
    plot.series.push_back(std::move(arithmetic));
    for (const int64_t batch : values_of(measurements, &Measurement::batch)) {
      PlotSeries series{.name = fmt::format("{}, time, batch {}", name, batch), .points = {}, .style = style++};
      for (const int64_t d : values_of(measurements, &Measurement::d)) {
        const Crossover crossover = find_crossover(measurements, other, batch, d);
        if (crossover.kind != Crossover::Kind::at) continue;
        series.points.push_back({.x = static_cast<double>(d),
                                 .y = crossover.n,
                                 .title = fmt::format("{}, d = {}: n = {:.0f}", series.name, d, crossover.n),
                                 .label = ""});
      }
      if (!series.points.empty()) plot.series.push_back(std::move(series));
    }
  }
  return line_plot(plot, SvgUse::standalone);
}

}  // namespace transformer::benchmark
