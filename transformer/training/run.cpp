#include "transformer/training/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "transformer/architecture/cost.h"
#include "transformer/architecture/longest_text.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/parameter_count.h"
#include "transformer/architecture/weights.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/read_file.h"
#include "transformer/base/run_files.h"
#include "transformer/base/unicode.h"
#include "transformer/base/unreadable.h"
#include "transformer/model/depth.h"
#include "transformer/text/learn_vocabulary.h"
#include "transformer/text/mixture.h"
#include "transformer/text/parallel_lines.h"
#include "transformer/text/random.h"
#include "transformer/training/average.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/layer_drop.h"
#include "transformer/training/profile.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;

constexpr int summary_format = 1;

// Explains why text cannot be told apart by its languages and tags with such vocabularies, if it cannot.
void check_told(const DataSettings& data, const Vocabulary& source, const Vocabulary& target) {
  for (const auto& [vocabulary, language, setting] :
       {std::tuple{&source, &data.source_language, "data.source_language"},
        {&target, &data.target_language, "data.target_language"}}) {
    const auto& languages = vocabulary->languages();
    if (!languages.empty() || !language->empty()) languages.piece(*language, setting);
  }
  for (const auto& tag : distinct_tags(data.train_tags)) {
    const auto pieces = source.encode(tag);
    if (std::count(pieces.begin(), pieces.end(), Vocabulary::unknown) == 0) continue;
    throw Error("data.train_tags", in_quotes(tag) + " has characters that the vocabulary does not know",
                "spell it in others, or learn a vocabulary with this text");
  }
}

// The same with those of a model directory.
void check_told(const DataSettings& data, const fs::path& directory, const ModelSettings& model) {
  const auto found = Vocabularies::load(directory, model.source_vocabulary_size, model.target_vocabulary_size);
  check_told(data, *found.source, *found.target);
}

// Explains why a model cannot start from the weights and vocabulary in training.init_from, if it cannot.
void check_init_from(const RunSettings& settings) {
  if (settings.training.init_from.empty()) return;
  const fs::path directory = settings.training.init_from;
  check_model_directory(directory);
  const auto files = model_file_names(directory);
  stored_weights(directory / weights_name);  // throws for those that are good for decoding alone
  verify_model_directory(directory);
  for (const auto& name : vocabulary_names_of(settings.vocabulary.joint)) {
    if (std::find(files.begin(), files.end(), name) == files.end()) {
      throw Error("training.init_from",
                  fmt::format("{} has no {}: its vocabulary is {}", directory.string(), name,
                              settings.vocabulary.joint ? "one for each language" : "a joint one"),
                  fmt::format("set vocabulary.joint: {}", settings.vocabulary.joint ? "false" : "true"));
    }
  }
  const auto theirs = read_model_settings(directory);
  const auto values = [](ModelSettings model) {
    Settings writer;
    writer.section("model", model, "");
    return writer.values();
  };
  const auto there = values(theirs), here = values(settings.model.resolved());
  const std::array computing = {computing_settings(theirs), computing_settings(settings.model)};
  std::string different;
  for (const auto& [name, value] : here) {
    if (there.at(name) == value) continue;
    const auto setting = name.substr(name.find('.') + 1);
    if (!computing[0].contains(setting) && !computing[1].contains(setting)) continue;
    // Of more layers some are taken.
    const auto& ours = settings.model;
    if (name == "model.encoder_layers" && theirs.encoder_layers > ours.encoder_layers) continue;
    if (name == "model.decoder_layers" && theirs.decoder_layers > ours.decoder_layers) continue;
    // A recurrent unit begins anew.
    if (name == "model.decoder_self_attention" &&
        ours.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru) {
      continue;
    }
    different += fmt::format("{}{}: {} there, {} here", different.empty() ? "" : ", ", name, there.at(name), value);
  }
  if (!different.empty()) {
    throw Error(
        "training.init_from", fmt::format("the model in {} is another one ({})", directory.string(), different),
        fmt::format("give the settings it has, with 'extends: {}' for instance", (directory / config_name).string()));
  }
  check_told(settings.data, directory, theirs);
}

// Explains why the files of data.vocabulary cannot be the vocabularies of this run, if they cannot. `folder`: null
// where none is looked at.
void check_given_vocabulary(const RunSettings& settings, const ModelSettings& model, const RunFolder* folder) {
  const auto& given = settings.data.vocabulary;
  const auto names = vocabulary_names_of(settings.vocabulary.joint);
  std::vector<Vocabulary> vocabularies;
  for (size_t i = 0; i < given.size(); ++i) {
    if (folder) folder->check_input("data.vocabulary", given[i]);
    const auto& vocabulary = vocabularies.emplace_back(given[i]);
    const auto size = i == 0 ? model.source_vocabulary_size : model.target_vocabulary_size;
    if (vocabulary.size() != size) {
      const auto* const name = settings.vocabulary.joint ? "model.vocabulary_size"
                               : i == 0                  ? "model.source_vocabulary_size"
                                                         : "model.target_vocabulary_size";
      throw Error("data.vocabulary",
                  fmt::format("{} holds {} word pieces, but {} is {}", given[i], vocabulary.size(), name, size),
                  fmt::format("set {}: {}", name, vocabulary.size()));
    }
    const fs::path there = fs::path(settings.training.output) / names[i];
    if (folder && folder->keeps(names[i]) && file_checksum(there) != vocabulary.checksum()) {
      throw Error("data.vocabulary", fmt::format("{} is another vocabulary than {}", given[i], there.string()),
                  fmt::format("remove {}, or data.vocabulary from the settings", there.string()));
    }
  }
  if (!given.empty()) check_told(settings.data, vocabularies.front(), vocabularies.back());
}

