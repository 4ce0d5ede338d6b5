// Restricted self-attention against full attention on a CPU, forward and backward: restricted_attention_benchmark
// [WINDOW [THREADS]] (64 and 1 where not given). Prints, for growing lengths, the greatest memory of tensors in each
// and what full attention's score matrix would hold, and how many times faster the window is (above 1: faster) than
// LibTorch's fused attention over all positions.

#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "benchmarks/benchmark.h"
#include "transformer/model/attention.h"
#include "transformer/model/tensor_memory.h"

namespace {

using torch::Tensor;

constexpr int64_t heads = 8, width = 64;

struct Inputs {
  Tensor query, key, value;
  explicit Inputs(int64_t length) : query(random(length)), key(random(length)), value(random(length)) {}

 private:
  static Tensor random(int64_t length) { return torch::randn({1, heads, length, width}).requires_grad_(); }
};

void run(const Inputs& in, int64_t window) {
  const auto values = transformer::attention(in.query, in.key, in.value, {.mask = {}, .window = window}).values;
  torch::autograd::grad({values}, {in.query, in.key, in.value}, {torch::ones_like(values)});
}

double seconds(const Inputs& inputs, int64_t window) {
  const auto start = std::chrono::steady_clock::now();
  run(inputs, window);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double megabytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

void measure(int64_t window) {
  fmt::print("batch 1, {} heads of {}, window {}, float32, forward and backward\n", heads, width, window);
  fmt::print("{:>8}{:>16}{:>16}{:>18}{:>10}\n", "length", "window MiB", "fused MiB", "score matrix MiB", "faster");
  for (const int64_t length : {512, 1024, 2048, 4096, 8192}) {
    const Inputs inputs(length);
    const auto restricted = transformer::peak_tensor_bytes([&] { run(inputs, window); });
    const auto full = transformer::peak_tensor_bytes([&] { run(inputs, 0); });
    std::vector<double> ratios;
    for (int repeat = 0; repeat < 3; ++repeat) ratios.push_back(seconds(inputs, 0) / seconds(inputs, window));
    std::sort(ratios.begin(), ratios.end());
    fmt::print("{:>8}{:>16.1f}{:>16.1f}{:>18.1f}{:>10.2f}\n", length, megabytes(restricted), megabytes(full),
               megabytes(int64_t{4} * heads * length * length), ratios[1]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace transformer;
  return run_benchmark(argc, argv, "Restricted self-attention against full attention on a CPU",
                       [](CLI::App& app, const auto& parse) {
                         int64_t window = 64;
                         int threads = 1;
                         app.add_option("WINDOW", window)->check(above_zero())->capture_default_str();
                         app.add_option("THREADS", threads)->check(thread_count())->capture_default_str();
                         parse();
                         at::set_num_threads(threads);
                         measure(window);
                       });
}
