// Matrix products of training, by every set of own kernels and by LibTorch, taking turns: products_benchmark [THREADS].
// Prints GFLOP/s of each and, last, the fastest kernels' ratio to LibTorch (above 1: ours are faster).

#include "transformer/model/fused/products.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "benchmarks/benchmark.h"
#include "transformer/kernels/product_kernels.h"

namespace {

using namespace transformer;
using torch::Tensor;

double seconds(const ProductKernels* kernels, const Tensor& a, const Tensor& b) {
  choose_product_kernels(kernels);
  const auto start = std::chrono::steady_clock::now();
  product(a, b);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Layer {
  const char* name;
  int64_t rows, inputs, outputs;
};

// Of the models in benchmarks/peers/bench_train.py: the feed-forward network's layers, attention's output, and a chunk
// of the vocabulary's projection.
constexpr Layer layers[] = {{"tiny, inner", 2048, 128, 512},     {"small, inner", 2048, 256, 1024},
                            {"base, attention", 2048, 512, 512}, {"base, inner", 2048, 512, 2048},
                            {"base, outer", 2048, 2048, 512},    {"base, V 8,000", 524, 512, 8000},
                            {"base, V 37,000", 512, 512, 37000}};

void measure() {
  auto ways = runnable_product_kernels();
  ways.insert(ways.begin(), nullptr);
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    const bool in_float = type == torch::kFloat32;
    fmt::print("{:<18}{:<24}", in_float ? "float32" : "bf16", "GFLOP/s:");
    std::vector<const ProductKernels*> kernels;
    for (const auto* way : ways) {
      if (way && !(in_float ? way->in_float != nullptr : way->bf16_into_bf16 != nullptr)) continue;
      kernels.push_back(way);
      fmt::print("{:>14}", way ? way->name : "LibTorch");
    }
    fmt::print("{:>9}\n", "ratio");
    double product_of_ratios = 1;
    int count = 0;
    for (const auto& [name, rows, inputs, outputs] : layers) {
      const auto x = torch::randn({rows, inputs}).to(type), weight = torch::randn({outputs, inputs}).to(type),
                 gradient = torch::randn({rows, outputs}).to(type);
      struct Form {
        const char* name;
        Tensor a, b;
      };
      for (const auto& form : {Form{"forward", x, weight.t()}, Form{"gradient of input", gradient, weight},
                               Form{"gradient of weight", gradient.t(), x}}) {
        std::vector<std::vector<double>> times(kernels.size());
        for (int round = 0; round < 12; ++round) {
          for (size_t i = 0; i < kernels.size(); ++i) {
            const double time = seconds(kernels[i], form.a, form.b);
            if (round > 0) times[i].push_back(time);
          }
        }
        std::vector<double> ratios;
        for (size_t i = 0; i < times[0].size(); ++i) ratios.push_back(times[0][i] / times[1][i]);
        fmt::print("{:<18}{:<24}", name, form.name);
        const double work =
            2e-9 * static_cast<double>(rows) * static_cast<double>(inputs) * static_cast<double>(outputs);
        for (const auto& values : times) fmt::print("{:>14.1f}", work / median(values));
        fmt::print("{:>8.2f}x\n", median(ratios));
        product_of_ratios *= median(ratios);
        ++count;
      }
    }
    fmt::print("{:<18}{:<24}{:>{}}{:>8.2f}x\n", "", "geometric mean", "", 14 * kernels.size(),
               std::pow(product_of_ratios, 1.0 / count));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_benchmark(argc, argv, "Matrix products of training, by every set of own kernels and by LibTorch",
                       [](CLI::App& app, const auto& parse) {
                         int threads = 1;
                         app.add_option("THREADS", threads)->check(thread_count())->capture_default_str();
                         parse();
                         at::set_num_threads(threads);
                         measure();
                       });
}