// Which weights a model starts with that starts from those in training.init_from.
std::string described_start(const RunSettings& settings) {
  const auto& directory = settings.training.init_from;
  const auto theirs = read_model_settings(directory);
  std::string text = fmt::format("the weights in {}", directory);
  const auto add = [&](const char* stack, int64_t shallow, int64_t deep) {
    if (shallow == deep) return;
    auto kept = layers_kept(shallow, deep);
    for (auto& layer : kept) ++layer;
    text += fmt::format(", of the {}'s {} layers {} {}", stack, deep, shallow == 1 ? "number" : "numbers",
                        fmt::join(kept, ", "));
  };
  add("encoder", settings.model.encoder_layers, theirs.encoder_layers);
  add("decoder", settings.model.decoder_layers, theirs.decoder_layers);
  if (settings.model.decoder_self_attention != theirs.decoder_self_attention) text += ", recurrent units new";
  return text;
}

// What is known of where the weights came from that a model starts with, or has started with: a licence stays with what
// is made of them.
std::map<std::string, std::string> start_of(const RunSettings& settings, const fs::path& output, bool begun) {
  if (begun) {
    std::optional<Failure> unread;
    for (const auto& checkpoint : resumable_checkpoints(output)) {
      std::map<std::string, std::string> known;
      try {
        // A damaged one is told of where training would go on from it.
        if (damage_found([&] { known = provenance(checkpoint); }).empty()) return known;
      } catch (const Failure& failure) {  // another one says the same
        unread = failure;
      }
    }
    if (unread) throw Failure(*unread);
    return {};
  }
  if (settings.training.init_from.empty()) return {};
  auto known = provenance(settings.training.init_from);
  constexpr std::string_view further = "; trained further";
  const auto origin = known.find("origin");
  if (origin != known.end() && !origin->second.ends_with(further)) origin->second += further;
  return known;
}

// A tag that the vocabulary has as one piece, behind the mark of a word's beginning.
constexpr size_t longest_usual_tag = 2;

// What translations of the validation text depend on: settings of `decoding` that are not the defaults, so that what a
// later version adds changes nothing, but for those that change no output.
std::string decoding_of(const RunSettings& settings) {
  const auto begin = settings.config.find("\ndecoding:\n");
  if (begin == settings.config.npos) return "";
  std::istringstream lines(settings.config.substr(begin + 1, settings.config.find("\n\n", begin) - begin));
  std::string text, line;
  while (std::getline(lines, line)) {
    const auto colon = line.find(": ");
    if (colon == line.npos) continue;
    const auto name = fmt::format("decoding.{}", trim(line.substr(0, colon)));
    if (!decides_translations(name)) continue;
    const auto rule = settings.rules.find(name);
    if (rule == settings.rules.end() || rule->second.default_text != line.substr(colon + 2)) text += line + "\n";
  }
  return text;
}

bool learns_vocabularies(const RunSettings& settings) {
  return settings.data.vocabulary.empty() && settings.training.init_from.empty();
}

// The same of vocabularies that are yet to be learned: they know no languages.
void check_told_nothing(const DataSettings& data) {
  for (const auto& [language, setting] :
       {std::pair{&data.source_language, "data.source_language"}, {&data.target_language, "data.target_language"}}) {
    if (language->empty()) continue;
    throw Error(setting,
                fmt::format("is {}, and a vocabulary that is learned here knows no languages", in_quotes(*language)),
                "leave it out; data.train_tags tell texts apart");
  }
}

// RunFolderOptions::vocabulary_text.
std::function<std::string()> vocabulary_text_of(const RunSettings& settings) {
  if (!learns_vocabularies(settings)) return nullptr;
  return [&settings] {
    Checksum all;
    for (const auto* files : {&settings.data.train_source, &settings.data.train_target}) {
      // What is no file is refused where the texts are looked at.
      std::error_code refused;
      for (const auto& file : *files) all.add(fs::is_regular_file(file, refused) ? file_checksum(file) : file);
    }
    return all.text();
  };
}

// What a run's folder is told of the run besides what was asked of it.
RunFolderOptions folder_options(const RunSettings& settings, const RunOptions& options) {
  auto wanted = options.folder;
  wanted.profile = options.profile_steps > 0;
  wanted.vocabulary_text = vocabulary_text_of(settings);
  return wanted;
}

