#include "transformer/training/run_folder.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "catch.h"
#include "error_of.h"
#include "support.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/run_files.h"
#include "transformer/training/checkpoint.h"

using namespace transformer;
using transformer::test::error_of;
using transformer::test::read_file;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;
namespace fs = std::filesystem;

namespace {

const std::map<std::string, SettingRule> rules = {{"data.text", {SettingKind::fixed, "a"}},
                                                  {"training.clip_norm", {SettingKind::changeable, "0.0"}},
                                                  {"training.schedule", {SettingKind::changeable, "noam"}},
                                                  {"training.steps", {SettingKind::changeable, "10"}},
                                                  {"training.threads", {SettingKind::free, "0"}},
                                                  {"training.log_every", {SettingKind::free, "100"}},
                                                  {"training.init_from", {SettingKind::fixed, "\"\""}},
                                                  {"training.newer", {SettingKind::fixed, "none"}},
                                                  {"training.best_by", {SettingKind::fixed, "perplexity"}},
                                                  {"decoding.beam", {SettingKind::free, "4"}},
                                                  {"decoding.proposals", {SettingKind::free, "8"}}};

struct Given {
  std::string text = "a", clip = "0.0", schedule = "noam", steps = "10", threads = "0", log_every = "100",
              init_from = "\"\"", best_by = "perplexity", beam = "4", proposals = "8";
  std::string yaml() const {
    return fmt::format(
        "format: 1\n\ndata:\n  text: {}\n\ntraining:\n  clip_norm: {}\n  schedule: {}\n  steps: {}\n  threads: {}\n  "
        "log_every: {}\n  init_from: {}\n  newer: none\n  best_by: {}\n\ndecoding:\n  beam: {}\n  proposals: {}\n",
        text, clip, schedule, steps, threads, log_every, init_from, best_by, beam, proposals);
  }
};

struct Run {
  TemporaryDirectory directory;
  fs::path folder = directory / "run";

  RunFolder open(const Given& given = {}, const RunFolderOptions& options = {}) const {
    return {folder, given.yaml(), rules, options};
  }
  void checkpoint(int64_t step, const Given& given = {}, const std::string& kind = "") const {
    const auto checkpoint = folder / "checkpoints" / fmt::format("{}step-{:08}", kind, step);
    fs::create_directories(checkpoint);
    const std::vector<std::string> names = {"model.safetensors", "optimizer.safetensors", "progress.json",
                                            "config.yaml", "vocabulary.model"};
    for (const auto& name : names) {
      write_file(checkpoint / name, name == "config.yaml" ? given.yaml()
                                    : name == "vocabulary.model" && fs::exists(folder / name)
                                        ? read_file(folder / name)
                                        : fmt::format("{} {}", name, step));
    }
    write_checksums(checkpoint, names);
  }
  // A run that has trained 10 steps.
  void train(const Given& given = {}) const {
    auto run = open(given);
    run.claim();
    run.put_vocabulary("vocabulary.model", "pieces");
    run.begin("checksum");
    for (int64_t step : {2, 6, 10}) checkpoint(step, given);
    write_file(folder / "metrics.jsonl", "ten steps\n");
    write_file(folder / events_name, "of ten steps");
    fs::create_directory(folder / "validation");
    write_file(folder / "validation/step-00000006.txt", "six");
    for (const char* name : {"model.safetensors", "checksums.xxh128", "summary.json"}) write_file(folder / name, name);
    fs::create_directory(folder / "corpus");
    write_file(folder / "corpus/texts.json", "{}");
  }
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const auto name = entry.path().lexically_relative(folder).string();
      if (name == ".lock" || name == RunFolder::record_name) continue;
      found[name] = entry.is_regular_file() ? read_file(entry.path()) : "";
    }
    return found;
  }
  nlohmann::json record() const { return nlohmann::json::parse(read_file(folder / RunFolder::record_name)); }
  void set_stage(const std::string& stage) const {
    auto json = record();
    json["set_aside"]["stage"] = stage;
    write_file(folder / RunFolder::record_name, json.dump());
  }
};

using Found = RunFolder::Found;

}  // namespace

TEST_CASE("a new run records its names before it makes anything") {
  Run run;
  fs::create_directories(run.folder / "checkpoints");  // an empty one may be used
  write_file(run.folder / "vocabulary.model", "the user's");
  write_file(run.folder / "notes.txt", "mine");
  auto folder = run.open();
  CHECK(folder.found() == Found::nothing);
  CHECK(folder.keeps("vocabulary.model"));
  CHECK_FALSE(fs::exists(run.folder / ".lock"));
  folder.claim();
  const auto files = run.record()["files"].get<std::set<std::string>>();
  CHECK(files.contains("config.yaml"));
  CHECK(files.contains("model.safetensors"));
  CHECK(files.contains("checkpoints"));
  CHECK_FALSE(files.contains("vocabulary.model"));
  CHECK_FALSE(files.contains("notes.txt"));
  CHECK_THAT(error_of([&] { run.open(); }), Contains("another run is working"));
}

TEST_CASE("a file of the user's where a run writes is refused and named") {
  for (const std::string name : {"config.yaml", "model.safetensors", "metrics.jsonl", "checksums.xxh128", "trace.json",
                                 "summary.json", "corpus/a", "validation/a", "checkpoints/a", "run.json"}) {
    for (const bool restart : {false, true}) {
      Run run;
      fs::create_directories((run.folder / name).parent_path());
      write_file(run.folder / name, "mine");
      CHECK_THAT(error_of([&] { run.open({}, {.restart = restart, .profile = true}); }),
                 Contains(run.folder.string()) && Contains("training.output"));
      CHECK(read_file(run.folder / name) == "mine");
      CHECK_FALSE(fs::exists(run.folder / ".lock"));
    }
  }
}

