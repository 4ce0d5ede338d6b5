// Table 1 of the paper, measured: forward and backward pass of self-attention, restricted self-attention, recurrent and
// convolutional layers of equal width. layer_types_benchmark --help. Nothing else may run beside it.

#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <tuple>
#include <vector>

#include "benchmarks/benchmark.h"
#include "benchmarks/table1.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/model/attention.h"
#include "transformer/model/tensor_memory.h"

namespace {

using namespace transformer;
using namespace transformer::benchmark;
using torch::Tensor;
using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int64_t> lengths = {128, 256, 512, 1024, 2048, 4096, 8192};
  std::vector<int64_t> widths = {64, 128, 256, 512};
  std::vector<int64_t> batches = {1, 8};
  LayerSizes sizes;
  int64_t threads = 1;
  double minutes = 7;
  double longest = 4;  // seconds
  double memory = 4;   // GiB
  int64_t fit_from = 1024;
  std::string output, from;
};

struct Case {
  LayerType type;
  int64_t batch, n, d;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "an unknown CPU";
}

// A layer's forward pass as a function of its input, and the parameters that the backward pass reaches.
struct Layer {
  std::function<Tensor(const Tensor&)> forward;
  std::vector<Tensor> parameters;
  std::vector<int64_t> input;  // its shape
};

// Head by head as in the paper's models: 64 wide.
int64_t heads_of(int64_t d) {
  return std::max<int64_t>(1, d / 64);
}

Layer make_layer(const Case& c, const LayerSizes& sizes) {
  const int64_t heads = heads_of(c.d);
  switch (c.type) {
    case LayerType::self_attention:
    case LayerType::restricted_self_attention: {
      MultiHeadAttention module(
          MultiHeadAttentionOptions{.d_model = c.d, .heads = heads, .d_k = c.d / heads, .d_v = c.d / heads});
      AttentionOptions call;
      if (c.type == LayerType::restricted_self_attention) call.window = sizes.window;
      return {[=](const Tensor& x) mutable { return module(x, x, x, call).values; },
              module->parameters(),
              {c.batch, c.n, c.d}};
    }
    case LayerType::attention_alone:
      return {[heads](const Tensor& x) {
                const Tensor split = x.unflatten(-1, {heads, -1}).transpose(1, 2);
                return attention(split, split, split).values;
              },
              {},
              {c.batch, c.n, c.d}};
    case LayerType::lstm: {
      torch::nn::LSTM module(torch::nn::LSTMOptions(c.d, c.d).batch_first(true));
      return {
          [=](const Tensor& x) mutable { return std::get<0>(module(x)); }, module->parameters(), {c.batch, c.n, c.d}};
    }
    case LayerType::gru: {
      torch::nn::GRU module(torch::nn::GRUOptions(c.d, c.d).batch_first(true));
      return {
          [=](const Tensor& x) mutable { return std::get<0>(module(x)); }, module->parameters(), {c.batch, c.n, c.d}};
    }
    case LayerType::convolution: {
      torch::nn::Conv1d module(torch::nn::Conv1dOptions(c.d, c.d, sizes.kernel).padding(sizes.kernel / 2));
      return {[=](const Tensor& x) mutable { return module(x); }, module->parameters(), {c.batch, c.d, c.n}};
    }
    case LayerType::separable_convolution: {
      torch::nn::Conv1d depth(
          torch::nn::Conv1dOptions(c.d, c.d, sizes.kernel).padding(sizes.kernel / 2).groups(c.d).bias(false));
      torch::nn::Conv1d point(torch::nn::Conv1dOptions(c.d, c.d, 1));
      std::vector<Tensor> parameters = depth->parameters();
      for (const Tensor& parameter : point->parameters()) parameters.push_back(parameter);
      return {[=](const Tensor& x) mutable { return point(depth(x)); }, parameters, {c.batch, c.d, c.n}};
    }
  }
  throw std::logic_error("a type of layer that is not made");
}