// The vocabularies in `output`: given, or learned first where they are not there yet.
Vocabularies prepare_vocabularies(const RunSettings& settings, const ModelSettings& model, const fs::path& output,
                                  RunFolder& folder, const Log& log) {
  const auto& data = settings.data;
  if (!settings.training.init_from.empty()) {
    for (const auto& name : vocabulary_names_of(settings.vocabulary.joint)) {
      if (something_at(output / name)) continue;
      folder.put_vocabulary(name, read_file(fs::path(settings.training.init_from) / name));
    }
  }
  for (size_t i = 0; i < data.vocabulary.size(); ++i) {
    const auto name = vocabulary_names_of(settings.vocabulary.joint)[i];
    if (!something_at(output / name)) folder.put_vocabulary(name, read_file(data.vocabulary[i]));
  }
  auto learn = [&](const std::string& name, const std::vector<std::string>& files, int64_t size) {
    if (something_at(output / name)) return;
    log.info(fmt::format("learning a vocabulary of {} word pieces from {}", size, fmt::join(files, ", ")));
    const auto progressed = [&](std::optional<double> share) {
      const bool read = share && *share >= 1;
      log.progress({.what = read ? fmt::format("learning {} word pieces", size) : "reading text for the vocabulary",
                    .share = read ? std::nullopt : share});
    };
    const auto tags = name == target_vocabulary_name ? std::vector<std::string>() : distinct_tags(data.train_tags);
    folder.put_vocabulary(name,
                          learn_vocabulary({files.begin(), files.end()}, size, settings.vocabulary, tags, progressed));
    log.progress({});
  };
  if (settings.vocabulary.joint) {
    auto files = data.train_source;
    files.insert(files.end(), data.train_target.begin(), data.train_target.end());
    learn(vocabulary_name, files, model.source_vocabulary_size);
  } else {
    learn(source_vocabulary_name, data.train_source, model.source_vocabulary_size);
    learn(target_vocabulary_name, data.train_target, model.target_vocabulary_size);
  }
  return Vocabularies::load(output, model.source_vocabulary_size, model.target_vocabulary_size);
}

// The settings that all ranks must have alike: where each computes is its own matter, but not where they all write.
std::string shared_part(const RunSettings& settings) {
  std::string text;
  for (const auto& [name, value] : flat_settings(settings.config)) {
    if (name == "training.output" || !says_where(name)) text += fmt::format("{}: {}\n", name, value);
  }
  return text;
}

// All ranks: each reads the text by itself, and it is the same text. Rank 0 alone has a `log`.
Corpus read_corpus(Communicator& communicator, const char* what, const std::vector<std::string>& sources,
                   const std::vector<std::string>& targets, const Vocabularies& vocabularies, Corpus::Options options,
                   const Log& log) {
  options.progressed = [&](int64_t pairs, std::optional<double> share) {
    log.progress({.what = "tokenising", .done = pairs, .unit = "pairs", .share = share});
  };
  auto corpus = Corpus::read(sources, targets, *vocabularies.source, *vocabularies.target, options);
  log.progress({});
  const auto& report = corpus.report();
  communicator.check_same(what, fmt::format("{} pairs\n{} source tokens\n{} target tokens\nchecksum {}", report.pairs,
                                            report.source_tokens, report.target_tokens, corpus.checksum()));
  // Of a cache that ranks share, any of them may have put right what was wrong.
  std::set<std::string> said;
  std::istringstream warnings(
      fmt::format("{}", fmt::join(communicator.gather(fmt::format("{}", fmt::join(report.warnings, "\n"))), "\n")));
  for (std::string warning; std::getline(warnings, warning);) {
    if (!warning.empty() && said.insert(warning).second) log.warn(warning);
  }
  log.info(fmt::format("{}: {}, {} source and {} target tokens{}", what, counted(report.pairs, "pair"),
                       report.source_tokens, report.target_tokens, report.from_cache > 0 ? " (tokenised before)" : ""));
  if (!options.keep_all && report.empty + report.too_long + report.ratio > 0) {
    log.info(fmt::format("left out: {} with an empty side, {} longer than {} pieces, {} of too unequal lengths",
                         counted(report.empty, "pair"), report.too_long, options.max_length, report.ratio));
  }
  if (options.keep_all && report.too_long > 0) {
    log.warn(report.cut_text(options.max_length));
  }
  return corpus;
}

// The weight, its two moments and, where one is kept, its moving average.
int64_t checkpoint_bytes(const TrainingSettings& settings, int64_t parameters) {
  return parameters * (settings.moving_average > 0 ? 4 : 3) * static_cast<int64_t>(sizeof(float));
}

const char* name_of(TrainingSummary::End end) {
  switch (end) {
    case TrainingSummary::End::steps:
      return "steps";
    case TrainingSummary::End::time:
      return "time";
    case TrainingSummary::End::patience:
      return "patience";
    case TrainingSummary::End::interruption:
      break;
  }
  return "interruption";
}

