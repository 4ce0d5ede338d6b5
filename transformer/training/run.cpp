#include "transformer/training/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/read_file.h"
#include "transformer/text/lines.h"
#include "transformer/training/checkpoint.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;

// Held while a run works on its folder; the system frees it when the process ends, however it ends.
class DirectoryLock {
 public:
  explicit DirectoryLock(const fs::path& directory)
      : descriptor_(open((directory / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) throw Failure(directory.string(), std::string("cannot be written to: ") + strerror(errno));
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      close(descriptor_);
      throw Error(directory.string(), "another run is working in this folder",
                  "wait for it, stop it, or choose another training.output");
    }
  }
  ~DirectoryLock() { close(descriptor_); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_;
};

// Settings that say how long or where a run goes, not what it computes: it may go on with others.
const std::set<std::string> changeable = {"training.output",           "training.steps",
                                          "training.max_minutes",      "training.log_every",
                                          "training.keep_checkpoints", "training.average_checkpoints",
                                          "training.weights"};

// "section.key" -> value of a saved config: one setting a line, as Settings::yaml writes it.
std::map<std::string, std::string> flat_settings(const std::string& yaml) {
  std::map<std::string, std::string> flat;
  std::istringstream lines(yaml);
  std::string line, section;
  while (std::getline(lines, line)) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line[0] != ' ') {
      section = line.substr(0, colon);
    } else {
      flat[fmt::format("{}.{}", section, trim(line.substr(0, colon)))] = trim(line.substr(colon + 1));
    }
  }
  return flat;
}

// What the settings of the run in `output` and these differ in, for people; empty where they are the same run's.
std::string differences(const fs::path& config_file, const std::string& config) {
  const auto saved = flat_settings(read_file(config_file)), given = flat_settings(config);
  std::string text;
  for (const auto& [name, value] : given) {
    const auto found = saved.find(name);
    const std::string before = found == saved.end() ? "(none)" : found->second;
    if (before != value && !changeable.contains(name) && !name.starts_with("decoding.")) {
      text += fmt::format("{}{}: {} there, {} now", text.empty() ? "" : ", ", name, before, value);
    }
  }
  return text;
}

// Removes what runs write, and nothing else: the folder may hold files of the user's.
void remove_run(const fs::path& output) {
  for (const char* name : {"checkpoints", "validation", "metrics.jsonl", "config.yaml", "model.safetensors",
                           "vocabulary.model", "source.model", "target.model"}) {
    fs::remove_all(output / name);
  }
}

std::vector<std::string> vocabulary_names(const VocabularySettings& settings) {
  return settings.joint ? std::vector<std::string>{"vocabulary.model"}
                        : std::vector<std::string>{"source.model", "target.model"};
}

// The vocabularies in `output`, learned first where they are not there yet.
Vocabularies prepare_vocabularies(const RunSettings& settings, const ModelSettings& model, const fs::path& output) {
  const auto& data = settings.data;
  auto learn = [&](const std::string& name, const std::vector<std::string>& files, int64_t size) {
    if (fs::exists(output / name)) return;
    spdlog::info("learning a vocabulary of {} word pieces from {}", size, fmt::join(files, ", "));
    Vocabulary::train({files.begin(), files.end()}, size, settings.vocabulary, output / name);
  };
  if (settings.vocabulary.joint) {
    auto files = data.train_source;
    files.insert(files.end(), data.train_target.begin(), data.train_target.end());
    learn("vocabulary.model", files, model.source_vocabulary_size);
  } else {
    learn("source.model", data.train_source, model.source_vocabulary_size);
    learn("target.model", data.train_target, model.target_vocabulary_size);
  }
  return Vocabularies::load(output, model.source_vocabulary_size, model.target_vocabulary_size);
}

