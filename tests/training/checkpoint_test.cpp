#include "transformer/training/checkpoint.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "error_of.h"
#include "support.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/training/adam.h"

using namespace transformer;
using transformer::test::error_of;
using transformer::test::read_file;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;

namespace {

namespace fs = std::filesystem;

const ModelFiles some_files = {.contents = {{"config.yaml", "format: 1\n"}, {"vocabulary.model", "pieces"}}};

// A model with its optimizer, of which no number is that of another.
struct Training {
  Transformer model{nullptr};
  std::optional<Adam> adam;
  std::optional<MovingAverage> average;
  Progress progress;

  explicit Training(int64_t seed) {
    ModelSettings settings;
    settings.d_model = 8;
    settings.d_ff = 8;
    settings.heads = 2;
    settings.encoder_layers = settings.decoder_layers = 1;
    settings.vocabulary_size = 11;
    torch::manual_seed(seed);
    model = Transformer(settings);
    std::vector<std::pair<std::string, torch::Tensor>> parameters;
    for (const auto& item : model->named_parameters()) parameters.emplace_back(item.key(), item.value());
    adam.emplace(parameters, Adam::Options{});
    average.emplace(parameters, 0.5);
    for (int step = 1; step <= 2; ++step) {
      for (auto& [name, parameter] : parameters) parameter.mutable_grad() = torch::randn_like(parameter);
      adam->step(0.01);
      average->update(step);
    }
    const double n = static_cast<double>(seed);
    progress = {.step = seed,
                .epoch = seed + 1,
                .batch = seed + 2,
                .batch_state = "state " + std::to_string(seed),
                .micro_batch_tokens = seed + 3,
                .micro_batch_costs = "costs " + std::to_string(seed),
                .source_tokens = seed + 4,
                .target_tokens = seed + 5,
                .flops = n + 0.25,
                .seconds = n + 0.125,
                .process_seconds = n + 0.375,
                .metrics_bytes = seed + 6,
                .best = {{seed + 7, n + 0.5}, {seed + 8, n + 0.75}},
                .validations_since_best = seed + 9,
                .validation_due = 1,
                .judged_by = "text " + std::to_string(seed),
                .products = "bf16",
                .window_loss = n + 0.0625,
                .window_nll = n + 0.375,
                .window_tokens = seed + 10};
  }

  TrainingState state(bool with_average = false) {
    return {*model, *adam, with_average ? &*average : nullptr, progress};
  }

