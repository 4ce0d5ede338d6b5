#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "transformer/serving/http.h"

namespace transformer {

/// What a server did since it began, in Prometheus' text format (version 0.0.4). Any thread may tell and ask.
class ServingMetrics {
 public:
  /// `route`: the path where there is one, so that strangers cannot make up labels.
  void count(const std::string& route, const HttpRecord& record);
  /// A model's engine was given a sentence, and has so many now.
  void count_running(const std::string& model, size_t running);

  /// A value of this moment; labels as in {model="a"}, or none.
  struct Gauge {
    std::string name, meaning, labels;  // as Prometheus has them; the meaning becomes its HELP
    double value;                       // now
    bool counts = false;                // whether it only grows
  };
  /// All of it, behind `gauges`, of which those of one name are neighbours.
  std::string text(const std::vector<Gauge>& gauges) const;

  /// NAME="VALUE", the value, in UTF-8, escaped.
  static std::string label(std::string_view name, std::string_view value);

 private:
  template <size_t N>
  struct Histogram {
    std::array<int64_t, N + 1> counts{};  // the last: more than all bounds
    double sum = 0;
  };
  struct OfModel {
    int64_t lines = 0, source_tokens = 0, output_tokens = 0;
    Histogram<10> running;
  };

  static constexpr std::array<double, 14> seconds_ = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                      0.25,  0.5,    1,     2.5,  5,     10,   30};
  static constexpr std::array<double, 10> sizes_ = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

  template <size_t N>
  static void observe(Histogram<N>& histogram, const std::array<double, N>& bounds, double value);
  template <size_t N>
  static void write(std::string& text, const std::string& name, const std::string& labels,
                    const Histogram<N>& histogram, const std::array<double, N>& bounds);

  mutable std::mutex mutex_;
  std::map<std::tuple<std::string, int, std::string>, int64_t> requests_;  // by route, status, model
  std::map<std::string, Histogram<14>> latencies_;                         // by route
  std::map<std::string, OfModel> models_;
};

}  // namespace transformer
