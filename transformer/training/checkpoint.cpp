#include "transformer/training/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "transformer/architecture/model_directory.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/json_number.h"
#include "transformer/base/model_files.h"
#include "transformer/base/read_file.h"
#include "transformer/base/run_files.h"
#include "transformer/base/unicode.h"
#include "transformer/base/unreadable.h"
#include "transformer/model/named_parameters.h"
#include "transformer/model/positional_encoding.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;

constexpr int format_version = 1;
constexpr const char* progress_name = "progress.json";
constexpr const char* optimizer_name = "optimizer.safetensors";
constexpr const char* damaged_prefix = "damaged-";  // before all of that
constexpr const char* partial_prefix = ".partial-";
constexpr const char* raw_weight_prefix = "weight.";  // in optimizer.safetensors, where the model is the average
constexpr const char* buffer_prefix = "buffer.";      // there, too
constexpr std::string_view state_prefix = "state.";   // before what an optimizer calls its own by one of these

fs::path checkpoint_directory(const fs::path& run) {
  return run / checkpoints_name;
}

/// What the optimizer's `name` is called in optimizer.safetensors, where there is more than its own.
std::string name_in_file(const std::string& name) {
  const bool taken =
      name.starts_with(raw_weight_prefix) || name.starts_with(buffer_prefix) || name.starts_with(state_prefix);
  return taken ? std::string(state_prefix) + name : name;
}

// One place lists Progress's fields; writing and reading follow from it.
template <class P, class Visitor>
void each_field(P& progress, Visitor&& visit) {
  visit("step", progress.step);
  visit("epoch", progress.epoch);
  visit("batch", progress.batch);
  visit("batch_tokens", progress.batch_tokens);
  visit("batch_state", progress.batch_state);
  visit("of_the_end", progress.of_the_end);
  visit("micro_batch_tokens", progress.micro_batch_tokens);
  visit("micro_batch_costs", progress.micro_batch_costs);
  visit("source_tokens", progress.source_tokens);
  visit("target_tokens", progress.target_tokens);
  visit("flops", progress.flops);
  visit("seconds", progress.seconds);
  visit("process_seconds", progress.process_seconds);
  visit("metrics_bytes", progress.metrics_bytes);
  visit("best", progress.best);
  visit("validations_since_best", progress.validations_since_best);
  visit("for_validation", progress.for_validation);
  visit("validation_due", progress.validation_due);
  visit("judged_by", progress.judged_by);
  visit("products", progress.products);
  visit("window_loss", progress.window_loss);
  visit("window_nll", progress.window_nll);
  visit("window_tokens", progress.window_tokens);
  visit("window_gradient_norm", progress.window_gradient_norm);
  visit("window_largest_norm", progress.window_largest_norm);
  visit("window_steps", progress.window_steps);
}

// What a model learns beside its parameters, as batch normalization does its means. Tables of sinusoids are made anew.
TensorMap buffers_of(const torch::nn::Module& model) {
  TensorMap buffers;
  const auto add = [&](const std::string& path, const torch::nn::Module& module) {
    if (dynamic_cast<const PositionalEncodingImpl*>(&module)) return;
    for (const auto& item : module.named_buffers(/*recurse=*/false)) {
      buffers.emplace(buffer_prefix + path + item.key(), item.value());
    }
  };
  add("", model);
  for (const auto& item : model.named_modules("", /*include_self=*/false)) add(item.key() + ".", *item.value());
  return buffers;
}

// JSON's texts are UTF-8, and a source's state may be any bytes: the numbers of these then.
void write_bytes(nlohmann::ordered_json& json, const std::string& bytes) {
  if (find_broken_utf8(bytes) == std::string::npos) {
    json = bytes;
  } else {
    json = std::vector<uint8_t>(bytes.begin(), bytes.end());
  }
}

std::string read_bytes(const nlohmann::json& json) {
  if (json.is_string()) return json.get<std::string>();
  std::string bytes;
  for (const auto& byte : json) bytes += static_cast<char>(whole_number_of(byte));
  return bytes;
}