// The setting that ended the finished run in `output`.
const char* setting_that_ended(const fs::path& output) {
  std::string ended_by;
  try {
    ended_by = nlohmann::json::parse(read_file(output / summary_name)).value("ended_by", "");
  } catch (const std::exception&) {  // whatever has become of it, the model is there
  }
  using End = TrainingSummary::End;
  if (ended_by == name_of(End::time)) return "training.max_minutes";
  return ended_by == name_of(End::patience) ? "training.patience" : "training.steps";
}

// Throws Error where a trace is asked for of a run that is finished.
void check_profile(const RunFolder& folder, const RunSettings& settings, const RunOptions& options) {
  if (folder.found() != RunFolder::Found::finished_run || options.profile_steps == 0) return;
  const fs::path output = settings.training.output;
  throw Error("--profile", fmt::format("the run in {} is finished: there is no step to be traced", output.string()),
              fmt::format("raise {}, or choose another training.output", setting_that_ended(output)));
}

// The weights of the run's model, made of its checkpoints, and of how many.
std::pair<TensorMap, size_t> average_run(const Trainer& trainer, const TrainingSettings& training, const Log& log) {
  std::vector<fs::path> averaged;
  std::string steps;
  const auto add = [&](const fs::path& checkpoint) {
    // Left out rather than made part of the model.
    if (const auto damage = damage_found([&] { verify_model_directory(checkpoint); }); !damage.empty()) {
      log.warn(fmt::format("a checkpoint is left out of the average: {}", damage));
      return;
    }
    averaged.push_back(checkpoint);
    steps += fmt::format("{}{}", steps.empty() ? "" : ", ", checkpoint_step(checkpoint));
  };
  for (const auto& checkpoint : trainer.final_checkpoints()) add(checkpoint);
  if (averaged.empty()) {
    log.warn("no checkpoint that training.average_of asks for is left: the newest whole one becomes the model");
    const auto kept = list_checkpoints(training.output);
    for (auto newest = kept.rbegin(); newest != kept.rend() && averaged.empty(); ++newest) add(*newest);
  }
  log.info(fmt::format("averaging {}: {}", counted(averaged.size(), "checkpoint"), steps));
  const bool half = training.weights == TrainingSettings::Weights::bf16;
  TensorMap weights;
  read_kept([&] { weights = average_weights(averaged); });
  for (auto& [name, weight] : weights) weight = weight.to(half ? torch::kBFloat16 : torch::kFloat32);
  return {std::move(weights), averaged.size()};
}

// What a run cost, for its log and for summary.json.
void summarize(const TrainingSummary& summary, const TrainingSettings& training, int processes, int64_t parameters,
               size_t averaged, const std::optional<Validation>& validation, const fs::path& output, const Log& log) {
  const double seconds = std::max(summary.seconds, 1e-9);
  nlohmann::ordered_json json{{"format", summary_format},
                              {"ended_by", name_of(summary.end)},
                              {"steps", summary.steps},
                              {"processes", processes},
                              {"parameters", parameters},
                              {"averaged_checkpoints", averaged},
                              {"seconds", summary.seconds},
                              {"source_tokens", summary.source_tokens},
                              {"target_tokens", summary.target_tokens},
                              {"target_tokens_per_second", static_cast<double>(summary.target_tokens) / seconds},
                              {"flops", summary.flops},
                              {"flops_per_second", summary.flops / seconds}};
  std::string estimate;
  if (training.device_flops > 0) {
    // Parts of a run may have had other numbers of processes.
    json["paper_cost_estimate"] = paper_training_cost(summary.process_seconds, 1, training.device_flops);
    estimate = fmt::format("; by the paper's estimate (§6.1: {:.3g} s of devices x {:.2g} FLOP/s) {:.2g} FLOPs",
                           summary.process_seconds, training.device_flops, json["paper_cost_estimate"].get<double>());
  }
  if (validation) {
    json["perplexity"] = validation->perplexity;
    if (validation->bleu) {
      json["bleu"] = *validation->bleu;
      json["bleu_signature"] = validation->signature;
    }
  }
  write_atomically(output / summary_name, json.dump(2) + "\n");
  log.info(fmt::format("{} steps, {} source and {} target tokens in {:.0f} s: {:.0f} target tokens/s", summary.steps,
                       summary.source_tokens, summary.target_tokens, summary.seconds, summary.target_tokens / seconds));
  log.info(fmt::format("{:.3g} FLOPs in matrix products, {:.3g} FLOP/s{}", summary.flops, summary.flops / seconds,
                       estimate));
}