TEST_CASE("settings of three kinds") {
  Run run;
  run.train();
  CHECK(run.open().found() == Found::finished_run);
  CHECK(run.open({.threads = "4"}).found() == Found::finished_run);
  CHECK(run.open({.log_every = "1"}).found() == Found::run);
  CHECK(run.open({.steps = "20"}).found() == Found::run);
  const auto refused = [&](const Given& given, const RunFolderOptions& options = {}) {
    return error_of([&] { run.open(given, options); });
  };
  CHECK_THAT(refused({.text = "b"}), Contains("data.text: a there, b now") && Contains("--restart"));
  CHECK_THAT(refused({.text = "b"}, {.from = "last"}), Contains("data.text: a there, b now"));
  CHECK_THAT(refused({.clip = "1.0"}, {.command = "train my.yaml"}),
             Contains("training.clip_norm: 0.0 there, 1.0 now") && Contains("train my.yaml --from last"));
  CHECK_THAT(refused({.schedule = "linear", .steps = "20"}),
             Contains("training.schedule") && Contains("training.steps: 10 there, 20 now"));
  for (const char* from : {"x", "-1", "7", "10x", "", "99999999999999999999"}) {
    if (*from) CHECK_THAT(refused({}, {.from = from}), Contains("--from"));
  }
  CHECK_THAT(refused({}, {.restart = true, .from = "last"}), Contains("--restart"));
  Run empty;
  CHECK_THAT(error_of([&] { empty.open({}, {.from = "last"}); }), Contains("--from: there is no run"));
}

TEST_CASE("how validations translate is changed by asking for it where it decides what is the best") {
  Run run;
  run.train();
  CHECK(run.open({.beam = "1"}).found() == Found::run);
  Run by_bleu;
  by_bleu.train({.best_by = "bleu"});
  CHECK(by_bleu.open({.best_by = "bleu", .proposals = "0"}).found() == Found::run);
  CHECK_THAT(error_of([&] { by_bleu.open({.best_by = "bleu", .beam = "1"}); }),
             Contains("decoding.beam: 4 there, 1 now") && Contains("--from last"));
  CHECK(by_bleu.open({.best_by = "bleu", .beam = "1"}, {.from = "6"}).found() == Found::run);
}

TEST_CASE("a folder is the same however its name is completed") {
  const Run run;
  run.train({.init_from = "runs/base"});
  for (const char* same : {"runs/base/", "./runs/base", "runs//base", "runs/other/../base/"}) {
    CHECK(run.open({.init_from = same}).found() == Found::run);
  }
  for (const char* other : {"runs/bases", "base", "\"\""}) {
    CHECK_THAT(error_of([&] { run.open({.init_from = other}); }), Contains("training.init_from: runs/base there"));
  }
}

TEST_CASE("what others write to is not where the run writes") {
  const Run run;
  const auto folder = run.open();
  for (const char* name :
       {"model.safetensors", "summary.json", "metrics.jsonl", "config.yaml", "run.json", "corpus", "vocabulary.model",
        "source.model", "validation/final.txt", "checkpoints", "validation/a/b"}) {
    CHECK_THAT(error_of([&] { folder.check_apart("data.cache", run.folder / name); }),
               Contains("data.cache: ") && Contains("is where the run writes its"));
  }
  CHECK_NOTHROW(folder.check_apart("data.cache", run.folder / "cache"));
  CHECK_NOTHROW(folder.check_apart("data.cache", run.folder / "metrics.jsonl.d"));
  CHECK_NOTHROW(folder.check_apart("data.cache", run.folder));
}

TEST_CASE("what a killed process left of a run's files goes when the run goes on") {
  const Run run;
  run.train();
  for (const char* name : {".writing-2147483647-3", "validation/.writing-2147483647-0"}) {
    write_file(run.folder / name, "half");
    fs::last_write_time(run.folder / name, fs::file_time_type::clock::now() - std::chrono::hours(3));
  }
  const auto before = run.contents().size();
  run.open({}, {.look_only = true}).claim();
  CHECK(run.contents().size() == before);
  run.open().claim();
  CHECK(run.contents().size() == before - 2);
}

TEST_CASE("what somebody makes of a run's config.yaml does not change what the run was") {
  for (const bool finished : {true, false}) {
    Run run;
    run.train();
    if (!finished) fs::remove(run.folder / "summary.json");
    // Given as the settings of the run itself.
    write_file(run.folder / "config.yaml", Given{.text = "b"}.yaml());
    CHECK_THAT(error_of([&] { run.open({.text = "b"}); }),
               Contains("data.text: a there, b now") && Contains("--restart"));
    write_file(run.folder / "config.yaml", Given{.clip = "1.0"}.yaml());
    CHECK_THAT(error_of([&] { run.open({.clip = "1.0"}); }), Contains("training.clip_norm: 0.0 there, 1.0 now"));
    write_file(run.folder / "config.yaml", Given{.steps = "20"}.yaml());
    CHECK(run.open({.steps = "20"}).found() == Found::run);
    // What it was is what it is.
    CHECK(run.open().found() == (finished ? Found::finished_run : Found::run));
    CHECK(read_file(run.folder / "config.yaml") == Given{.steps = "20"}.yaml());
  }
  // Changes since the newest checkpoint count.
  Run run;
  run.train();
  {
    auto changed = run.open({.clip = "1.0", .steps = "20"}, {.from = "last"});
    changed.claim();
    changed.begin("checksum");
  }
  write_file(run.folder / "config.yaml", Given{.text = "b"}.yaml());
  CHECK(run.open({.clip = "1.0", .steps = "20"}).found() == Found::run);
  CHECK_THAT(error_of([&] { run.open({.steps = "20"}); }), Contains("training.clip_norm: 1.0 there, 0.0 now"));
  // Without a checkpoint nothing is worth keeping.
  Run none;
  {
    auto begun = none.open();
    begun.claim();
    begun.put_vocabulary("vocabulary.model", "pieces");
  }
  CHECK(none.open().keeps("vocabulary.model"));
  write_file(none.folder / "config.yaml", Given{.text = "b"}.yaml());
  CHECK_FALSE(none.open({.text = "b"}).keeps("vocabulary.model"));
}