std::set<std::string> files_of(const fs::path& checkpoint) {
  auto names = checksummed_names(checkpoint);
  names.insert(model_names.begin(), model_names.end());
  names.insert({optimizer_name, progress_name, checksums_name});
  return names;
}

// One that cannot be looked at may be one: whoever is to read it says so.
bool may_hold_checkpoint(const fs::path& folder) {
  try {
    return holds_checkpoint(folder);
  } catch (const Failure&) {
    return true;
  }
}

// Checkpoints with names that `wanted` takes, oldest first. A folder that cannot be read is no empty one.
template <class Wanted>
std::vector<fs::path> list(const fs::path& run, const Wanted& wanted) {
  std::vector<fs::path> checkpoints;
  for (const auto& entry : entries_of(checkpoint_directory(run))) {
    const auto name = parse_checkpoint_name(entry.filename().string());
    if (!name || !wanted(*name)) continue;
    if (name->state != CheckpointName::State::whole || may_hold_checkpoint(entry)) checkpoints.push_back(entry);
  }
  std::sort(checkpoints.begin(), checkpoints.end(), [](const fs::path& a, const fs::path& b) {
    return std::pair(checkpoint_step(a), a) < std::pair(checkpoint_step(b), b);
  });
  return checkpoints;
}

std::vector<fs::path> list_whole(const fs::path& run, CheckpointKind kind) {
  return list(
      run, [&](const CheckpointName& name) { return name.state == CheckpointName::State::whole && name.kind == kind; });
}

// Takes a checkpoint's name away before its files, so that a killed process leaves none that is half deleted.
void discard(const fs::path& checkpoint) {
  std::error_code error;
  if (!strange_entries_of(checkpoint).empty()) {
    remove_checkpoint(checkpoint);
    return;
  }
  const auto partial = checkpoint.parent_path() / (partial_prefix + checkpoint.filename().string());
  fs::rename(checkpoint, partial, error);
  fs::remove_all(error ? checkpoint : partial, error);
}

// Gives a checkpoint that cannot be used a name of its own; one that was set aside before keeps its.
void set_aside_damaged(const fs::path& checkpoint) {
  const auto name = damaged_prefix + checkpoint.filename().string();
  auto aside = checkpoint.parent_path() / name;
  for (int number = 2; something_at(aside); ++number) {
    aside = checkpoint.parent_path() / fmt::format("{}-{}", name, number);
  }
  std::error_code error;
  fs::rename(checkpoint, aside, error);
  if (error) throw Failure(checkpoint.string(), "is damaged and cannot be renamed: " + error.message());
}

Progress read_progress(const fs::path& file) {
  Progress progress;
  try {
    const auto json = nlohmann::json::parse(read_file(file));
    if (json.at("format") != format_version) {
      throw Error(file.string(), "is of a format that this version does not know", "use the version that wrote it");
    }
    each_field(progress, [&](const char* name, auto& value) {
      // Not in the checkpoints of version 0.1's first builds.
      static const std::set<std::string_view> newer = {
          "batch_state",        "batch_tokens",   "of_the_end",           "judged_by",           "products",
          "micro_batch_tokens", "window_steps",   "window_gradient_norm", "window_largest_norm", "validation_due",
          "process_seconds",    "for_validation", "micro_batch_costs"};
      if (newer.contains(name) && !json.contains(name)) return;
      if constexpr (std::is_same_v<decltype(value), int64_t&>) {
        value = whole_number_of(json.at(name));
      } else if constexpr (std::is_same_v<decltype(value), std::string&>) {
        value = read_bytes(json.at(name));
      } else {
        json.at(name).get_to(value);
      }
    });
  } catch (const nlohmann::json::exception&) {
    throw Error(file.string(), "is damaged: it does not say where a run stands, or not as JSON");
  }
  return progress;
}

}  // namespace

// Found by name lookup from nlohmann's templates, so not in the anonymous namespace.
static void to_json(nlohmann::ordered_json& json, const BestValidation& best) {
  json = {{"step", best.step}, {"value", best.value}};
}