void check_settings(const RunSettings& settings) {
  settings.training.check();
  const auto model = settings.model.resolved();
  if (settings.vocabulary.joint && model.source_vocabulary_size != model.target_vocabulary_size) {
    throw Error("vocabulary.joint",
                "a joint vocabulary has one size, but model.source_vocabulary_size and "
                "model.target_vocabulary_size differ",
                "set vocabulary.joint: false, or one vocabulary_size");
  }
  if (!settings.vocabulary.joint && model.shared_embeddings == ModelSettings::SharedEmbeddings::all) {
    throw Error("model.shared_embeddings", "one embedding cannot serve two separate vocabularies",
                "set it to 'target' or 'none', or vocabulary.joint to true");
  }
  if (settings.data.train_source.empty() || settings.data.train_target.empty()) {
    throw Error("data.train_source", "no training text is named",
                "name parallel files in data.train_source and data.train_target");
  }
}

Corpus read_corpus(const char* what, const std::vector<std::string>& sources, const std::vector<std::string>& targets,
                   const Vocabularies& vocabularies, const Corpus::Options& options) {
  auto corpus = Corpus::read(sources, targets, *vocabularies.source, *vocabularies.target, options);
  const auto& report = corpus.report();
  spdlog::info(
      "{}: {} pairs, {} source and {} target tokens{}", what, report.pairs, report.source_tokens, report.target_tokens,
      report.empty + report.too_long == 0 ? ""
                                          : fmt::format("; left out {} with an empty side and {} longer than {} pieces",
                                                        report.empty, report.too_long, options.max_length));
  return corpus;
}

constexpr int64_t checkpoint_bytes_a_parameter = 3 * sizeof(float);  // the weight and its two moments

}  // namespace

std::string model_summary(const ModelSettings& settings) {
  Transformer model(settings);
  const auto& s = model->settings();
  std::map<std::string, int64_t> parts;
  for (const auto& item : model->named_parameters()) {
    parts[item.key().substr(0, item.key().find('.'))] += item.value().numel();
  }
  std::string text = fmt::format("parameters: {}\n", model->parameter_count());
  for (const auto& [name, count] : parts) text += fmt::format("  {}: {}\n", name, count);
  text += fmt::format(
      "encoder layers {}, decoder layers {}, d_model {}, d_ff {}, heads {}, d_k {}, d_v {}\n"
      "vocabulary {} source, {} target; dropout {}, attention dropout {}\n",
      s.encoder_layers, s.decoder_layers, s.d_model, s.d_ff, s.heads, s.d_k, s.d_v, s.source_vocabulary_size,
      s.target_vocabulary_size, s.dropout, s.attention_dropout);
  return text;
}

std::string check_run(const RunSettings& settings) {
  check_settings(settings);
  const auto model = settings.model.resolved();
  std::string text;
  auto check_files = [&](const char* what, const std::vector<std::string>& sources,
                         const std::vector<std::string>& targets) {
    if (sources.size() != targets.size()) {
      throw Error(fmt::format("data.{}_source", what),
                  fmt::format("{} source files, but {} target files", sources.size(), targets.size()),
                  "name them in pairs");
    }
    for (size_t i = 0; i < sources.size(); ++i) {
      int64_t counts[2];
      for (auto [file, count] : {std::pair{&sources[i], &counts[0]}, {&targets[i], &counts[1]}}) {
        LineReader reader(*file);
        std::string line;
        while (reader.next(line)) {
        }
        *count = reader.count();
      }
      if (counts[0] != counts[1]) {
        throw Error(sources[i], fmt::format("has {} lines, but {} has {}", counts[0], targets[i], counts[1]),
                    "line n of one must translate line n of the other");
      }
      text += fmt::format("{}: {} pairs in {} and {}\n", what, counts[0], sources[i], targets[i]);
    }
  };
  check_files("train", settings.data.train_source, settings.data.train_target);
  check_files("validation", settings.data.validation_source, settings.data.validation_target);

  const fs::path output = settings.training.output;
  const auto names = vocabulary_names(settings.vocabulary);
  const bool learned =
      std::all_of(names.begin(), names.end(), [&](const auto& name) { return fs::exists(output / name); });
  if (learned) Vocabularies::load(output, model.source_vocabulary_size, model.target_vocabulary_size);
  text += fmt::format("vocabulary: {} {}\n", fmt::join(names, ", "), learned ? "found" : "will be learned");

  const int64_t needed =
      checkpoint_bytes_a_parameter * Transformer(model)->parameter_count() * (settings.training.keep_checkpoints + 1);
  fs::path existing = fs::absolute(output);
  while (!fs::exists(existing)) existing = existing.parent_path();
  const auto available = static_cast<int64_t>(fs::space(existing).available);
  constexpr int64_t megabyte = 1 << 20;
  if (available < needed) {
    throw Error(
        output.string(),
        fmt::format("checkpoints need about {} MB, but {} MB are free", needed / megabyte, available / megabyte),
        "free some, choose another training.output, or keep fewer (training.keep_checkpoints)");
  }
  text += fmt::format("space: checkpoints need about {} MB, {} MB are free\n", needed / megabyte, available / megabyte);
  return text;
}

