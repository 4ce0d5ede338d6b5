#include "transformer/serving/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace transformer {

std::string ServingMetrics::label(std::string_view name, std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return fmt::format("{}=\"{}\"", name, escaped);
}

template <size_t N>
void ServingMetrics::observe(Histogram<N>& histogram, const std::array<double, N>& bounds, double value) {
  ++histogram.counts[static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin())];
  histogram.sum += value;
}

template <size_t N>
void ServingMetrics::write(std::string& text, const std::string& name, const std::string& labels,
                           const Histogram<N>& histogram, const std::array<double, N>& bounds) {
  int64_t total = 0;
  auto out = std::back_inserter(text);
  for (size_t i = 0; i <= N; ++i) {
    total += histogram.counts[i];
    const auto bound = i < N ? fmt::format("{}", bounds[i]) : "+Inf";
    fmt::format_to(out, "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, total);
  }
  fmt::format_to(out, "{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels, histogram.sum, total);
}

void ServingMetrics::count(const std::string& route, const HttpRecord& record) {
  const std::lock_guard lock(mutex_);
  ++requests_[{route, record.status, record.served.model}];
  if (record.is_whole) observe(latencies_[route], seconds_, record.seconds);
  if (record.served.model.empty()) return;
  auto& model = models_[record.served.model];
  model.lines += record.served.lines;
  model.source_tokens += record.served.source_tokens;
  model.output_tokens += record.served.output_tokens;
}

void ServingMetrics::count_running(const std::string& model, size_t running) {
  const std::lock_guard lock(mutex_);
  observe(models_[model].running, sizes_, static_cast<double>(running));
}

std::string ServingMetrics::text(const std::vector<Gauge>& gauges) const {
  std::string text;
  auto out = std::back_inserter(text);
  const auto head = [&](const std::string& name, const char* type, const std::string& meaning) {
    fmt::format_to(out, "# HELP {0} {1}\n# TYPE {0} {2}\n", name, meaning, type);
  };
  std::string last;
  for (const auto& gauge : gauges) {
    if (gauge.name != last) head(gauge.name, gauge.counts ? "counter" : "gauge", gauge.meaning);
    last = gauge.name;
    fmt::format_to(out, "{}{} {}\n", gauge.name, gauge.labels.empty() ? "" : "{" + gauge.labels + "}", gauge.value);
  }

  const std::lock_guard lock(mutex_);
  head("transformer_requests_total", "counter", "Requests, by path, status (499: the client left) and model.");
  for (const auto& [key, count] : requests_) {
    const auto& [route, status, model] = key;
    fmt::format_to(out, "transformer_requests_total{{{},code=\"{}\",{}}} {}\n", label("route", route), status,
                   label("model", model), count);
  }
  head("transformer_request_seconds", "histogram",
       "From a request's last byte until its answer was handed over, of those that came whole.");
  for (const auto& [route, histogram] : latencies_) {
    write(text, "transformer_request_seconds", label("route", route), histogram, seconds_);
  }
  const auto counter = [&](const char* name, const char* meaning, int64_t OfModel::*member) {
    head(name, "counter", meaning);
    for (const auto& [model, counts] : models_) {
      fmt::format_to(out, "{}{{{}}} {}\n", name, label("model", model), counts.*member);
    }
  };
  counter("transformer_lines_total", "Lines of text that were translated, or scored.", &OfModel::lines);
  counter("transformer_source_tokens_total", "Word pieces that were read.", &OfModel::source_tokens);
  counter("transformer_output_tokens_total", "Word pieces of the best translations.", &OfModel::output_tokens);
  head("transformer_batch_sentences", "histogram", "Sentences that a model's workers have as they are given another.");
  for (const auto& [model, counts] : models_) {
    write(text, "transformer_batch_sentences", label("model", model), counts.running, sizes_);
  }
  return text;
}

}  // namespace transformer