static void from_json(const nlohmann::json& json, BestValidation& best) {
  best.step = whole_number_of(json.at("step"));
  json.at("value").get_to(best.value);
}

std::vector<std::string> model_file_names(const fs::path& directory) {
  std::vector<std::string> names;
  for (const char* name : {config_name, vocabulary_name, source_vocabulary_name, target_vocabulary_name}) {
    if (something_at(directory / name)) names.emplace_back(name);
  }
  if (names.size() < 2 || names.front() != config_name) {
    throw Error(directory.string(),
                fmt::format("is not a model directory: {} is missing",
                            names.empty() || names.front() != config_name ? config_name : "its vocabulary"),
                "name a folder that train has written");
  }
  return names;
}

void write_model_directory(const fs::path& directory, const TensorMap& weights, const ModelFiles& files,
                           std::optional<torch::ScalarType> type) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw_refused(directory, "cannot create the folder", error);
  // Checksums go first and come last: those of an older model would make the new one look damaged.
  fs::remove(directory / checksums_name, error);
  if (error) throw Failure((directory / checksums_name).string(), "cannot be replaced: " + error.message());
  std::vector<std::string> names{weights_name};
  for (const auto& [name, content] : files.contents) {
    write_atomically(directory / name, content);
    names.push_back(name);
  }
  write_bound_weights(directory / weights_name, weights, directory / config_name, type, files.provenance);
  write_checksums(directory, names);
}

void make_interruption(const fs::path& checkpoint) {
  const auto name = parse_checkpoint_name(checkpoint.filename().string());
  const auto renamed = checkpoint.parent_path() / (interruption_prefix + checkpoint.filename().string());
  if (!name || name->kind == CheckpointKind::interruption) return;
  if (something_at(renamed)) discard(renamed);
  if (something_at(renamed)) return;
  std::error_code error;
  fs::rename(checkpoint, renamed, error);
  if (error) throw Failure(checkpoint.string(), "cannot be renamed: " + error.message());
}

bool holds_checkpoint(const fs::path& folder) {
  const auto names = files_of(folder);
  return std::any_of(names.begin(), names.end(), [&](const auto& name) { return something_at(folder / name); });
}

bool looks_whole(const fs::path& checkpoint) {
  const std::vector<std::string> names = {config_name, weights_name, checksums_name, optimizer_name, progress_name};
  return std::all_of(names.begin(), names.end(), [&](const auto& name) {
    std::error_code error;
    return fs::is_regular_file(checkpoint / name, error);
  });
}

std::vector<fs::path> strange_entries_of(const fs::path& checkpoint) {
  return strange_entries(checkpoint, files_of(checkpoint));
}

void remove_checkpoint(const fs::path& checkpoint) {
  remove_known(checkpoint, files_of(checkpoint));
}

