#include "transformer/training/average.h"

#include <fmt/format.h>

#include <set>
#include <system_error>

#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/weights.h"
#include "transformer/base/checksum.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/read_file.h"
#include "transformer/base/run_files.h"
#include "transformer/model/transformer.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/run_folder.h"

namespace transformer {

namespace fs = std::filesystem;

namespace {

void check_any(const std::vector<fs::path>& directories) {
  if (directories.empty()) throw Error("average", "there is nothing to average", "name at least one model directory");
}

}  // namespace

TensorMap average_weights(const std::vector<fs::path>& directories) {
  check_any(directories);
  TensorMap sums;
  for (const auto& directory : directories) {
    verify_model_directory(directory);
    if (computing_settings_text(read_model_settings(directory)) !=
        computing_settings_text(read_model_settings(directories.front()))) {
      throw Error(directory.string(),
                  fmt::format("its model has other settings than that of {}", directories.front().string()),
                  "only models of one run, or started from one model, have a mean that makes sense");
    }
    const fs::path file = directory / weights_name;
    stored_weights(file);  // throws for those that are good for decoding alone
    const auto tensors = read_tensors(file).tensors;
    for (const auto& [name, tensor] : tensors) {
      check_finite(file.string(), name, tensor);
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

std::vector<fs::path> write_average(const AverageOptions& options) {
  auto directories = options.inputs;
  check_any(directories);
  if (options.last > 0) {
    if (directories.size() != 1) {
      throw Error("--last", fmt::format("{} folders are named", directories.size()), "name one run, or leave it out");
    }
    const auto run = directories.front();
    std::error_code refused;
    if (!fs::is_directory(run, refused)) throw Error(run.string(), "is not a folder", "name a run, as train writes it");
    directories = counted_checkpoints(run, options.last);
    const int64_t count = std::ssize(directories), others = std::ssize(list_checkpoints(run)) - count;
    if (count < options.last) {
      const auto besides = others > 0 ? fmt::format(", besides {} of validations among the best", others) : "";
      throw Error(run.string(), fmt::format("has {}{}, not {}", counted(count, "checkpoint"), besides, options.last),
                  count == 0   ? "name a folder that train has written"
                  : others > 0 ? "average fewer, or name the checkpoints' folders without --last"
                               : "average fewer, or train with a larger training.keep_checkpoints");
    }
  }
  if (something_at(options.output / weights_name)) {
    throw Error(options.output.string(), "holds a model already", "choose another folder for the average");
  }
  entries_of(options.output);  // throws where it is no folder
  for (const auto& directory : directories) check_model_directory(directory);
  ModelFiles files;
  for (const auto& name : model_file_names(directories.front())) {
    files.contents.emplace_back(name, read_file(directories.front() / name));
    if (name == config_name) continue;
    for (const auto& other : directories) {
      if (!something_at(other / name) || read_file(other / name) != files.contents.back().second) {
        for (const auto& damaged : {directories.front(), other}) verify_model_directory(damaged);
        throw Error(other.string(),
                    fmt::format("its vocabulary ({}) is not that of {}", name, directories.front().string()),
                    "only models of one run, or started from one model, have a mean that makes sense");
      }
    }
  }
  // What a killed process left of the same average is in nobody's way.
  const auto is_there = [&](const std::string& name, const std::string& content) {
    const auto file = options.output / name;
    std::error_code none;
    return fs::is_regular_file(file, none) && fs::file_size(file, none) == content.size() && read_file(file) == content;
  };
  const auto refuse = [&](const std::string& name) {
    throw Error((options.output / name).string(), "is in the way of the averaged model",
                "choose another folder for the average");
  };
  std::set<std::string> left;
  for (const auto& [name, content] : files.contents) {
    if (is_there(name, content)) left.insert(name);
  }
  if (left.size() == files.contents.size()) left.insert(checksums_name);  // compared when they are known
  // A run's vocabularies and the name of its record, too: a folder of another model or run is no place for a second.
  std::vector<std::string> in_the_way(model_names.begin(), model_names.end());
  in_the_way.insert(in_the_way.end(), {checksums_name, RunFolder::record_name, checkpoints_name});
  for (const auto& name : in_the_way) {
    if (something_at(options.output / name) && !left.contains(name)) refuse(name);
  }
  files.provenance = provenance(directories.front());
  const auto weights = average_weights(directories);
  const auto type = options.bf16 ? at::kBFloat16 : at::kFloat;
  const bool is_new = !something_at(options.output);
  NewFolder folder(is_new ? folder_path(options.output) : options.output / ".average");
  write_model_directory(folder.path(), weights, files, type);
  if (is_new) {
    folder.commit(/*replaces=*/false);
    return directories;
  }
  if (const auto list = read_file(folder.path() / checksums_name);
      something_at(options.output / checksums_name) && !is_there(checksums_name, list)) {
    refuse(checksums_name);
  }
  // The weights come last, which make it a model.
  std::vector<std::string> names;
  for (const auto& file : files.contents) names.push_back(file.first);
  names.insert(names.end(), {checksums_name, weights_name});
  for (const auto& name : names) {
    std::error_code error;
    fs::rename(folder.path() / name, options.output / name, error);
    if (error) throw Failure((options.output / name).string(), "cannot be written: " + error.message());
  }
  sync_folder(options.output);
  return directories;
}

}  // namespace transformer
