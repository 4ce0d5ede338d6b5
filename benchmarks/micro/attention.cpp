// Forward and backward of attention as training on a CPU uses it, against LibTorch's scaled_dot_product_attention
// alone: attention_benchmark [THREADS]. Prints milliseconds of both and, last, their ratio (above 1: ours is faster).

#include "transformer/model/attention.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "benchmarks/benchmark.h"

namespace {

using torch::Tensor;

// Views of one joint projection, as the attention module makes them: [B, H, T, width].
struct Inputs {
  Tensor projected, query, key, value;
  Inputs(int64_t batch, int64_t heads, int64_t length, int64_t width, torch::ScalarType type)
      : projected(torch::randn({batch, length, 3 * heads * width}, torch::dtype(type)).requires_grad_()) {
    const auto parts = projected.chunk(3, -1);
    const auto split = [&](const Tensor& part) { return part.unflatten(-1, {heads, -1}).transpose(1, 2); };
    query = split(parts[0]);
    key = split(parts[1]);
    value = split(parts[2]);
  }
};

template <class Forward>
double milliseconds(const Inputs& inputs, Forward forward) {
  const auto start = std::chrono::steady_clock::now();
  const Tensor output = forward(inputs);
  torch::autograd::grad({output}, {inputs.projected}, {torch::ones_like(output)}, /*retain_graph=*/true);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure() {
  struct Shape {
    int64_t batch, heads, length, width;
  };
  fmt::print("{:<24}{:>10}{:>8}{:>12}{:>12}{:>9}\n", "[B, H, T, d]", "type", "mask", "stock ms", "ours ms", "ratio");
  for (const auto& [batch, heads, length, width] :
       {Shape{150, 4, 10, 32}, Shape{100, 4, 15, 32}, Shape{64, 8, 32, 64}, Shape{20, 8, 100, 64}}) {
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      for (const bool causal : {false, true}) {
        const Inputs inputs(batch, heads, length, width, type);
        const auto stock = [&](const Inputs& in) {
          return at::scaled_dot_product_attention(in.query, in.key, in.value, {}, 0.0, causal);
        };
        const auto ours = [&](const Inputs& in) {
          return transformer::attention(in.query, in.key, in.value, {.mask = {}, .causal = causal}).values;
        };
        std::vector<double> stock_times, our_times, ratios;
        for (int pair = 0; pair < 23; ++pair) {
          const double a = milliseconds(inputs, stock), b = milliseconds(inputs, ours);
          if (pair < 2) continue;  // warming up
          stock_times.push_back(a);
          our_times.push_back(b);
          ratios.push_back(a / b);
        }
        fmt::print("{:<24}{:>10}{:>8}{:>12.2f}{:>12.2f}{:>8.2f}x\n",
                   fmt::format("[{}, {}, {}, {}]", batch, heads, length, width),
                   type == torch::kFloat32 ? "float32" : "bf16", causal ? "causal" : "none", median(stock_times),
                   median(our_times), median(ratios));
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace transformer;
  return run_benchmark(argc, argv, "Attention in training on a CPU, against LibTorch's fused one",
                       [](CLI::App& app, const auto& parse) {
                         int threads = 1;
                         app.add_option("THREADS", threads)->check(thread_count())->capture_default_str();
                         parse();
                         at::set_num_threads(threads);
                         measure();
                       });
}