fs::path write_checkpoint(const fs::path& run, const TrainingState& state, const ModelFiles& files, CheckpointKind kind,
                          const std::function<void()>& before_named) {
  const auto name = fmt::format("{}{}{:08}", kind == CheckpointKind::interruption ? interruption_prefix : "",
                                step_prefix, state.progress.step);
  fs::path final_name = checkpoint_directory(run) / name;
  const fs::path partial = checkpoint_directory(run) / (partial_prefix + name);
  std::error_code error;
  fs::remove_all(partial, error);
  try {
    TensorMap contents;
    for (const auto& [item, value] : state.gathered ? *state.gathered : state.optimizer.state()) {
      contents.emplace(name_in_file(item), value);
    }
    if (state.average) {
      for (const auto& [parameter, value] : weights_of(state.model)) {
        contents.emplace(raw_weight_prefix + parameter, value);
      }
    }
    contents.merge(buffers_of(state.model));
    nlohmann::ordered_json json{{"format", format_version}};
    each_field(state.progress, [&](const char* field, const auto& value) {
      // Most sources of batches need none.
      if constexpr (std::is_same_v<decltype(value), const std::string&>) {
        if (!value.empty()) write_bytes(json[field], value);
      } else {
        json[field] = value;
      }
    });

    std::vector<std::string> names{weights_name, optimizer_name, progress_name};
    fs::create_directory(checkpoint_directory(run));
    fs::create_directory(partial);
    write_tensors(partial / optimizer_name, contents, {{"format", "transformer-optimizer-1"}});
    write_atomically(partial / progress_name, json.dump(2) + "\n");
    for (const auto& [file, content] : files.contents) {
      write_atomically(partial / file, content);
      names.push_back(file);
    }
    const auto weights = state.average ? state.average->values() : weights_of(state.model);
    if (std::find(names.begin(), names.end(), config_name) != names.end()) {
      write_bound_weights(partial / weights_name, weights, partial / config_name, {}, files.provenance);
    } else {
      write_weights(partial / weights_name, weights);
    }
    write_checksums(partial, names);
    if (something_at(final_name)) set_aside_damaged(final_name);  // whole ones were gone on from
    if (before_named) before_named();
    fs::rename(partial, final_name);
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(partial, error);
    throw Failure(final_name.string(), "cannot write the checkpoint: " + failure.code().message());
  } catch (...) {
    fs::remove_all(partial, error);
    throw;
  }
  sync_folder(checkpoint_directory(run));
  return final_name;
}

std::optional<CheckpointName> parse_checkpoint_name(std::string_view name) {
  constexpr std::string_view digits = "0123456789";
  constexpr size_t least_digits = 8;
  const auto skip = [&](std::string_view prefix) {
    const bool there = name.starts_with(prefix);
    if (there) name.remove_prefix(prefix.size());
    return there;
  };
  CheckpointName parsed;
  using State = CheckpointName::State;
  parsed.state = skip(partial_prefix) ? State::partial : skip(damaged_prefix) ? State::damaged : State::whole;
  parsed.kind = skip(interruption_prefix) ? CheckpointKind::interruption : CheckpointKind::scheduled;
  if (!skip(step_prefix)) return std::nullopt;
  const size_t length = std::min(name.find_first_not_of(digits), name.size());
  const auto problem = std::from_chars(name.data(), name.data() + length, parsed.step).ec;
  if (length < least_digits || problem != std::errc()) return std::nullopt;
  name.remove_prefix(length);
  if (name.empty()) return parsed;
  // A second damaged one of the same step is numbered.
  const bool numbered = parsed.state == State::damaged && skip("-") && !name.empty();
  return numbered && name.find_first_not_of(digits) == std::string_view::npos ? std::optional(parsed) : std::nullopt;
}

int64_t checkpoint_step(const fs::path& checkpoint) {
  const auto name = parse_checkpoint_name(checkpoint.filename().string());
  return name ? name->step : -1;
}

std::vector<fs::path> list_checkpoints(const fs::path& run) {
  return list_whole(run, CheckpointKind::scheduled);
}

std::vector<fs::path> counted_checkpoints(const fs::path& run, int64_t most) {
  const auto checkpoints = list_checkpoints(run);
  std::vector<fs::path> counted;
  for (auto each = checkpoints.rbegin(); each != checkpoints.rend() && std::ssize(counted) < most; ++each) {
    bool for_validation = false;  // a damaged one is told of by whoever reads it
    if (!counted.empty()) {
      damage_found([&] { for_validation = read_progress(*each / progress_name).for_validation != 0; });
    }
    if (!for_validation) counted.push_back(*each);
  }
  std::reverse(counted.begin(), counted.end());
  return counted;
}

std::vector<fs::path> resumable_checkpoints(const fs::path& run) {
  auto checkpoints = list(run, [](const CheckpointName& name) { return name.state == CheckpointName::State::whole; });
  std::reverse(checkpoints.begin(), checkpoints.end());
  return checkpoints;
}