TEST_CASE("a run goes on with the vocabulary that it has, and no other") {
  Run run;
  run.train();
  fs::remove(run.folder / "vocabulary.model");
  for (const char* from : {"", "6"}) {
    RunFolder folder = run.open({.steps = "20"}, {.from = from});
    CHECK(folder.brings_back("vocabulary.model"));
    folder.claim();
    CHECK(read_file(run.folder / "vocabulary.model") == "pieces");
    fs::remove(run.folder / "vocabulary.model");
  }
  write_file(run.folder / "vocabulary.model", "others");
  for (const char* from : {"", "6"}) {
    CHECK_THAT(error_of([&] { run.open({.steps = "20"}, {.from = from}); }),
               Contains("another vocabulary than the run was trained with") &&
                   Contains(*from ? "step-00000006" : "step-00000010"));
  }
  CHECK(run.open({}, {.restart = true}).found() == Found::nothing);
}

TEST_CASE("a finished run whose checkpoints are gone is finished all the same") {
  Run run;
  run.train();
  fs::remove_all(run.folder / "checkpoints");
  CHECK(run.open().found() == Found::finished_run);
  CHECK(run.open({.threads = "4"}).found() == Found::finished_run);
  for (const auto& given : {Given{.steps = "20"}, Given{.text = "b"}}) {
    CHECK_THAT(error_of([&] { run.open(given); }), Contains("without the checkpoints to go on from"));
  }
  fs::remove(run.folder / "summary.json");
  CHECK_THAT(error_of([&] { run.open(); }), Contains("without the checkpoints to go on from"));
}

TEST_CASE("a run goes on from an earlier checkpoint with other settings") {
  Run run;
  run.train();
  const auto before = run.contents();
  const Given clipped{.clip = "1.0"};
  {
    auto folder = run.open(clipped, {.from = "6"});
    CHECK(run.contents() == before);
    folder.claim();
    folder.begin("checksum");
    CHECK(list_checkpoints(run.folder).size() == 2);
    CHECK(read_file(run.folder / "config.yaml") == clipped.yaml());
    CHECK_FALSE(fs::exists(run.folder / "model.safetensors"));
    CHECK(run.record()["changes"] ==
          nlohmann::json::parse(R"([{"step": 6, "setting": "training.clip_norm", "before": "0.0", "after": "1.0"}])"));
    write_file(run.folder / "metrics.jsonl", "six steps\n");
    folder.progressed();  // there is none
  }
  SECTION("undone") {
    RunFolder::undo(run.folder);
    CHECK(run.contents() == before);
    CHECK(run.record()["changes"].empty());
    CHECK_THAT(error_of([&] { RunFolder::undo(run.folder); }), Contains("nothing is set aside"));
  }
  SECTION("further back, then undone") {
    auto again = std::make_unique<RunFolder>(run.folder, clipped.yaml(), rules, RunFolderOptions{.from = "2"});
    again->claim();
    again->begin("checksum");
    CHECK(run.record()["changes"][0]["step"] == 2);
    CHECK(run.record()["changes"].size() == 1);
    again.reset();
    CHECK_THAT(error_of([&] { run.open(clipped, {.from = "10"}); }), Contains("there are: 2") && Contains("--undo"));
    RunFolder::undo(run.folder);
    CHECK(run.contents() == before);
  }
  SECTION("to its end, without another checkpoint") {
    write_file(run.folder / "model.safetensors", "new");
    write_file(run.folder / "summary.json", "new");
    auto folder = run.open(clipped);
    CHECK(folder.found() == Found::finished_run);
    CHECK_FALSE(fs::exists(run.folder / ".replaced"));
    CHECK_FALSE(fs::exists(run.folder / "checkpoints/.replaced"));
    CHECK_FALSE(run.record().contains("set_aside"));
    CHECK(read_file(run.folder / "model.safetensors") == "new");
    CHECK(list_checkpoints(run.folder).size() == 2);
  }
  SECTION("a checkpoint later") {
    auto folder = run.open(clipped);
    folder.claim();
    folder.begin("checksum");
    CHECK(fs::exists(run.folder / "checkpoints/.replaced/step-00000010"));
    run.checkpoint(8, clipped);
    folder.progressed();
    CHECK_FALSE(fs::exists(run.folder / ".replaced"));
    CHECK_FALSE(fs::exists(run.folder / "checkpoints/.replaced"));
    CHECK_FALSE(run.record().contains("set_aside"));
    CHECK(run.record()["changes"].size() == 1);
  }
}