// Whether training and validation text are there and parallel. Returns a description of it. `folder`: as above.
std::string check_texts(const DataSettings& data, const RunFolder* folder) {
  std::string text;
  const auto check_files = [&](const std::string& what, const std::vector<std::string>& sources,
                               const std::vector<std::string>& targets) {
    int64_t all = 0;
    for (const auto& [files, side] : {std::pair{&sources, "source"}, {&targets, "target"}}) {
      for (const auto& file : *files) {
        if (!is_stream(file)) continue;
        throw Error(fmt::format("data.{}_{}", what, side),
                    fmt::format("{} can be read once, and a run reads its text several times", file),
                    "write the text to a file; one that ends with .gz is read as it is");
      }
    }
    for (size_t i = 0; i < sources.size(); ++i) {
      if (folder) {
        folder->check_input(fmt::format("data.{}_source", what), sources[i]);
        folder->check_input(fmt::format("data.{}_target", what), targets[i]);
      }
      const int64_t pairs = count_pairs(sources[i], targets[i]);
      text += fmt::format("{}: {} in {} and {}\n", what, counted(pairs, "pair"), sources[i], targets[i]);
      all += pairs;
    }
    if (!sources.empty() && all == 0) {
      throw Error(fmt::format("data.{}_source", what), fmt::format("{} holds no line", fmt::join(sources, ", ")),
                  "name files with a sentence a line");
    }
  };
  check_files("train", data.train_source, data.train_target);
  check_files("validation", data.validation_source, data.validation_target);
  return text;
}

// How many checkpoints a run writes at most, the one at its end counted.
int64_t most_checkpoints(const TrainingSettings& training) {
  if (training.checkpoint_minutes > 0) return training.steps;
  const auto times = [&](int64_t every) { return every > 0 ? training.steps / every : 0; };
  const int64_t of_the_best = training.keep_best > 0 ? times(training.validate_every) : 0;
  return std::min(training.steps, times(training.checkpoint_every) + of_the_best + 1);
}

// What is to be said where a run leaves nothing on its way to go on from, or one that has not `begun` less than is to
// be averaged; else empty.
std::string few_checkpoints(const TrainingSettings& training, bool begun) {
  if (training.checkpoint_minutes > 0) return "";
  const int64_t every = training.checkpoint_every;
  if (every == 0 && training.keep_best == 0) {
    return "no checkpoint is written before the end (training.checkpoint_every and training.checkpoint_minutes are 0): "
           "a run that is killed begins anew, and there is one to be averaged";
  }
  // Those that a validation asked for are not among the last ones, but for the one at the end.
  const int64_t most = every > 0 ? (training.steps - 1) / every + 1 : 1;
  if (begun || training.average_of != TrainingSettings::Averaged::last || most >= training.average_checkpoints) {
    return "";
  }
  return fmt::format(
      "training.average_checkpoints is {}, and by training.checkpoint_every ({}) there {} {} at most to be "
      "averaged",
      training.average_checkpoints, every, most == 1 ? "is" : "are", counted(most, "checkpoint"));
}

// `path`, or the nearest of the folders that it is to lie in which there is.
fs::path nearest_existing(const fs::path& path) {
  fs::path existing = fs::absolute(path);
  while (!something_at(existing)) existing = existing.parent_path();
  return existing;
}

// Throws Error where `folder`, which `setting` names, cannot be made: on the way to it lies something else.
void check_can_be_folder(const char* setting, const fs::path& folder) {
  if (const auto existing = nearest_existing(folder); !fs::is_directory(existing)) {
    throw Error(setting, fmt::format("{} cannot be made: {} is no folder", folder.string(), existing.string()),
                "choose another");
  }
}

// What a run needs that begins in `folder`. Returns a description of what it found.
std::string check_new_run(const RunSettings& settings, const RunFolder& folder) {
  const auto& training = settings.training;
  if (folder.found() == RunFolder::Found::nothing) {
    if (!training.init_from.empty()) folder.check_input("training.init_from", training.init_from);
    check_init_from(settings);
  }
  const auto model = settings.model.resolved();
  const fs::path output = training.output;
  check_can_be_folder("training.output", output);
  if (const auto& cache = settings.data.cache; !cache.empty()) {
    folder.check_apart("data.cache", cache);
    check_can_be_folder("data.cache", cache);
  }
  std::string text = check_texts(settings.data, &folder);
  const auto names = vocabulary_names_of(settings.vocabulary.joint);
  if (folder.found() == RunFolder::Found::nothing && !training.init_from.empty()) {
    for (const auto& name : names) {
      const auto theirs = fs::path(training.init_from) / name, there = output / name;
      if (!folder.keeps(name) || file_checksum(theirs) == file_checksum(there)) continue;
      throw Error("training.init_from",
                  fmt::format("{} is another vocabulary than {}, by which its weights were learned", there.string(),
                              theirs.string()),
                  fmt::format("remove {}, or choose another training.output", there.string()));
    }
  }
  const bool learned = std::all_of(names.begin(), names.end(), [&](const auto& name) { return folder.keeps(name); });
  if (learned) check_told(settings.data, output, model);
  const auto& given = settings.data.vocabulary;
  if (folder.found() == RunFolder::Found::nothing) {
    check_given_vocabulary(settings, model, &folder);
    if (!learned && learns_vocabularies(settings)) check_told_nothing(settings.data);
  }
  text +=
      fmt::format("vocabulary: {} {}\n", fmt::join(names, ", "),
                  learned ? "found"
                  : std::any_of(names.begin(), names.end(), [&](const auto& name) { return folder.brings_back(name); })
                      ? "of the newest checkpoint"
                  : !given.empty() ? fmt::format("of {}", fmt::join(given, ", "))
                  : training.init_from.empty()
                      ? "will be learned when the run begins, which shows whether the text is enough for it"
                      : fmt::format("of {}", training.init_from));

  if (folder.found() == RunFolder::Found::nothing && !training.init_from.empty()) {
    text += fmt::format("weights: {}\n", described_start(settings));
  }

  if (const auto few = few_checkpoints(training, folder.found() != RunFolder::Found::nothing); !few.empty())
    text += fmt::format("checkpoints: {}\n", few);
  // A step leaves one at most; one more is written before another goes.
  const int64_t kept = std::min(training.keep_checkpoints, most_checkpoints(training));
  const int64_t there = folder.found() == RunFolder::Found::nothing ? 0 : std::ssize(list_checkpoints(output));
  const int64_t more = std::max<int64_t>(1, kept + training.keep_best + 1 - there);
  const int64_t needed = checkpoint_bytes(training, parameter_count(model)) * more;
  const auto existing = nearest_existing(output);
  std::error_code error;
  const auto space = fs::space(existing, error);
  if (error) throw Failure(existing.string(), "its free space cannot be found out: " + error.message());
  const auto available = static_cast<int64_t>(space.available);
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

}  // namespace