void load_checkpoint(const fs::path& checkpoint, const TrainingState& state) {
  std::vector<std::string> names{weights_name, optimizer_name, progress_name};
  if (state.files) {
    for (const auto& [name, content] : state.files->contents) names.push_back(name);
  } else {
    for (const auto& name : model_file_names(checkpoint)) names.push_back(name);
  }
  verify_checksums(checkpoint, names);
  const auto progress = read_progress(checkpoint / progress_name);
  const auto optimizer_file = checkpoint / optimizer_name;
  auto contents = read_tensors(optimizer_file).tensors;
  load_weights(state.model, checkpoint / weights_name);
  const torch::NoGradGuard no_grad;
  const auto restore = [&](const std::string& name, at::Tensor into) {
    const auto found = contents.find(name);
    if (found == contents.end() || found->second.sizes() != into.sizes()) {
      throw Error(optimizer_file.string(), fmt::format("'{}' is missing or of another shape", name));
    }
    into.copy_(found->second);
  };
  if (state.average) {
    state.average->load(weights_of(state.model));
    for (const auto& [name, parameter] : named_parameters(state.model)) restore(raw_weight_prefix + name, parameter);
  }
  const auto is_buffer = [](const auto& item) { return item.first.starts_with(buffer_prefix); };
  if (std::any_of(contents.begin(), contents.end(), is_buffer)) {  // version 0.1's first builds kept none
    for (const auto& [name, buffer] : buffers_of(state.model)) restore(name, buffer);
  }
  TensorMap of_optimizer;
  for (const auto& [name, value] : contents) {
    if (!name.starts_with(raw_weight_prefix) && !name.starts_with(buffer_prefix)) {
      of_optimizer.emplace(name.starts_with(state_prefix) ? name.substr(state_prefix.size()) : name, value);
    }
  }
  state.optimizer.load(of_optimizer, optimizer_file.string());
  state.progress = progress;
}

std::string damage_found(const std::function<void()>& read) {
  try {
    read_kept(read);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Error no_whole_checkpoint(const fs::path& run, const std::string& newest) {
  if (newest.empty())
    return Error(run.string(), "has no checkpoint to go on from", "begin anew, or name another folder");
  return Error(checkpoint_directory(run).string(),
               fmt::format("none of its checkpoints is whole; the newest: {}", newest),
               "--restart replaces the run and begins anew");
}

fs::path load_newest_checkpoint(const fs::path& run, const TrainingState& state, const Log& log) {
  std::string newest;
  std::vector<fs::path> damaged;
  for (const auto& checkpoint : resumable_checkpoints(run)) {
    if (const auto damage = damage_found([&] { load_checkpoint(checkpoint, state); }); !damage.empty()) {
      log.warn(fmt::format("a checkpoint cannot be used: {}; trying the one before", damage));
      if (damaged.empty()) newest = damage;
      damaged.push_back(checkpoint);
      continue;
    }
    for (const auto& directory : damaged) set_aside_damaged(directory);
    return checkpoint;
  }
  throw no_whole_checkpoint(run, newest);
}

void prune_checkpoints(const fs::path& run, int64_t keep, const std::set<int64_t>& best) {
  const auto scheduled = list_checkpoints(run);
  auto kept = best;
  for (const auto& checkpoint : counted_checkpoints(run, std::max<int64_t>(keep, 1))) {
    kept.insert(checkpoint_step(checkpoint));
  }
  for (const auto& checkpoint : scheduled) {
    if (!kept.contains(checkpoint_step(checkpoint))) discard(checkpoint);
  }
  for (const auto& interrupted : list_whole(run, CheckpointKind::interruption)) {
    if (!scheduled.empty() && checkpoint_step(interrupted) <= checkpoint_step(scheduled.back())) {
      discard(interrupted);
    }
  }
  std::error_code error;
  const auto is_partial = [](const CheckpointName& name) { return name.state == CheckpointName::State::partial; };
  for (const auto& partial : list(run, is_partial)) fs::remove_all(partial, error);
}

void prune_interruptions(const fs::path& run, int64_t keep) {
  const auto interrupted = list_whole(run, CheckpointKind::interruption);
  for (int64_t i = 0; i + keep < static_cast<int64_t>(interrupted.size()); ++i) discard(interrupted[i]);
}

}  // namespace transformer