TEST_CASE("what a run appends to is set aside however long it is") {
  Run run;
  run.train();
  const uintmax_t bytes = (uintmax_t{64} << 20) + 3;
  for (const char* name : {"metrics.jsonl", events_name}) {
    fs::resize_file(run.folder / name, bytes);
    write_file(run.folder / name, read_file(run.folder / name) + "end");
  }
  const auto before = checksum_of(read_file(run.folder / "metrics.jsonl"));
  {
    auto folder = run.open({}, {.from = "6"});
    folder.claim();
    folder.begin("checksum");
  }
  for (const char* name : {"metrics.jsonl", events_name}) {
    CHECK(fs::file_size(run.folder / name) == bytes + 3);
    CHECK(fs::file_size(run.folder / ".replaced" / name) == bytes + 3);
  }
  fs::resize_file(run.folder / "metrics.jsonl", 7);
  RunFolder::undo(run.folder);
  CHECK(checksum_of(read_file(run.folder / "metrics.jsonl")) == before);
  CHECK_FALSE(fs::exists(run.folder / ".replaced"));
}

TEST_CASE("a run whose files cannot all be set aside stays as it was") {
  Run run;
  run.train();
  write_file(run.folder / "metrics.jsonl", std::string(200000, '.'));
  const auto before = run.contents();
  const auto go_back = [&] {
    auto folder = run.open({.clip = "1.0"}, {.from = "6"});
    folder.claim();
    folder.begin("checksum");
  };
  // A limit on the size of files stands for a full disk.
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{100000, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  std::string message;
  try {
    go_back();
  } catch (const Failure& failure) {
    message = failure.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  CHECK_THAT(message, Contains(".replaced/metrics.jsonl") && Contains("File too large"));
  CHECK(run.contents() == before);
  CHECK_FALSE(run.record().contains("set_aside"));
  CHECK(run.record()["changes"].empty());
  CHECK_THAT(error_of([&] { RunFolder::undo(run.folder); }), Contains("nothing is set aside"));
  go_back();
  CHECK(read_file(run.folder / ".replaced/metrics.jsonl") == before.at("metrics.jsonl"));
}

TEST_CASE("another text is another run") {
  Run run;
  run.train();
  auto folder = run.open({.steps = "20"});
  folder.check_corpus("checksum");
  CHECK_THAT(error_of([&] { folder.check_corpus("other"); }), Contains("data.train_source"));
}

TEST_CASE("what a restart replaces is kept until there is a scheduled checkpoint, whenever it is killed") {
  Run run;
  run.train();
  write_file(run.folder / "checkpoints/mine", "mine");
  const auto before = run.contents();
  const Given other{.text = "b"};
  {
    auto folder = run.open(other, {.restart = true});
    CHECK_FALSE(folder.keeps("vocabulary.model"));
    CHECK_THAT(error_of([&] { folder.check_input("init", run.folder); }), Contains("replaced"));
    CHECK_THAT(error_of([&] { folder.check_input("init", run.folder / "checkpoints/step-00000002"); }),
               Contains("init"));
    CHECK_NOTHROW(folder.check_input("init", run.directory / "elsewhere"));
    CHECK(run.contents() == before);
    folder.claim();
    CHECK(read_file(run.folder / "checkpoints/mine") == "mine");
    CHECK(resumable_checkpoints(run.folder).empty());
    CHECK_FALSE(folder.set_aside_text().empty());
    folder.put_vocabulary("vocabulary.model", "new pieces");
    write_file(run.folder / "metrics.jsonl", "new");
  }
  const auto moved = [&](const std::string& item) {
    return run.folder / fs::path(item).parent_path() / ".replaced" / fs::path(item).filename();
  };
  SECTION("undone") {
    RunFolder::undo(run.folder);
    CHECK(run.contents() == before);
  }
  SECTION("undone, killed on the way") {
    fs::remove(run.folder / "vocabulary.model");
    fs::rename(moved("vocabulary.model"), run.folder / "vocabulary.model");
    fs::rename(moved("checkpoints/step-00000006"), run.folder / "checkpoints/step-00000006");
    run.set_stage("returning");
    CHECK(run.open().found() == Found::finished_run);
    CHECK(run.contents() == before);
  }
  SECTION("killed while it was set aside") {
    fs::remove(run.folder / "metrics.jsonl");
    fs::remove(run.folder / "vocabulary.model");
    fs::remove(run.folder / "config.yaml");
    auto json = run.record();
    auto& aside = json["set_aside"];
    aside["moving"] = aside["items"];
    aside["items"] = nlohmann::json::array();
    aside["stage"] = "moving";
    write_file(run.folder / RunFolder::record_name, json.dump());
    fs::rename(moved("vocabulary.model"), run.folder / "vocabulary.model");  // not yet moved
    CHECK(run.open().found() == Found::finished_run);
    CHECK(run.contents() == before);
  }
  SECTION("restarted once more, then undone") {
    run.open({.text = "c"}, {.restart = true}).claim();
    CHECK_THAT(error_of([&] { run.open(); }), Contains("--undo"));
    RunFolder::undo(run.folder);
    CHECK(run.contents() == before);
  }
  SECTION("a checkpoint later") {
    run.checkpoint(2, other);
    CHECK(run.open(other).found() == Found::run);
    CHECK_FALSE(fs::exists(run.folder / ".replaced"));
    CHECK_FALSE(fs::exists(run.folder / "checkpoints/.replaced"));
    CHECK(read_file(run.folder / "checkpoints/mine") == "mine");
    CHECK_THAT(error_of([&] { RunFolder::undo(run.folder); }), Contains("nothing is set aside"));
  }
}

TEST_CASE("who stops a run that replaces another by mistake can bring it back") {
  Run run;
  run.train();
  const auto before = run.contents();
  // Begins, or goes on, and is stopped after `step`.
  const auto stopped = [&](const Given& given, const RunFolderOptions& options, int64_t step) {
    auto folder = run.open(given, options);
    folder.claim();
    folder.begin("checksum");
    write_file(run.folder / "metrics.jsonl", "others\n");
    write_file(run.folder / events_name, "of others");
    write_file(run.folder / fmt::format("validation/step-{:08}.txt", step), "of the attempt");
    run.checkpoint(step, given, "interrupted-");
    folder.progressed();
    CHECK(fs::exists(run.folder / ".replaced"));
  };
  const Given other{.text = "b"}, longer{.steps = "20"};
  // What it would lose is named, and nothing changes.
  const auto refused = [&](const Given& given, const RunFolderOptions& options) {
    const auto now = run.contents();
    CHECK_THAT(error_of([&] { run.open(given, options).claim(); }), Contains("would be lost") && Contains("--undo"));
    CHECK(run.contents() == now);
  };
  SECTION("begun anew, gone on with") {
    stopped(other, {.restart = true}, 4);
    CHECK(run.open(other).found() == Found::run);
    CHECK_THAT(error_of([&] { run.open(); }), Contains("--undo brings back"));
    if (GENERATE(false, true)) {
      stopped(other, {}, 8);
      refused(other, {.from = "4"});
    }
    refused({.text = "c"}, {.restart = true});
  }
  SECTION("gone back, and once more") {
    stopped(longer, {.from = "6"}, 8);
    refused(longer, {.from = "6"});
    refused(longer, {.from = "2"});
    refused(other, {.restart = true});
    const std::string more = GENERATE("", "8", "last");
    if (!more.empty()) stopped(longer, {.from = more}, 15);
    CHECK(run.open(longer).found() == Found::run);
    CHECK_THAT(error_of([&] { run.open({.clip = "1.0", .steps = "20"}); }), Contains("--undo brings back"));
  }
  SECTION("gone back without a checkpoint, then further, or begun anew") {
    {
      auto folder = run.open(longer, {.from = "6"});
      folder.claim();
      folder.begin("checksum");
      write_file(run.folder / "metrics.jsonl", "others\n");
      write_file(run.folder / "validation/step-00000008.txt", "of the attempt");
    }
    if (GENERATE(false, true)) {
      stopped(longer, {.from = "2"}, 3);
    } else {
      stopped(other, {.restart = true}, 4);
    }
    CHECK_FALSE(fs::exists(run.folder / "validation/step-00000008.txt"));
  }
  RunFolder::undo(run.folder);
  CHECK(run.contents() == before);
}

TEST_CASE("what is asked of a launch is done once, whichever of its agents are still there") {
  Run run;
  run.train();
  const Given longer{.steps = "20"};
  const RunFolderOptions restart{.restart = true, .agents = {"first", "second"}};
  SECTION("begun anew") {
    CHECK(run.open(longer, restart).found() == Found::nothing);
    CHECK_THAT(error_of([&] { run.open({.text = "b"}, {.agents = {"first"}}); }),
               Contains("data.text"));  // not claimed
    run.open(longer, restart).claim();
    CHECK_FALSE(fs::exists(run.folder / "checkpoints/step-00000010"));
    run.open(longer, restart).claim();  // before the first checkpoint
    run.checkpoint(4, longer);
    {
      auto again = run.open(longer, {.restart = true, .agents = {"second", "third"}});
      CHECK(again.found() == Found::run);
      again.claim();
      again.begin("checksum");
      again.progressed();
    }
    CHECK(run.open(longer, {.restart = true, .agents = {"third"}}).found() == Found::run);
    CHECK(run.open(longer, {.restart = true, .agents = {"of another launch"}}).found() == Found::nothing);
    CHECK(run.open(longer, {.restart = true}).found() == Found::nothing);
  }
  SECTION("gone back") {
    const RunFolderOptions from{.from = "2", .agents = {"first"}};
    run.open(longer, from).claim();
    CHECK(fs::exists(run.folder / "checkpoints/step-00000010"));  // ended before it began
    {
      auto folder = run.open(longer, from);
      folder.claim();
      folder.begin("checksum");
    }
    CHECK_FALSE(fs::exists(run.folder / "checkpoints/step-00000006"));
    run.checkpoint(8, longer);
    {
      auto folder = run.open(longer, from);
      folder.claim();
      folder.begin("checksum");
    }
    CHECK(fs::exists(run.folder / "checkpoints/step-00000008"));
    auto folder = run.open(longer, {.from = "2", .agents = {"of another launch"}});
    folder.claim();
    folder.begin("checksum");
    CHECK_FALSE(fs::exists(run.folder / "checkpoints/step-00000008"));
  }
  SECTION("undone: it counts again") {
    run.open(longer, restart).claim();
    RunFolder::undo(run.folder);
    CHECK(run.open(longer, restart).found() == Found::nothing);
  }
}

TEST_CASE("a run from before there was a record is recognised by a checkpoint of its settings") {
  Run run;
  run.train();
  fs::remove(run.folder / RunFolder::record_name);
  CHECK(run.open().found() == Found::finished_run);
  CHECK_FALSE(fs::exists(run.folder / RunFolder::record_name));
  CHECK(run.open({.steps = "20"}).found() == Found::run);
  for (int64_t step : {2, 6, 10}) run.checkpoint(step, {.text = "b"});
  CHECK_THAT(error_of([&] { run.open(); }), Contains("training.output"));
  CHECK_THAT(error_of([&] { run.open({}, {.restart = true}); }), Contains("training.output"));
}

TEST_CASE("what cannot be read is no new run") {
  for (const bool recorded : {true, false}) {
    for (const std::string target : {"/nowhere/at/all", "checkpoints", ""}) {
      Run run;
      run.train();
      fs::remove_all(run.folder / "checkpoints");
      if (target.empty()) {
        write_file(run.folder / "checkpoints", "");
      } else {
        fs::create_symlink(target, run.folder / "checkpoints");
      }
      if (!recorded) fs::remove(run.folder / RunFolder::record_name);
      for (const bool restart : {false, true}) {
        CHECK_THROWS_WITH(run.open({}, {.restart = restart}), Contains("checkpoints"));
      }
      CHECK(read_file(run.folder / "metrics.jsonl") == "ten steps\n");
    }
  }
}

TEST_CASE("only what is named like a checkpoint is one") {
  Run run;
  run.train();
  const std::vector<std::string> mine = {"step-backup", "step-1", "step-00000002.old", ".partial-mine", "damaged-mine"};
  for (const auto& name : mine) fs::create_directories(run.folder / "checkpoints" / name);
  CHECK(list_checkpoints(run.folder).size() == 3);
  prune_checkpoints(run.folder, 1);
  CHECK(list_checkpoints(run.folder).size() == 1);
  for (const auto& name : mine) CHECK(fs::exists(run.folder / "checkpoints" / name));
}

TEST_CASE("what somebody keeps in a run's folders is in the way, or stays, and never goes with the run") {
  Run run;
  run.train();
  const auto mine = run.folder / "checkpoints/step-00000006/notes.txt";
  write_file(mine, "mine");
  fs::create_directories(run.folder / "checkpoints/step-00000998");
  write_file(run.folder / "checkpoints/step-00000998/mine.txt", "mine");
  SECTION("a restart, or going back behind it, names it") {
    CHECK_THAT(error_of([&] { run.open({}, {.restart = true}); }), Contains("notes.txt") && Contains("in the way"));
    CHECK_THAT(error_of([&] { run.open({}, {.from = "2"}); }), Contains("notes.txt") && Contains("in the way"));
    CHECK(run.open({}, {.from = "6"}).found() == Found::run);
    fs::remove(mine);
    auto again = run.open({}, {.restart = true});
    again.claim();
    CHECK(resumable_checkpoints(run.folder).empty());
  }
  SECTION("as a folder in the place of a validation's text, it is named") {
    const auto folder = run.folder / "validation/final.txt";
    fs::create_directories(folder);
    write_file(folder / "mine.txt", "mine");
    fs::remove(mine);
    CHECK(run.open().found() == Found::finished_run);  // which writes nothing
    CHECK_THAT(error_of([&] { run.open({.steps = "20"}); }), Contains("final.txt") && Contains("in the way"));
    CHECK_THAT(error_of([&] { run.open({}, {.restart = true}); }), Contains("final.txt") && Contains("in the way"));
    CHECK(read_file(folder / "mine.txt") == "mine");
  }
  SECTION("as folders in the places of validations' texts, they are not what undoing takes away") {
    fs::remove(mine);
    {
      auto again = run.open({}, {.from = "2"});
      again.claim();
      again.begin("checksum");
    }
    const auto late = run.folder / "validation/final.txt", returning = run.folder / "validation/step-00000006.txt";
    for (const auto& folder : {late, returning}) {
      fs::create_directories(folder);
      write_file(folder / "mine.txt", "mine");
    }
    CHECK_THAT(error_of([&] { RunFolder::undo(run.folder); }), Contains("step-00000006.txt") && Contains("in the way"));
    CHECK(read_file(returning / "mine.txt") == "mine");
    fs::remove_all(returning);
    RunFolder::undo(run.folder);
    CHECK(read_file(returning) == "six");
    CHECK(read_file(late / "mine.txt") == "mine");
  }
  SECTION("it stays where older checkpoints make room") {
    prune_checkpoints(run.folder, 1);
    CHECK(list_checkpoints(run.folder) == std::vector<fs::path>{run.folder / "checkpoints/step-00000010"});
    CHECK(read_file(mine) == "mine");
    CHECK_FALSE(fs::exists(mine.parent_path() / "progress.json"));
  }
  SECTION("put there meanwhile, it stays where what was set aside goes") {
    fs::remove(mine);
    const Given other{.text = "b"};
    {
      auto again = run.open(other, {.restart = true});
      again.claim();
    }
    const auto late = run.folder / "checkpoints/.replaced/step-00000006/late.txt";
    write_file(late, "mine");
    run.checkpoint(2, other);
    CHECK(run.open(other).found() == Found::run);
    CHECK(read_file(late) == "mine");
    CHECK_FALSE(fs::exists(late.parent_path() / "progress.json"));
  }
  CHECK(read_file(run.folder / "checkpoints/step-00000998/mine.txt") == "mine");
}

TEST_CASE("a vocabulary is the run's by its checksum") {
  Run run;
  {
    auto folder = run.open();  // comes to nothing before it has learned a vocabulary
    folder.claim();
  }
  write_file(run.folder / "vocabulary.model", "mine");
  const Given other{.text = "b"};
  {
    auto folder = run.open(other);
    CHECK(folder.keeps("vocabulary.model"));
    folder.claim();
    CHECK(read_file(run.folder / "vocabulary.model") == "mine");
  }
  {
    auto folder = run.open(other, {.restart = true});
    CHECK(folder.keeps("vocabulary.model"));
    folder.claim();
    CHECK(read_file(run.folder / "vocabulary.model") == "mine");
  }
  // One that a run has learned goes with it, and what takes its place is the user's again.
  Run learned;
  learned.train();
  write_file(learned.folder / "vocabulary.model", "mine");
  {
    auto folder = learned.open(other, {.restart = true});
    CHECK(folder.keeps("vocabulary.model"));
    folder.claim();
    CHECK(read_file(learned.folder / "vocabulary.model") == "mine");
  }
  RunFolder::undo(learned.folder);
  CHECK(read_file(learned.folder / "vocabulary.model") == "mine");
}

TEST_CASE("a vocabulary that was learned before a run had a checkpoint is of its text") {
  const auto of_text = [](std::string text) {
    return RunFolderOptions{.vocabulary_text = [text = std::move(text)] { return text; }};
  };
  const auto learned = [&](const Run& run, const RunFolderOptions& options, const std::string& pieces) {
    auto folder = run.open({}, options);
    folder.claim();
    if (!fs::exists(run.folder / "vocabulary.model")) folder.put_vocabulary("vocabulary.model", pieces);
    return read_file(run.folder / "vocabulary.model");
  };
  Run run;
  CHECK(learned(run, of_text("one"), "pieces of one") == "pieces of one");
  CHECK(learned(run, of_text("one"), "again") == "pieces of one");
  CHECK(learned(run, of_text("two"), "pieces of two") == "pieces of two");
  CHECK(learned(run, {}, "of none") == "pieces of two");  // nobody learns it
  // Killed when it was recorded, and had not come: what lies there since is somebody's.
  fs::remove(run.folder / "vocabulary.model");
  CHECK(learned(run, of_text("two"), "once more") == "once more");
  write_file(run.folder / "vocabulary.model", "mine");
  CHECK(learned(run, of_text("three"), "pieces of three") == "mine");
  // With a checkpoint it stays, whatever the text is: whether the run goes on is check_corpus's affair.
  Run begun;
  begun.train();
  CHECK(begun.open({}, of_text("other")).keeps("vocabulary.model"));
  // What a restart has replaced is not lost by the next text.
  {
    auto restart = of_text("one");
    restart.restart = true;
    auto folder = begun.open({}, restart);
    folder.claim();
    folder.put_vocabulary("vocabulary.model", "pieces of one");
  }
  CHECK(learned(begun, of_text("one"), "again") == "pieces of one");
  CHECK_THAT(error_of([&] { begun.open({}, of_text("two")); }),
             Contains("of another text") && Contains("--undo brings back"));
}

TEST_CASE("a restart's vocabulary that somebody replaced is in the way of what is brought back") {
  Run run;
  run.train();
  {
    auto folder = run.open({.text = "b"}, {.restart = true});
    folder.claim();
  }
  write_file(run.folder / "vocabulary.model", "mine");
  CHECK_THAT(error_of([&] { RunFolder::undo(run.folder); }), Contains("vocabulary.model") && Contains("in the way"));
  CHECK(read_file(run.folder / "vocabulary.model") == "mine");
  fs::remove(run.folder / "vocabulary.model");
  RunFolder::undo(run.folder);
  CHECK(read_file(run.folder / "vocabulary.model") == "pieces");
}

TEST_CASE("a trace is the run's where one was asked for, and somebody's else") {
  Run run;
  run.train();
  write_file(run.folder / "trace.json", "mine");
  CHECK(run.open().found() == Found::finished_run);
  CHECK_THAT(error_of([&] { run.open({}, {.profile = true}); }), Contains("trace.json") && Contains("in the way"));
  {
    auto folder = run.open({.text = "b"}, {.restart = true});
    folder.claim();
  }
  CHECK(read_file(run.folder / "trace.json") == "mine");
}

TEST_CASE("a run does not go on to fewer steps than it has come") {
  Run run;
  run.train();
  CHECK_THAT(error_of([&] { run.open({.steps = "8"}); }), Contains("training.steps") && Contains("step 10"));
  CHECK_THAT(error_of([&] { run.open({.steps = "8"}, {.from = "last"}); }), Contains("training.steps"));
  CHECK(run.open({.steps = "8"}, {.from = "6"}).found() == Found::run);
}

TEST_CASE("a run without a whole checkpoint says what is wrong with the newest") {
  Run run;
  run.train();
  for (const auto& checkpoint : resumable_checkpoints(run.folder)) write_file(checkpoint / "model.safetensors", "cut");
  const auto newest = resumable_checkpoints(run.folder).front().filename().string();
  CHECK_THAT(error_of([&] { run.open({}, {.from = "last"}); }),
             Contains("none of its checkpoints is whole; the newest: ") && Contains(newest + "/model.safetensors") &&
                 Contains("--restart"));
}

TEST_CASE("a checkpoint that cannot be read is not passed over for an earlier one") {
  Run run;
  run.train();
  const auto newest = resumable_checkpoints(run.folder).front();
  const auto make_unreadable = [](const fs::path& file) {
    fs::remove(file);
    fs::create_symlink(file.filename(), file);
  };
  const auto file = newest / "model.safetensors", vocabulary = newest / "vocabulary.model";
  make_unreadable(file);
  for (const auto& options : {RunFolderOptions{.from = "last"}, RunFolderOptions{.from = "10"}, RunFolderOptions{}}) {
    write_file(run.folder / "config.yaml", Given{.text = "b"}.yaml());  // edited: the settings are the checkpoints'
    CHECK_THROWS_AS(run.open({}, options), Failure);
    CHECK_THROWS_WITH(run.open({}, options), Contains(file.string()));
  }
  CHECK(run.open({}, {.from = "6"}).found() == Found::run);  // which is named

  fs::remove(file);
  run.checkpoint(10);
  write_file(run.folder / "config.yaml", Given{}.yaml());
  make_unreadable(vocabulary);
  CHECK_THROWS_AS(run.open(), Failure);
  CHECK_THROWS_WITH(run.open(), Contains(vocabulary.string()));
  CHECK(run.open({}, {.from = "6"}).found() == Found::run);
  fs::remove(run.folder / "vocabulary.model");
  CHECK_THROWS_AS(run.open(), Failure);
  auto folder = run.open({}, {.from = "6"});
  CHECK(folder.brings_back("vocabulary.model"));
  make_unreadable(run.folder / "checkpoints/step-00000006/vocabulary.model");
  CHECK_THROWS_AS(folder.claim(), Failure);
}

TEST_CASE("a damaged copy of a vocabulary says nothing of the run's, and is not brought back") {
  Run run;
  run.train();
  const auto newest = resumable_checkpoints(run.folder).front();
  for (const bool missing : {false, true}) {
    if (missing) {
      fs::remove(newest / "vocabulary.model");
    } else {
      write_file(newest / "vocabulary.model", "pieces of a bad disk");
    }
    CHECK_NOTHROW(run.open());
    CHECK_NOTHROW(run.open({}, {.from = "6"}));
    fs::remove(run.folder / "vocabulary.model");
    auto folder = run.open();
    CHECK(folder.brings_back("vocabulary.model"));
    folder.claim();
    CHECK(read_file(run.folder / "vocabulary.model") == "pieces");
  }
}

TEST_CASE("what a killed --from was copying is not in the way of the next one") {
  Run run;
  run.train();
  fs::create_directory(run.folder / ".replaced");
  write_file(run.folder / ".replaced/.writing-1-0", "half a cop");
  {
    auto folder = run.open({}, {.from = "6"});
    folder.claim();
    folder.begin("checksum");
  }
  CHECK_FALSE(fs::exists(run.folder / ".replaced/.writing-1-0"));
}

TEST_CASE("a user's file of the corpus's name is left alone where the corpus lies elsewhere") {
  Run run;
  fs::create_directory(run.folder);
  write_file(run.folder / "corpus", "of a linguist");
  auto yaml = Given{}.yaml();
  yaml.replace(yaml.find("data:\n"), 6, "data:\n  cache: cache\n");
  for (int start = 0; start < 2; ++start) {
    RunFolder folder(run.folder, yaml, rules, {});
    CHECK_NOTHROW(folder.claim());
  }
  CHECK(read_file(run.folder / "corpus") == "of a linguist");
}

TEST_CASE("nothing is written where a run's folder was moved away") {
  Run run;
  auto folder = run.open();
  folder.claim();
  folder.check_in_place();
  const auto moved = run.directory / "moved";
  fs::rename(run.folder, moved);
  for (const bool other : {false, true}) {  // the mount point of its disk, perhaps
    if (other) fs::create_directory(run.folder);
    const auto message = run.folder.string() + ": is not the folder any more that the run began in";
    CHECK_THROWS_AS(folder.check_in_place(), Failure);
    CHECK_THROWS_WITH(folder.check_in_place(), Contains(message));
    CHECK_THROWS_WITH(folder.put_vocabulary("vocabulary.model", "pieces"), Contains(message));
    CHECK_THROWS_WITH(folder.begin("checksum"), Contains(message));
    CHECK(fs::exists(run.folder) == other);
  }
  CHECK(fs::is_empty(run.folder));
  fs::remove(run.folder);
  fs::create_directory_symlink(moved, run.folder);  // wherever it lies, it is the same
  CHECK_NOTHROW(folder.put_vocabulary("vocabulary.model", "pieces"));
  CHECK(read_file(moved / "vocabulary.model") == "pieces");
}

TEST_CASE("what is set aside at a stage that nobody knows is not taken for nothing") {
  Run run;
  run.train();
  {
    auto again = run.open({}, {.restart = true});  // keeps the old run aside
    again.claim();
    again.begin("checksum");
  }
  const auto before = run.contents();
  for (const char* stage : {"archived", "", "Kept"}) {
    run.set_stage(stage);
    CHECK_THAT(error_of([&] { run.open(); }), Contains(RunFolder::record_name) && Contains("damaged"));
    CHECK(run.contents() == before);
  }
  run.set_stage("kept");
  CHECK_THAT(run.open().set_aside_text(), Contains("--undo"));
}

TEST_CASE("a record moves and deletes nothing that is no run's") {
  Run run;
  run.train();
  write_file(run.directory / "precious", "mine");
  const auto record = run.record();
  const auto refused = [&](const nlohmann::json& changed) {
    auto json = record;
    json.update(changed);
    write_file(run.folder / RunFolder::record_name, json.dump());
    CHECK_THAT(error_of([&] { run.open({}, {.restart = true}); }), Contains(RunFolder::record_name));
  };
  refused({{"kind", "another"}});
  refused({{"format", 2}});
  refused({{"files", {"../precious"}}});
  refused({{"files", {"notes.txt"}}});
  for (const char* item :
       {"../precious", "checkpoints", "checkpoints/../../precious", "checkpoints/mine", "/precious"}) {
    refused({{"set_aside",
              {{"stage", "purging"},
               {"from", -1},
               {"items", {item}},
               {"moving", nlohmann::json::array()},
               {"before", {{"files", {"config.yaml"}}, {"corpus", ""}, {"changes", nlohmann::json::array()}}}}}});
  }
  CHECK(read_file(run.directory / "precious") == "mine");
}
