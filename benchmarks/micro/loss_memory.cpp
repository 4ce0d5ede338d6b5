// Peak memory of the label-smoothing loss with its gradient on a CPU: over whole logits, and in chunks.
//
//     loss_memory_benchmark [TOKENS [VOCABULARY [D_MODEL]]]        25,000 37,000 512 where not given
//
// Each computes in a process of its own: memory that one left behind would hide what the other needs. Counted is the
// most resident memory while loss and gradients are computed, less what was resident before: inputs and libraries.

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "benchmarks/benchmark.h"
#include "transformer/base/memory.h"
#include "transformer/training/label_smoothing_loss.h"

namespace {

using torch::Tensor;

struct Sizes {
  int64_t tokens = 25000, vocabulary = 37000, d_model = 512;
};

// What a child hands to its parent: three numbers, then the gradients of hidden states and weight.
struct Result {
  double* numbers = nullptr;   // peak bytes, loss, negative log-likelihood
  float* gradients = nullptr;  // [tokens + vocabulary, d_model]

  explicit Result(const Sizes& sizes) {
    const size_t bytes = 3 * sizeof(double) + (sizes.tokens + sizes.vocabulary) * sizes.d_model * sizeof(float);
    void* shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw std::runtime_error("no memory to share");
    numbers = static_cast<double*>(shared);
    gradients = reinterpret_cast<float*>(numbers + 3);
  }
};

struct Inputs {
  Tensor hidden, weight, targets;
  explicit Inputs(const Sizes& sizes)
      : hidden(torch::randn({sizes.tokens, sizes.d_model}).requires_grad_()),
        weight((torch::randn({sizes.vocabulary, sizes.d_model}) / 8).requires_grad_()),
        targets(torch::randint(1, sizes.vocabulary, {sizes.tokens}, torch::kLong)) {}
};

constexpr double smoothing = 0.1;
constexpr int64_t padding = 0;

transformer::LossSums plain(const Inputs& in) {
  return transformer::label_smoothing_loss(in.hidden.matmul(in.weight.t()), in.targets, smoothing, padding);
}

transformer::LossSums chunked(const Inputs& in) {
  return transformer::projected_label_smoothing_loss(in.hidden, in.weight, in.targets, smoothing, padding,
                                                     torch::kFloat32);
}

template <class Loss>
void measure(const Sizes& sizes, const Loss& loss, const Result& result) {
  {
    torch::manual_seed(2);
    const Inputs small({64, 128, sizes.d_model});  // so that what libraries set up once is resident before
    loss(small).loss.backward();
  }
  torch::manual_seed(1);
  const Inputs inputs(sizes);
  const auto before = transformer::resident_bytes();
  transformer::reset_peak_resident_bytes();
  const auto sums = loss(inputs);
  sums.loss.backward();
  result.numbers[0] = static_cast<double>(transformer::peak_resident_bytes() - before);
  result.numbers[1] = sums.loss.template item<double>();
  result.numbers[2] = sums.negative_log_likelihood.template item<double>();
  const auto hidden = inputs.hidden.grad().contiguous(), weight = inputs.weight.grad().contiguous();
  std::copy_n(hidden.const_data_ptr<float>(), hidden.numel(), result.gradients);
  std::copy_n(weight.const_data_ptr<float>(), weight.numel(), result.gradients + hidden.numel());
}

// Runs in a child. The parent has not used LibTorch yet, so no thread is lost in the fork.
template <class Loss>
Result in_child(const Sizes& sizes, const std::string& name, const Loss& loss) {
  const Result result(sizes);
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      measure(sizes, loss, result);
      status = 0;
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}: {}\n", name, error.what());
    }
    ::_exit(status);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error(name + " did not finish; is there too little memory?");
  }
  fmt::print("{:<30}{:>9.2f} GiB{:>18.2f}\n", name, result.numbers[0] / (1 << 30), result.numbers[1]);
  std::fflush(stdout);
  return result;
}

double greatest_difference(const float* a, const float* b, int64_t count) {
  double greatest = 0;
  for (int64_t i = 0; i < count; ++i) greatest = std::max(greatest, std::abs(double{a[i]} - double{b[i]}));
  return greatest;
}

double greatest(const float* a, int64_t count) {
  double found = 0;
  for (int64_t i = 0; i < count; ++i) found = std::max(found, std::abs(double{a[i]}));
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  return transformer::run_benchmark(
      argc, argv, "Peak memory of the label-smoothing loss with its gradient on a CPU",
      [](CLI::App& app, const auto& parse) {
        Sizes sizes;
        app.add_option("TOKENS", sizes.tokens)->check(transformer::above_zero())->capture_default_str();
        app.add_option("VOCABULARY", sizes.vocabulary)->check(CLI::Range(2, 10'000'000))->capture_default_str();
        app.add_option("D_MODEL", sizes.d_model)->check(transformer::above_zero())->capture_default_str();
        parse();
        fmt::print("{} tokens, vocabulary {}, d_model {}, float32; the logits are {:.2f} GiB\n", sizes.tokens,
                   sizes.vocabulary, sizes.d_model, 4.0 * sizes.tokens * sizes.vocabulary / (1 << 30));
        fmt::print("{:<30}{:>13}{:>18}\n", "", "peak", "loss");
        const auto chunks = in_child(sizes, "projected, in chunks", chunked);
        const auto whole = in_child(sizes, "over whole logits", plain);
        fmt::print("ratio {:.1f}\n", whole.numbers[0] / chunks.numbers[0]);

        const int64_t hidden = sizes.tokens * sizes.d_model, weight = sizes.vocabulary * sizes.d_model;
        fmt::print(
            "greatest difference: loss {:.1e} of itself, hidden states' gradient {:.1e} (greatest value {:.1e}), "
            "weight's {:.1e} ({:.1e})\n",
            std::abs(whole.numbers[1] - chunks.numbers[1]) / std::abs(whole.numbers[1]),
            greatest_difference(whole.gradients, chunks.gradients, hidden), greatest(whole.gradients, hidden),
            greatest_difference(whole.gradients + hidden, chunks.gradients + hidden, weight),
            greatest(whole.gradients + hidden, weight));
      });
}