  // Weights, moments and averages by name.
  TensorMap tensors(bool with_average) const {
    TensorMap all;
    for (const auto& [name, value] : weights_of(*model)) all.emplace("weight." + name, value.detach().clone());
    for (const auto& [name, value] : adam->state()) all.emplace(name, value.clone());
    if (with_average) {
      for (const auto& [name, value] : average->values()) all.emplace("average." + name, value.clone());
    }
    return all;
  }
};

bool same(const TensorMap& a, const TensorMap& b) {
  bool equal = a.size() == b.size();
  for (const auto& [name, tensor] : a) equal = equal && b.contains(name) && torch::equal(tensor, b.at(name));
  return equal;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> names_of(const std::vector<fs::path>& paths) {
  std::vector<std::string> names;
  for (const auto& path : paths) names.push_back(path.filename().string());
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a checkpoint gives back every number that went into it") {
  const bool with_average = GENERATE(false, true);
  TemporaryDirectory run;
  Training saved(3), loaded(4);
  const auto before = saved.tensors(with_average);
  REQUIRE_FALSE(same(before, loaded.tensors(with_average)));
  const auto checkpoint = write_checkpoint(run.path(), saved.state(with_average), some_files);
  CHECK(checkpoint == run / "checkpoints" / "step-00000003");
  load_checkpoint(checkpoint, loaded.state(with_average));
  CHECK(same(before, loaded.tensors(with_average)));
  const auto& p = loaded.progress;
  CHECK(p.step == 3);
  CHECK(p.epoch == 4);
  CHECK(p.batch == 5);
  CHECK(p.batch_state == "state 3");
  CHECK(p.micro_batch_tokens == 6);
  CHECK(p.micro_batch_costs == "costs 3");
  CHECK(p.validation_due == 1);
  CHECK(p.judged_by == "text 3");
  CHECK(p.products == "bf16");
  CHECK(p.source_tokens == 7);
  CHECK(p.target_tokens == 8);
  CHECK(p.flops == 3.25);
  CHECK(p.seconds == 3.125);
  CHECK(p.metrics_bytes == 9);
  REQUIRE(p.best.size() == 2);
  CHECK(p.best[0].step == 10);
  CHECK(p.best[0].value == 3.5);
  CHECK(p.best[1].step == 11);
  CHECK(p.best[1].value == 3.75);
  CHECK(p.validations_since_best == 12);
  CHECK(p.window_loss == 3.0625);
  CHECK(p.window_nll == 3.375);
  CHECK(p.window_tokens == 13);
  // What it holds as a model directory: the averages where there are some, else the weights themselves.
  const auto model = read_tensors(checkpoint / "model.safetensors").tensors;
  for (const auto& [name, value] : model) {
    INFO(name);
    CHECK(torch::equal(value, before.at((with_average ? "average." : "weight.") + name)));
  }
  CHECK(read_file(checkpoint / "config.yaml") == "format: 1\n");
  CHECK(read_file(checkpoint / "vocabulary.model") == "pieces");
}

TEST_CASE("writing and reading checkpoints leaves no file open") {
  TemporaryDirectory run;
  Training training(3);
  const auto open_files = [] { return names_in("/proc/self/fd").size(); };
  const auto before = open_files();
  for (int i = 0; i < 3; ++i)
    load_checkpoint(write_checkpoint(run.path(), training.state(), some_files), training.state());
  CHECK(open_files() == before);
}

TEST_CASE("a checkpoint without the weights under its averages is refused") {
  TemporaryDirectory run;
  Training saved(3), loaded(4);
  const auto checkpoint = write_checkpoint(run.path(), saved.state(), some_files);
  CHECK_THAT(error_of([&] { load_checkpoint(checkpoint, loaded.state(true)); }),
             Contains("optimizer.safetensors") && Contains("missing"));
}

TEST_CASE("a checkpoint of another format is refused as such") {
  TemporaryDirectory directory;
  Training saved(3), loaded(4);
  const auto checkpoint = write_checkpoint(directory.path(), saved.state(), some_files);
  auto progress = nlohmann::json::parse(read_file(checkpoint / "progress.json"));
  REQUIRE(progress.at("format") == 1);
  // With checksums that are right.
  const auto load = [&](const nlohmann::json& changed) {
    write_file(checkpoint / "progress.json", changed.dump());
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
      if (entry.path().filename() != checksums_name) names.push_back(entry.path().filename().string());
    }
    write_checksums(checkpoint, names);
    return error_of([&] { load_checkpoint(checkpoint, loaded.state()); });
  };
  progress["format"] = 2;
  CHECK_THAT(load(progress), Contains("progress.json") && Contains("format"));
  // Fields that version 0.1's first builds did not write may be missing, and no others.
  progress["format"] = 1;
  const std::set<std::string> newer = {
      "batch_state",        "batch_tokens",         "of_the_end",          "judged_by",    "products",
      "micro_batch_tokens", "window_gradient_norm", "window_largest_norm", "window_steps", "validation_due",
      "process_seconds",    "for_validation",       "micro_batch_costs"};
  for (const auto& [name, value] : progress.items()) {
    auto lacking = progress;
    lacking.erase(name);
    const auto message = load(lacking);
    INFO(name);
    if (newer.contains(name)) {
      CHECK(message.empty());
    } else {
      CHECK_THAT(message, Contains("progress.json") && Contains("damaged"));
    }
  }
  auto lacking = progress;
  lacking.erase("micro_batch_tokens");
  CHECK(load(lacking).empty());
  CHECK(loaded.progress.micro_batch_tokens == 0);
}

TEST_CASE("a checkpoint that cannot be written is no checkpoint, and the older ones stay") {
  TemporaryDirectory run;
  Training training(3);
  write_checkpoint(run.path(), training.state(), some_files);
  training.progress.step = 4;
  auto files = some_files;
  files.contents.emplace_back("no/such/folder", "text");
  CHECK_THROWS_AS(write_checkpoint(run.path(), training.state(), files), std::runtime_error);
  CHECK(names_in(run / "checkpoints") == Names{"step-00000003"});
  // Nor where there cannot be a folder for it.
  TemporaryDirectory other;
  write_file(other / "checkpoints", "a file");
  CHECK_THROWS_AS(write_checkpoint(other.path(), training.state(), some_files), Failure);
  CHECK(read_file(other / "checkpoints") == "a file");
  // Nor where the run's folder is gone, which is not made anew.
  CHECK_THROWS_AS(write_checkpoint(run / "gone", training.state(), some_files), Failure);
  CHECK_FALSE(fs::exists(run / "gone"));
}

TEST_CASE("what was half written is overwritten by the same step's checkpoint") {
  TemporaryDirectory run;
  Training training(3);
  fs::create_directories(run / "checkpoints" / ".partial-step-00000003");
  write_file(run / "checkpoints" / ".partial-step-00000003" / "left", "over");
  const auto checkpoint = write_checkpoint(run.path(), training.state(), some_files);
  CHECK(names_in(run / "checkpoints") == Names{"step-00000003"});
  CHECK_FALSE(fs::exists(checkpoint / "left"));
  Training loaded(4);
  load_checkpoint(checkpoint, loaded.state());
  CHECK(same(loaded.tensors(false), training.tensors(false)));
}

TEST_CASE("checkpoints are listed by their steps, beyond eight digits too") {
  TemporaryDirectory run;
  CHECK(list_checkpoints(run.path()).empty());
  for (const char* name : {"step-00000010", "step-00000009", "step-100000000", "interrupted-step-00000011",
                           "damaged-step-00000012", ".partial-step-00000013", "notes"}) {
    fs::create_directories(run / "checkpoints" / name);
    write_file(run / "checkpoints" / name / "progress.json", "text");
  }
  fs::create_directories(run / "checkpoints" / "step-00000998");  // of somebody's, who has put nothing of a run into it
  write_file(run / "checkpoints" / "step-00000998" / "mine.txt", "text");
  CHECK(names_of(list_checkpoints(run.path())) == Names{"step-00000009", "step-00000010", "step-100000000"});
  CHECK(names_of(resumable_checkpoints(run.path())) ==
        Names{"step-100000000", "interrupted-step-00000011", "step-00000010", "step-00000009"});
  CHECK(checkpoint_step("a-7/step-00000123") == 123);
  CHECK(checkpoint_step("interrupted-step-00000040") == 40);
  for (const char* name : {"notes", "step-", "step-backup", "step-0000004", "12", ""}) {
    INFO(name);
    CHECK(checkpoint_step(name) == -1);
  }
}

TEST_CASE("a checkpoint's name says its step, why it was written and what became of it") {
  using State = CheckpointName::State;
  const auto is = [](const char* name, State state, CheckpointKind kind, int64_t step) {
    const auto parsed = parse_checkpoint_name(name);
    return parsed && parsed->state == state && parsed->kind == kind && parsed->step == step;
  };
  const auto scheduled = CheckpointKind::scheduled, interruption = CheckpointKind::interruption;
  CHECK(is("step-00000010", State::whole, scheduled, 10));
  CHECK(is("step-123456789", State::whole, scheduled, 123456789));
  CHECK(is("interrupted-step-00000011", State::whole, interruption, 11));
  CHECK(is(".partial-step-00000012", State::partial, scheduled, 12));
  CHECK(is(".partial-interrupted-step-00000013", State::partial, interruption, 13));
  CHECK(is("damaged-step-00000014", State::damaged, scheduled, 14));
  CHECK(is("damaged-interrupted-step-00000015-2", State::damaged, interruption, 15));
  for (const char* name : {"", "step-", "step-0000001", "step-backup", "step--00000001", "step-00000001x",
                           "step-00000001.old", "step-00000001-2", "damaged-step-00000001-", "damaged-step-00000001-2x",
                           "interrupted-damaged-step-00000001", "step-99999999999999999999", "my-step-00000001"}) {
    INFO(name);
    CHECK_FALSE(parse_checkpoint_name(name));
  }
}

TEST_CASE("pruning deletes what is neither among the newest nor the best, and what was gone on from") {
  const int64_t keep = GENERATE(1, 2, 3, 9);
  TemporaryDirectory run;
  const auto folder = run / "checkpoints";
  std::vector<int64_t> steps = {10, 20, 30, 40, 50};
  for (const int64_t step : steps) {
    fs::create_directories(folder / fmt::format("step-{:08}", step));
    write_file(folder / fmt::format("step-{:08}", step) / "progress.json", "text");
  }
  for (const char* name : {"interrupted-step-00000049", "interrupted-step-00000050", "interrupted-step-00000051",
                           "damaged-step-00000060", ".partial-step-00000045"}) {
    fs::create_directories(folder / name);
    write_file(folder / name / "progress.json", "text");
  }
  const std::set<int64_t> best = {20, 30};
  prune_checkpoints(run.path(), keep, best);
  Names expected = {"damaged-step-00000060", "interrupted-step-00000051"};
  for (size_t i = 0; i < steps.size(); ++i) {
    if (best.contains(steps[i]) || i + keep >= steps.size()) expected.push_back(fmt::format("step-{:08}", steps[i]));
  }
  CHECK(names_in(folder) == expected);
}

TEST_CASE("the last scheduled checkpoint stays, however few are asked for") {
  TemporaryDirectory run;
  for (const char* name : {"step-00000002", "step-00000007"}) {
    fs::create_directories(run / "checkpoints" / name);
    write_file(run / "checkpoints" / name / "progress.json", "text");
  }
  prune_checkpoints(run.path(), GENERATE(0, -3));
  CHECK(names_in(run / "checkpoints") == Names{"step-00000007"});
}

TEST_CASE("an interruption's checkpoint stays while there is no other") {
  TemporaryDirectory run;
  fs::create_directories(run / "checkpoints" / "interrupted-step-00000005");
  write_file(run / "checkpoints" / "interrupted-step-00000005" / "progress.json", "text");
  prune_checkpoints(run.path(), 1);
  CHECK(names_in(run / "checkpoints") == Names{"interrupted-step-00000005"});
}

TEST_CASE("interruptions between two scheduled checkpoints leave so many, and whatever else there is") {
  TemporaryDirectory run;
  const auto folder = run / "checkpoints";
  for (const char* name : {"interrupted-step-00000003", "interrupted-step-00000005", "interrupted-step-00000009",
                           "damaged-step-00000001", "step-00000002", "step-00000007"}) {
    fs::create_directories(folder / name);
    write_file(folder / name / "progress.json", "text");
  }
  prune_interruptions(run.path(), 3);
  CHECK(names_in(folder).size() == 6);
  prune_interruptions(run.path(), 2);
  CHECK(names_in(folder) == Names{"damaged-step-00000001", "interrupted-step-00000005", "interrupted-step-00000009",
                                  "step-00000002", "step-00000007"});
}

TEST_CASE("a checkpoint that becomes an interruption's replaces one of its step, but nothing of somebody's") {
  TemporaryDirectory run;
  Training training(7);
  const auto state = training.state();
  const auto interrupted = write_checkpoint(run.path(), state, some_files, CheckpointKind::interruption);
  const auto scheduled = write_checkpoint(run.path(), state, some_files);
  make_interruption(scheduled);
  CHECK(resumable_checkpoints(run.path()) == std::vector{interrupted});
  write_checkpoint(run.path(), state, some_files);
  write_file(interrupted / "notes.txt", "mine");
  make_interruption(scheduled);
  CHECK(list_checkpoints(run.path()) == std::vector{scheduled});
  CHECK(read_file(interrupted / "notes.txt") == "mine");
}

TEST_CASE("all damaged checkpoints newer than the one that is used are set aside, older ones not looked at") {
  TemporaryDirectory run;
  Training training(1);
  for (int64_t step = 1; step <= 4; ++step) {
    training.progress.step = step;
    write_checkpoint(run.path(), training.state(), some_files);
  }
  for (const int step : {1, 3, 4}) {
    write_file(run / "checkpoints" / fmt::format("step-{:08}", step) / "model.safetensors", "damage");
  }
  Training loaded(9);
  CHECK(load_newest_checkpoint(run.path(), loaded.state()).filename() == "step-00000002");
  CHECK(loaded.progress.step == 2);
  CHECK(names_in(run / "checkpoints") ==
        Names{"damaged-step-00000003", "damaged-step-00000004", "step-00000001", "step-00000002"});
}

TEST_CASE("a checkpoint that cannot be read ends the start, and only one whose files are not its own is damaged") {
  TemporaryDirectory run;
  Training training(1), loaded(9);
  for (training.progress.step = 1; training.progress.step <= 2; ++training.progress.step) {
    write_checkpoint(run.path(), training.state(), some_files);
  }
  const auto newest = run / "checkpoints" / "step-00000002";
  const auto load = [&] { return load_newest_checkpoint(run.path(), loaded.state()).filename(); };
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "progress.json", checksums_name}) {
    INFO(name);
    const auto file = newest / name;
    fs::rename(file, run / "aside");
    // A circle, a disk that is not mounted, one that fails.
    for (const char* target : {name, "/not/mounted", "/proc/self/mem"}) {
      INFO(target);
      fs::create_symlink(target, file);
      CHECK_THROWS_AS(load(), Failure);
      CHECK_THROWS_WITH(load(), Contains(file.string()));
      CHECK(names_in(run / "checkpoints") == Names{"step-00000001", "step-00000002"});
      fs::remove(file);
    }
    fs::rename(run / "aside", file);
    CHECK(load() == "step-00000002");
  }
  SECTION("missing") {
    fs::remove(newest / "progress.json");
  }
  SECTION("a folder in a file's place") {
    fs::remove(newest / "progress.json");
    fs::create_directory(newest / "progress.json");
  }
  CHECK(load() == "step-00000001");
  CHECK(names_in(run / "checkpoints") == Names{"damaged-step-00000002", "step-00000001"});
}