RunResult run_training(const RunSettings& settings, const RunHooks& hooks, bool restart) {
  check_settings(settings);
  const auto model_settings = settings.model.resolved();
  const fs::path output = settings.training.output;
  std::error_code error;
  fs::create_directories(output, error);
  if (error) throw Error("training.output", fmt::format("cannot create {}: {}", output.string(), error.message()));
  DirectoryLock lock(output);
  if (restart) remove_run(output);
  const auto config_file = output / "config.yaml";
  const auto checkpoints = list_checkpoints(output);
  const bool begun = !checkpoints.empty(), finished = fs::exists(output / "model.safetensors");
  if (finished && !begun) {
    throw Error(output.string(), "holds a model without the checkpoints to go on from",
                "choose another training.output, or --restart to delete it and begin anew");
  }
  if (const auto different = fs::exists(config_file) ? differences(config_file, settings.config) : "";
      !different.empty()) {
    if (begun) {
      throw Error(output.string(), "holds a run with other settings (" + different + ")",
                  "give the settings it had to go on with it, --restart to delete it and begin anew, or another "
                  "training.output");
    }
    remove_run(output);  // it came no further than its vocabulary, which was learned for other settings
  }
  write_atomically(config_file, settings.config);

  const auto vocabularies = prepare_vocabularies(settings, model_settings, output);
  ModelFiles files{{"config.yaml", settings.config}};
  for (const auto& name : vocabulary_names(settings.vocabulary)) files.emplace_back(name, read_file(output / name));
  const auto corpus = read_corpus("training text", settings.data.train_source, settings.data.train_target, vocabularies,
                                  {.max_length = settings.data.max_length});
  std::optional<Corpus> validation;
  if (!settings.data.validation_source.empty()) {
    validation = read_corpus("validation text", settings.data.validation_source, settings.data.validation_target,
                             vocabularies, {.max_length = settings.data.max_length, .keep_all = true});
  }

  torch::manual_seed(settings.training.seed);
  Transformer model(model_settings);
  spdlog::info("model: {} parameters", model->parameter_count());

  TrainerHooks trainer_hooks{.validate = {}, .stop = hooks.stop};
  auto judge = [&](Transformer& judged, const std::string& name) {
    fs::create_directories(output / "validation");
    return hooks.validate(judged, vocabularies, *validation, output / "validation" / (name + ".txt"));
  };
  if (validation && hooks.validate) {
    trainer_hooks.validate = [&](Transformer& judged, int64_t step) {
      return judge(judged, fmt::format("step-{:08}", step));
    };
  }
  Trainer trainer(model, corpus, settings.training, output, files, trainer_hooks);
  if (begun) {
    spdlog::info("going on from {}", checkpoints.back().string());
    trainer.resume(checkpoints.back());
  }
  RunResult result{.summary = trainer.run(), .validation = {}};
  if (result.summary.interrupted) return result;

  auto last = list_checkpoints(output);
  const auto averaged = std::min<int64_t>(settings.training.average_checkpoints, last.size());
  last.erase(last.begin(), last.end() - averaged);
  spdlog::info("averaging the last {} checkpoints", averaged);
  const bool half = settings.training.weights == TrainingSettings::Weights::bf16;
  write_model_directory(output, average_weights(last), files, half ? torch::kBFloat16 : torch::kFloat32);
  load_weights(*model, output / "model.safetensors");
  model->eval();
  if (validation && hooks.validate) {
    result.validation = judge(model, "final");
    trainer.record_final(*result.validation);
  }
  return result;
}

}  // namespace transformer