// An estimate on the high side of what one pass keeps: recurrent layers keep every step's gates.
double gibibytes(const Case& c) {
  const double input = static_cast<double>(c.batch * c.n * c.d) * sizeof(float);
  const bool recurrent = c.type == LayerType::lstm || c.type == LayerType::gru;
  return input * (recurrent ? 40 : 16) / (1 << 30);
}

// One case, ready to be repeated. Only one of them holds its tensors at a time.
class Runner {
 public:
  Runner(const Case& c, const LayerSizes& sizes) : layer_(make_layer(c, sizes)) {
    input_ = torch::randn(layer_.input).requires_grad_();
    inputs_ = layer_.parameters;
    inputs_.push_back(input_);
  }

  double seconds() {
    const auto start = Clock::now();
    const Tensor output = layer_.forward(input_);
    if (!gradient_.defined()) gradient_ = torch::ones_like(output);
    torch::autograd::grad({output}, inputs_, {gradient_});
    return seconds_since(start);
  }

 private:
  Layer layer_;
  Tensor input_, gradient_;
  std::vector<Tensor> inputs_;
};

// All cases by size, so that what is compared, the types of one size, runs one after the other.
std::vector<Case> all_cases(const Options& options) {
  std::vector<Case> cases;
  for (const int64_t n : options.lengths) {
    for (const int64_t d : options.widths) {
      for (const int64_t batch : options.batches) {
        for (const LayerType type : layer_types()) {
          // More sequences are there for the comparison with recurrence.
          const bool compared = type == LayerType::self_attention || type == LayerType::lstm || type == LayerType::gru;
          if (batch == 1 || compared) cases.push_back({type, batch, n, d});
        }
      }
    }
  }
  return cases;
}

Measurements measure(const Options& options) {
  Measurements result{.cpu = cpu_name(),
                      .torch_version = TORCH_VERSION,
                      .threads = options.threads,
                      .sizes = options.sizes,
                      .list = {}};
  const auto start = Clock::now();
  const double budget = 60 * options.minutes;

  // The first pass finds out what fits: an n whose time, extrapolated from the one before, is too long ends its type's
  // column. It also warms up, so that of its times only those count that are too long to be affected.
  struct Entry {
    Case c;
    double first;
    std::vector<double> times;
  };
  std::vector<Entry> entries;
  std::map<std::tuple<LayerType, int64_t, int64_t>, std::pair<double, double>> before;  // n and seconds
  std::map<std::tuple<LayerType, int64_t, int64_t>, bool> ended;
  for (const Case& c : all_cases(options)) {
    const auto column = std::tuple(c.type, c.batch, c.d);
    if (ended[column]) continue;
    double expected = 0;
    if (const auto found = before.find(column); found != before.end()) {
      const double growth = static_cast<double>(c.n) / found->second.first;
      const bool quadratic = c.type == LayerType::self_attention || c.type == LayerType::attention_alone;
      expected = found->second.second * (quadratic ? growth * growth : growth);
    }
    if (expected > options.longest || gibibytes(c) > options.memory || seconds_since(start) + expected > budget) {
      ended[column] = true;
      continue;
    }
    try {
      Runner runner(c, options.sizes);
      if (expected < 0.05) runner.seconds();  // the very first call of a kind prepares more than itself
      const double seconds = runner.seconds();
      before[column] = {static_cast<double>(c.n), seconds};
      entries.push_back({c, seconds, {}});
      if (seconds > 0.5) entries.back().times.push_back(seconds);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      ended[column] = true;
    }
  }
  std::cerr << fmt::format("{} cases, first pass {:.0f} s\n", entries.size(), seconds_since(start));

  // Whole passes while there is time; the last one leaves out what does not fit any more.
  for (int64_t pass = 1; seconds_since(start) < budget; ++pass) {
    bool any = false;
    for (Entry& entry : entries) {
      const auto repetitions = std::clamp<int64_t>(static_cast<int64_t>(0.05 / entry.first), 1, 10);
      if (seconds_since(start) + static_cast<double>(repetitions + 1) * entry.first > budget) continue;
      Runner runner(entry.c, options.sizes);
      if (entry.first < 0.05) runner.seconds();
      for (int64_t i = 0; i < repetitions; ++i) entry.times.push_back(runner.seconds());
      any = true;
    }
    if (!any) break;
    std::cerr << fmt::format("pass {}: {:.0f} of {:.0f} s\n", pass, seconds_since(start), budget);
  }

  for (const Entry& entry : entries) {
    const auto& [type, batch, n, d] = entry.c;
    const std::vector<double> times = entry.times.empty() ? std::vector{entry.first} : entry.times;
    result.list.push_back({.type = type,
                           .batch = batch,
                           .n = n,
                           .d = d,
                           .milliseconds = 1e3 * median(times),
                           .fastest = 1e3 * *std::min_element(times.begin(), times.end()),
                           .slowest = 1e3 * *std::max_element(times.begin(), times.end()),
                           .samples = static_cast<int64_t>(times.size()),
                           .flops = training_flops(type, batch, n, d, options.sizes)});
  }
  return result;
}