TEST_CASE("a model directory is its weights, its files and the checksums of all") {
  TemporaryDirectory parent;
  const auto directory = parent / "a" / "b";
  const TensorMap weights{{"w", torch::tensor({1.0f, 1.00390625f, 3.0f})}};
  write_model_directory(directory, weights, some_files);
  CHECK(names_in(directory) == Names{"checksums.xxh128", "config.yaml", "model.safetensors", "vocabulary.model"});
  CHECK(torch::equal(read_tensors(directory / "model.safetensors").tensors.at("w"), weights.at("w")));
  const auto checksums = read_file(directory / "checksums.xxh128");
  for (const char* name : {"config.yaml", "model.safetensors", "vocabulary.model"}) {
    CHECK_THAT(checksums, Contains(name));
  }
  write_model_directory(directory, weights, some_files, torch::kBFloat16);
  const auto rounded = read_tensors(directory / "model.safetensors").tensors.at("w");
  CHECK(rounded.scalar_type() == torch::kBFloat16);
  CHECK(rounded[2].item<float>() == 3);
  CHECK(read_file(directory / "checksums.xxh128") != checksums);
  // A folder that cannot be made, and an old model's checksums that cannot go, end it before anything is written.
  write_file(parent / "file", "");
  CHECK_THROWS_AS(write_model_directory(parent / "file" / "model", weights, some_files), Error);
  fs::create_directories(parent / "c" / "checksums.xxh128" / "occupied");
  CHECK_THROWS_AS(write_model_directory(parent / "c", weights, some_files), Failure);
  CHECK(names_in(parent / "c") == Names{"checksums.xxh128"});
}

TEST_CASE("the files of a model directory are found, and what is missing is named") {
  TemporaryDirectory directory;
  const auto names = [&] { return model_file_names(directory.path()); };
  CHECK_THAT(error_of(names), StartsWith(directory.path().string()) && Contains("config.yaml is missing"));
  write_file(directory / "vocabulary.model", "");
  write_file(directory / "target.model", "");
  CHECK_THAT(error_of(names), Contains("config.yaml is missing"));
  write_file(directory / "config.yaml", "");
  CHECK(names() == Names{"config.yaml", "vocabulary.model", "target.model"});
  fs::remove(directory / "vocabulary.model");
  CHECK(names() == Names{"config.yaml", "target.model"});
  fs::remove(directory / "target.model");
  CHECK_THAT(error_of(names), Contains("its vocabulary is missing"));
}