void check_settings(const RunSettings& settings) {
  settings.training.check();
  const auto model = settings.model.resolved();
  check_training_of(model, settings.training);
  if (settings.vocabulary.joint && model.source_vocabulary_size != model.target_vocabulary_size) {
    throw Error("vocabulary.joint",
                "a joint vocabulary has one size, but model.source_vocabulary_size and "
                "model.target_vocabulary_size differ",
                "set vocabulary.joint: false, or one vocabulary_size");
  }
  // A model that was imported may have one numbering of pieces for both languages, and two ways of splitting text.
  if (!settings.vocabulary.joint && model.shared_embeddings == ModelSettings::SharedEmbeddings::all &&
      settings.training.init_from.empty()) {
    throw Error("model.shared_embeddings", "one embedding cannot serve two separate vocabularies",
                "set it to 'target' or 'none', or vocabulary.joint to true");
  }
  if (const auto& given = settings.data.vocabulary; !given.empty()) {
    const auto names = vocabulary_names_of(settings.vocabulary.joint);
    if (given.size() != names.size()) {
      throw Error("data.vocabulary",
                  fmt::format("names {} files, but vocabulary.joint: {} needs {}", given.size(),
                              settings.vocabulary.joint, names.size()),
                  settings.vocabulary.joint ? "name one, or set vocabulary.joint: false"
                                            : "name the source's and the target's, or set vocabulary.joint: true");
    }
    if (!settings.training.init_from.empty()) {
      throw Error("data.vocabulary", "cannot be given together with training.init_from",
                  "a model's weights are of use with its own vocabulary alone, which comes with them");
    }
  }
  if (settings.data.train_source.empty() || settings.data.train_target.empty()) {
    throw Error("data.train_source", "no training text is named",
                "name parallel files in data.train_source and data.train_target");
  }
  const auto check_pairs = [](const char* what, const std::vector<std::string>& sources,
                              const std::vector<std::string>& targets) {
    if (sources.size() == targets.size()) return;
    throw Error(fmt::format("data.{}_source", what),
                fmt::format("{} source files, but {} target files", sources.size(), targets.size()),
                "name them in pairs");
  };
  check_pairs("train", settings.data.train_source, settings.data.train_target);
  check_pairs("validation", settings.data.validation_source, settings.data.validation_target);
  const auto& training = settings.training;
  if (settings.data.validation_source.empty() && (training.patience > 0 || training.keep_best > 0)) {
    throw Error(training.patience > 0 ? "training.patience" : "training.keep_best", "there is no validation text",
                "name some in data.validation_source and data.validation_target");
  }
  check_weights(settings.data.train_weights, settings.data.train_source.size());
  check_tags(settings.data.train_tags, settings.data.train_source.size());
  if (learns_vocabularies(settings)) {
    check_symbols("data.train_tags", settings.data.train_tags, settings.vocabulary);
  }
  if (settings.data.max_length_ratio != 0 && settings.data.max_length_ratio < 1) {
    throw Error("data.max_length_ratio", fmt::format("{} leaves no pair", settings.data.max_length_ratio),
                "give 1 or more, or 0 for no limit");
  }
}

std::string model_summary(const ModelSettings& settings) {
  const auto s = settings.resolved();
  std::string text = fmt::format("parameters: {}\n", parameter_count(s));
  for (const auto& [part, count] : parameter_counts(s)) text += fmt::format("  {}: {}\n", part, count);
  text += fmt::format(
      "encoder layers {}, decoder layers {}, d_model {}, d_ff {}, heads {}, d_k {}, d_v {}\n"
      "vocabulary {} source, {} target; dropout {}, attention dropout {}\n",
      s.encoder_layers, s.decoder_layers, s.d_model, s.d_ff, s.heads, s.d_k, s.d_v, s.source_vocabulary_size,
      s.target_vocabulary_size, s.dropout, s.attention_dropout);
  text += s.variations();
  return text;
}

