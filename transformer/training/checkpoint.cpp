#include "transformer/training/checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/read_file.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;

constexpr int format_version = 1;
constexpr const char* partial_prefix = ".partial-step-";  // a checkpoint that is being written
constexpr const char* generator_name = "random.cpu";

fs::path checkpoint_directory(const fs::path& run) {
  return run / "checkpoints";
}

// One place lists Progress's fields; writing and reading follow from it.
template <class P, class Visitor>
void each_field(P& progress, Visitor&& visit) {
  visit("step", progress.step);
  visit("epoch", progress.epoch);
  visit("batch", progress.batch);
  visit("source_tokens", progress.source_tokens);
  visit("target_tokens", progress.target_tokens);
  visit("seconds", progress.seconds);
  visit("metrics_bytes", progress.metrics_bytes);
  visit("best_perplexity", progress.best_perplexity);
  visit("best_step", progress.best_step);
  visit("window_loss", progress.window_loss);
  visit("window_nll", progress.window_nll);
  visit("window_tokens", progress.window_tokens);
}

void sync_directory(const fs::path& directory) {
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

void write_model_directory(const fs::path& directory, const TensorMap& weights, const ModelFiles& files,
                           std::optional<torch::ScalarType> type) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw Failure(directory.string(), "cannot create the folder: " + error.message());
  write_weights(directory / "model.safetensors", weights, type);
  for (const auto& [name, content] : files) write_atomically(directory / name, content);
}

fs::path write_checkpoint(const fs::path& run, const Transformer& model, const Adam& adam, const Progress& progress,
                          const ModelFiles& files) {
  const fs::path final_name = checkpoint_directory(run) / fmt::format("step-{:08}", progress.step);
  const fs::path partial = checkpoint_directory(run) / fmt::format("{}{:08}", partial_prefix, progress.step);
  std::error_code error;
  fs::remove_all(partial, error);
  try {
    write_model_directory(partial, weights_of(*model), files);
    auto state = adam.state();
    state.emplace(generator_name, at::detail::getDefaultCPUGenerator().get_state());
    write_tensors(partial / "optimizer.safetensors", state, {{"format", "transformer-optimizer-1"}});
    nlohmann::ordered_json json{{"format", format_version}};
    each_field(progress, [&](const char* name, const auto& value) { json[name] = value; });
    write_atomically(partial / "progress.json", json.dump(2) + "\n");
    fs::remove_all(final_name, error);
    fs::rename(partial, final_name);
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(partial, error);
    throw Failure(final_name.string(), "cannot write the checkpoint: " + failure.code().message());
  } catch (...) {
    fs::remove_all(partial, error);
    throw;
  }
  sync_directory(checkpoint_directory(run));
  return final_name;
}

std::vector<fs::path> list_checkpoints(const fs::path& run) {
  std::vector<fs::path> checkpoints;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoint_directory(run), error)) {
    if (entry.path().filename().string().starts_with("step-")) checkpoints.push_back(entry.path());
  }
  std::sort(checkpoints.begin(), checkpoints.end());
  return checkpoints;
}

Progress load_checkpoint(const fs::path& checkpoint, Transformer& model, Adam& adam) {
  const fs::path file = checkpoint / "progress.json";
  Progress progress;
  try {
    const auto json = nlohmann::json::parse(read_file(file));
    if (json.at("format") != format_version) {
      throw Error(file.string(), "is of a format that this version does not know", "use the version that wrote it");
    }
    each_field(progress, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  } catch (const nlohmann::json::exception& bad) {
    throw Error(file.string(), fmt::format("is damaged ({})", bad.what()), "delete this checkpoint folder");
  }
  load_weights(*model, checkpoint / "model.safetensors");
  const auto optimizer_file = checkpoint / "optimizer.safetensors";
  const auto state = read_tensors(optimizer_file).tensors;
  adam.load(state, optimizer_file.string());
  const auto generator = state.find(generator_name);
  if (generator == state.end()) throw Error(optimizer_file.string(), "the random generator's state is missing");
  auto random = at::detail::getDefaultCPUGenerator();
  random.set_state(generator->second);
  return progress;
}

void prune_checkpoints(const fs::path& run, int64_t keep) {
  auto checkpoints = list_checkpoints(run);
  std::error_code error;
  for (int64_t i = 0; i + keep < static_cast<int64_t>(checkpoints.size()); ++i) fs::remove_all(checkpoints[i], error);
  for (const auto& entry : fs::directory_iterator(checkpoint_directory(run), error)) {
    if (entry.path().filename().string().starts_with(partial_prefix)) fs::remove_all(entry.path(), error);
  }
}

TensorMap average_weights(const std::vector<fs::path>& directories) {
  if (directories.empty()) throw Error("average", "there is nothing to average", "name at least one model directory");
  TensorMap sums;
  for (const auto& directory : directories) {
    const fs::path file = directory / "model.safetensors";
    const auto tensors = read_tensors(file).tensors;
    for (const auto& [name, tensor] : tensors) {
      auto [sum, first] = sums.try_emplace(name, tensor.to(at::kDouble));
      if (first && &directory != &directories.front()) {
        throw Error(file.string(),
                    fmt::format("'{}' is in this model but not in {}", name, directories.front().string()));
      }
      if (first) continue;
      if (sum->second.sizes() != tensor.sizes()) {
        throw Error(file.string(),
                    fmt::format("'{}' has another shape than in {}", name, directories.front().string()));
      }
      sum->second += tensor;
    }
    if (tensors.size() != sums.size()) {
      throw Error(file.string(), fmt::format("has fewer parameters than {}", directories.front().string()));
    }
  }
  for (auto& [name, sum] : sums) sum = (sum / static_cast<double>(directories.size())).to(at::kFloat);
  return sums;
}

}  // namespace transformer
