// Peak memory of a training step on a CPU: the paper's models, micro-batches of several sizes, with and without
// recomputed layers.
//
//     training_memory_benchmark [--models base,big] [--tokens 1024,4096,25000] [--length 32]
//
// Every step computes in a process of its own, forward and backward over one micro-batch of sentences of one length,
// with Adam's moments, in float32. Counted is the most resident memory of the whole process. A step that the machine
// has no memory for is left out, and says so.

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "benchmarks/benchmark.h"
#include "transformer/base/error.h"
#include "transformer/base/memory.h"
#include "transformer/model/tensor_memory.h"
#include "transformer/model/transformer.h"
#include "transformer/training/adam.h"
#include "transformer/training/label_smoothing_loss.h"

namespace {

using namespace transformer;

struct Result {
  int64_t parameters = 0, peak = 0;
  double seconds = 0;
};

ModelSettings settings_of(const std::string& model) {
  ModelSettings settings;  // base
  if (model == "big") {
    settings.d_model = 1024;
    settings.d_ff = 4096;
    settings.heads = 16;
    settings.dropout = 0.3;
  }
  return settings;
}

Result step(const std::string& name, int64_t tokens, int64_t length, bool recompute) {
  Transformer model(settings_of(name));
  model->train();
  model->set_recompute(recompute);
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  for (const auto& item : model->named_parameters()) parameters.emplace_back(item.key(), item.value());
  Adam adam(parameters, {});
  const auto ids = torch::randint(4, model->settings().vocabulary_size, {tokens / length, length}, torch::kLong);
  const auto begun = std::chrono::steady_clock::now();
  const auto hidden = model->decode(ids, model->encode(ids)).values;
  const auto sums = projected_label_smoothing_loss(hidden, model->projection_weight(), ids, 0.1,
                                                   TransformerImpl::padding_id, torch::kFloat32);
  (sums.loss / static_cast<double>(tokens)).backward();
  adam.step(1e-4);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  return {model->parameter_count(), peak_resident_bytes(), seconds.count()};
}

// Runs in a child; the parent has not used LibTorch, so no thread is lost in the fork. False: out of memory.
bool in_child(Result& result, const std::string& name, int64_t tokens, int64_t length, bool recompute) {
  void* shared = ::mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("no memory to share");
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      // Beyond this the system would rather kill something than refuse.
      const auto limit = static_cast<rlim_t>(address_bytes() + available_bytes());
      const rlimit addresses{limit, limit};
      ::setrlimit(RLIMIT_AS, &addresses);
      *static_cast<Result*>(shared) = step(name, tokens, length, recompute);
      _exit(0);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) fmt::print(stderr, "{}\n", error.what());
      _exit(1);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  result = *static_cast<Result*>(shared);
  ::munmap(shared, sizeof(Result));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void measure(const std::vector<std::string>& models, const std::vector<int64_t>& sizes, int64_t length) {
  fmt::print("sentences of {} tokens, float32, {:.1f} GiB available\n\n", length,
             static_cast<double>(available_bytes()) / (1 << 30));
  fmt::print("| model | tokens | layers recomputed | peak memory, GiB | step, relative to not recomputed |\n");
  fmt::print("|---|---|---|---|---|\n");
  for (const auto& model : models) {
    for (const int64_t tokens : sizes) {
      double kept_seconds = 0;
      for (const bool recompute : {false, true}) {
        Result result;
        const bool done = in_child(result, model, tokens, length, recompute);
        const auto ratio =
            recompute && done && kept_seconds > 0 ? fmt::format("{:.2f}", result.seconds / kept_seconds) : "";
        if (!recompute && done) kept_seconds = result.seconds;
        const auto peak = done ? fmt::format("{:.2f}", static_cast<double>(result.peak) / (1 << 30))
                               : std::string("more than there is");
        fmt::print("| {} | {} | {} | {} | {} |\n", model, tokens, recompute ? "yes" : "no", peak, ratio);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_benchmark(argc, argv, "Peak memory of a training step", [](CLI::App& app, const auto& parse) {
    std::vector<std::string> models{"base", "big"};
    std::vector<int64_t> sizes{1024, 4096, 25000};
    int64_t length = 32;
    app.add_option("--models", models, "base, big")->delimiter(',')->check(CLI::IsMember({"base", "big"}));
    app.add_option("--tokens", sizes, "Sizes of micro-batches, source and target tokens each")
        ->delimiter(',')
        ->check(above_zero());
    app.add_option("--length", length, "Tokens of a sentence")->check(above_zero());
    parse();
    for (const int64_t tokens : sizes) {
      if (tokens < length) throw Error("--tokens", fmt::format("{} is less than a sentence of {}", tokens, length));
    }
    measure(models, sizes, length);
  });
}