void run(const Options& options) {
  Measurements measurements;
  if (options.from.empty()) {
    at::set_num_threads(static_cast<int>(options.threads));
    torch::manual_seed(1);
    measurements = measure(options);
  } else {
    std::ifstream in(options.from);
    if (!in) throw Error(options.from, "cannot be read");
    std::stringstream text;
    text << in.rdbuf();
    measurements = parse_measurements(text.str(), options.from);
  }
  const std::string prefix = options.output.empty() ? "table1-cpu" : options.output;
  const std::string name = prefix.substr(prefix.find_last_of('/') + 1);
  const std::string report = markdown(measurements, options.fit_from, name + ".time.svg", name + ".crossover.svg");
  fmt::print("{}", report);
  if (options.output.empty()) return;
  if (options.from.empty()) write_atomically(prefix + ".json", to_json(measurements));
  write_atomically(prefix + ".md", report);
  write_atomically(prefix + ".time.svg", time_plot(measurements));
  write_atomically(prefix + ".crossover.svg", crossover_plot(measurements));
}

}  // namespace

int main(int argc, char** argv) {
  return run_benchmark(
      argc, argv, "Table 1 of the paper, measured: layers of equal width, forward and backward",
      [](CLI::App& app, const auto& parse) {
        Options options;
        app.add_option("--lengths", options.lengths, "n, ascending")
            ->delimiter(',')
            ->check(above_zero())
            ->capture_default_str();
        app.add_option("--widths", options.widths, "d, multiples of 64")
            ->delimiter(',')
            ->check(above_zero())
            ->capture_default_str();
        app.add_option("--batches", options.batches,
                       "sequences side by side; above 1 only what is compared with recurrence")
            ->delimiter(',')
            ->check(above_zero())
            ->capture_default_str();
        app.add_option("--window", options.sizes.window, "r of restricted self-attention")
            ->check(above_zero())
            ->capture_default_str();
        app.add_option("--kernel", options.sizes.kernel, "k of convolutions, odd")
            ->check(above_zero())
            ->capture_default_str();
        app.add_option("--threads", options.threads)->check(thread_count())->capture_default_str();
        app.add_option("--minutes", options.minutes, "for all measurements together")
            ->check(above_zero())
            ->capture_default_str();
        app.add_option("--longest", options.longest, "seconds that one pass may take")
            ->check(above_zero())
            ->capture_default_str();
        app.add_option("--memory", options.memory, "GiB that one pass may keep")
            ->check(above_zero())
            ->capture_default_str();
        app.add_option("--fit-from", options.fit_from, "the least n that exponents are fitted to")
            ->check(above_zero())
            ->capture_default_str();
        app.add_option("--output", options.output, "write OUTPUT.json, .md, .time.svg and .crossover.svg");
        app.add_option("--from", options.from, "report the measurements of this JSON file instead of measuring");
        parse();
        std::sort(options.lengths.begin(), options.lengths.end());
        for (const int64_t d : options.widths) {
          if (d % 64 != 0) throw Error("--widths", fmt::format("{} is not a multiple of 64", d), "choose one that is");
        }
        if (options.sizes.kernel % 2 == 0) throw Error("--kernel", "is even, expected an odd width");
        run(options);
      });
}