void check_inputs(const RunSettings& settings) {
  check_settings(settings);
  if (learns_vocabularies(settings)) check_told_nothing(settings.data);
  check_init_from(settings);
  check_given_vocabulary(settings, settings.model.resolved(), nullptr);
  check_texts(settings.data, nullptr);
}

std::string check_run(const RunSettings& settings, const RunOptions& options) {
  check_settings(settings);
  auto wanted = folder_options(settings, options);
  wanted.look_only = true;
  const RunFolder folder(settings.training.output, settings.config, settings.rules, wanted);
  check_profile(folder, settings, options);
  return check_new_run(settings, folder);
}

RunEnd run_training(Communicator& communicator, const std::string& device, const RunSettings& settings,
                    const RunHooks& hooks, const RunOptions& options) {
  check_settings(settings);
  const Log log = communicator.rank() == 0 ? hooks.log : Log();
  communicator.check_same("settings", shared_part(settings));
  const fs::path output = settings.training.output;
  std::optional<RunFolder> folder;  // of rank 0
  const auto tell_set_aside = [&] {
    const auto kept = folder ? folder->set_aside_text() : "";
    if (!kept.empty()) log.info(kept);
  };
  auto found = RunFolder::Found::nothing;
  communicator.on_rank_0([&] {
    folder.emplace(output, settings.config, settings.rules, folder_options(settings, options));
    found = folder->found();
    check_profile(*folder, settings, options);
    if (found == RunFolder::Found::finished_run) {
      log.info(fmt::format("this run is finished; raise {} to go on with it", setting_that_ended(output)));
    }
    if (found == RunFolder::Found::nothing) check_new_run(settings, *folder);
    folder->claim();
    if (found == RunFolder::Found::nothing) tell_set_aside();
  });
  const auto told = at::full({}, static_cast<int64_t>(found), at::kLong);
  communicator.broadcast({told});
  found = static_cast<RunFolder::Found>(told.item<int64_t>());
  if (found == RunFolder::Found::finished_run) return RunEnd::finished;
  const bool begun = found == RunFolder::Found::run;

  const auto model_settings = settings.model.resolved();
  std::optional<Vocabularies> vocabularies;
  communicator.on_rank_0([&] { vocabularies = prepare_vocabularies(settings, model_settings, output, *folder, log); });
  for (const auto& name : vocabulary_names_of(settings.vocabulary.joint)) {
    const auto file = output / name;
    communicator.check_shared(output.string(), fmt::format("rank 0's {}", name),
                              something_at(file) ? file_checksum(file) : "");
  }
  if (!vocabularies) {
    vocabularies =
        Vocabularies::load(output, model_settings.source_vocabulary_size, model_settings.target_vocabulary_size);
  }
  ModelFiles files{.contents = {{config_name, settings.config}}, .provenance = start_of(settings, output, begun)};
  for (const auto& name : vocabulary_names_of(settings.vocabulary.joint)) {
    files.contents.emplace_back(name, read_file(output / name));
  }
  const auto& data = settings.data;
  // As where somebody takes a saved configuration, which says all sizes, to train another model.
  if (const auto size = settings.model.vocabulary_size; !begun && size != ModelSettings().vocabulary_size &&
                                                        size != model_settings.source_vocabulary_size &&
                                                        size != model_settings.target_vocabulary_size) {
    log.warn(
        fmt::format("model.vocabulary_size ({}) has no effect: model.source_vocabulary_size ({}) and "
                    "model.target_vocabulary_size ({}) are given; set them to 0, or to the same",
                    size, model_settings.source_vocabulary_size, model_settings.target_vocabulary_size));
  }
  check_told(data, *vocabularies->source, *vocabularies->target);
  for (const auto& tag : distinct_tags(data.train_tags)) {
    const auto pieces = vocabularies->source->encode(tag);
    if (pieces.size() > longest_usual_tag) {
      log.warn(fmt::format("the tag {} is {} pieces of this vocabulary, which was learned without it", in_quotes(tag),
                           pieces.size()));
    }
  }
  // The cache lets one process tokenise a text and the others on its machine wait for it.
  const auto corpus = read_corpus(communicator, "training text", data.train_source, data.train_target, *vocabularies,
                                  {.max_length = data.max_length,
                                   .max_length_ratio = data.max_length_ratio,
                                   .cache = data.cache.empty() ? output / corpus_name : fs::path(data.cache),
                                   .source_language = data.source_language,
                                   .target_language = data.target_language,
                                   .tags = data.train_tags},
                                  log);
  const int64_t longest = corpus.longest(data.train_weights);
  if (const int64_t most = most_tokens(model_settings); longest > most) {
    throw Error(
        "data.max_length",
        fmt::format("a side of the training text has {} pieces, and model.max_positions ({}) leaves room for {}",
                    longest, model_settings.max_positions, most),
        fmt::format("set it to {} at most, or give the model more positions, or sinusoidal ones", most));
  }
  const auto checksum = corpus.checksum();
  communicator.on_rank_0([&] { folder->check_corpus(checksum); });
  const bool validates = !data.validation_source.empty() && hooks.validate;
  std::optional<Corpus> validation;
  if (validates) {
    validation =
        read_corpus(communicator, "validation text", data.validation_source, data.validation_target, *vocabularies,
                    {.max_length = longest_text(model_settings),
                     .keep_all = true,
                     .source_language = data.source_language,
                     .target_language = data.target_language},
                    log);
  }
  if (hooks.begins) hooks.begins();
  if (hooks.stop && communicator.any(*hooks.stop)) return RunEnd::interrupted;
  communicator.on_rank_0([&] {
    folder->begin(checksum);
    if (begun) tell_set_aside();
  });

  // LibTorch's generator on CPUs knows the last 32 bits of a seed alone.
  const auto seed = static_cast<uint64_t>(settings.training.seed);
  torch::manual_seed(seed >> 32 == 0 ? seed : Random(seed).next());
  Transformer model(model_settings, layer_drop(model_settings, settings.training.layer_drop));
  log.info(fmt::format("model: {} parameters", model->parameter_count()));
  if (const auto few = few_checkpoints(settings.training, begun); !few.empty()) log.warn(few);
  if (!begun && !settings.training.init_from.empty()) {
    const fs::path directory = settings.training.init_from;
    load_layers(model, directory / weights_name, read_model_settings(directory));
    log.info(fmt::format("starting from {}", described_start(settings)));
  }

  TrainerHooks trainer_hooks{.stop = hooks.stop, .checkpointed = [&] { folder->progressed(); }, .log = log};
  auto judge = [&](Transformer& judged, const std::string& name) {
    communicator.on_rank_0([&] {
      folder->check_in_place();
      if (settings.training.validate_bleu) fs::create_directory(output / validations_name);
    });
    return hooks.validate(communicator, judged, *vocabularies, *validation,
                          output / validations_name / (name + ".txt"));
  };
  if (validates) {
    trainer_hooks.judged_by = validation->checksum();
    if (settings.training.best_by == TrainingSettings::Criterion::bleu) {
      trainer_hooks.judged_by += "\n" + decoding_of(settings);
    }
    trainer_hooks.validate = [&](torch::nn::Module&, int64_t step) {
      return judge(model, fmt::format("{}{:08}", step_prefix, step));
    };
  }
  auto training = settings.training;
  training.device = device;
  std::vector<std::vector<int64_t>> tags;
  for (const auto& tag : data.train_tags) tags.push_back(vocabularies->source->encode(tag));
  const TrainingText text{corpus, data.train_weights, *vocabularies, training.subword_sampling, tags};
  Trainer trainer(communicator, translation_task(model, text, training), training, output, files, trainer_hooks);
  communicator.on_rank_0([&] { folder->check_in_place(); });  // the trainer has hold of the same one
  if (begun) log.info(fmt::format("going on from {}", trainer.resume().string()));
  const auto summary = trainer.run(options.profile_steps);
  const auto interrupted = [&] {
    communicator.on_rank_0([&] { folder->check_in_place(); });  // or nothing goes on from there
    // A launcher's agent repeats the call, which is then done once.
    const auto& asked = options.folder;
    const char* without = !asked.agents.empty() ? ""
                          : asked.restart       ? " without --restart"
                          : asked.from.empty()  ? ""
                                                : " without --from";
    log.info(fmt::format("stopped after step {}; the same command{} goes on from there", summary.steps, without));
    tell_set_aside();
    return RunEnd::interrupted;
  };
  if (summary.end == TrainingSummary::End::interruption) return interrupted();
  if (summary.end == TrainingSummary::End::time) {
    log.info(fmt::format("training.max_minutes ({:g}) are over: training ends at step {}", training.max_minutes,
                         summary.steps));
  }
  if (summary.end == TrainingSummary::End::patience) {
    log.info(fmt::format("{} without a new best: training ends at step {}", counted(training.patience, "validation"),
                         summary.steps));
  }
  TensorMap weights;  // of rank 0
  size_t averaged = 0;
  communicator.on_rank_0([&] {
    std::tie(weights, averaged) = average_run(trainer, training, log);
    torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) item.value().copy_(weights.at(item.key()));
  });
  // Judged before it is written: a model that diverged is not published.
  std::optional<Validation> final_validation;
  if (validates) {
    communicator.broadcast(model->parameters());
    model->eval();
    final_validation = judge(model, "final");
    if (final_validation->abandoned) return interrupted();  // its checkpoints are those of the end
  }
  communicator.on_rank_0([&] {
    folder->check_in_place();
    if (final_validation) trainer.record_final(*final_validation);
    write_model_directory(output, weights, files);
    summarize(summary, training, communicator.world_size(), model->parameter_count(), averaged, final_validation,
              output, log);
    folder->progressed();
    trainer.prune();
  });
  return RunEnd::finished;
}

}  // namespace transformer
