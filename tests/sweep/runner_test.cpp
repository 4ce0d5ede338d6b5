#include "transformer/sweep/runner.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "support.h"
#include "sweep_support.h"
#include "transformer/base/file_lock.h"

using namespace transformer;
using namespace transformer::test;

namespace {

// A stand-in for train: writes what train writes, and does what the row is called.
constexpr const char* train_script = R"SCRIPT(#!/bin/bash
declare -A set
while (($# > 1)); do shift; [[ $1 == --set ]] && { shift; set[${1%%=*}]=${1#*=}; }; done
output=${set[training.output]} steps=${set[training.steps]:-100} seed=${set[training.seed]:-1}
row=$(basename "$(dirname "$output")")
active=$output/../../$row-$seed.active
echo "$row seed $seed threads $OMP_NUM_THREADS gpu $CUDA_VISIBLE_DEVICES" >>"$output/../../order"
touch "$active"
trap 'echo stopped after step 5; rm -f "$active"; exit 143' TERM
if [[ $row == bad ]]; then echo "train: error: data: no such text; name another" >&2; exit 2; fi
if [[ $row == dies ]]; then kill -9 $$; fi
if [[ $row == silent ]]; then exit 0; fi
if [[ $row == unended ]]; then printf 'no newline' >&2; exit 2; fi
{
  echo "model: {heads: ${set[model.heads]:-4}, vocabulary_size: ${set[model.vocabulary_size]:-100}}"
  echo "training: {seed: $seed, steps: $steps, output: $output}"
  echo "data: {train_source: ${set[data.train_source]:-text}}"
} >"$output/config.yaml"
[[ -f $output/vocabulary.model ]] || echo "learned by $row" >"$output/vocabulary.model"
metrics=$output/metrics.jsonl
echo '{"kind":"header","format":1}' >"$metrics"
for step in 10 20; do
  echo "{\"kind\":\"train\",\"step\":$step,\"target_tokens\":$((step * 7)),\"tokens_per_second\":123.0}" >>"$metrics"
done
if [[ $row == stubborn ]]; then trap '' INT TERM; fi
if [[ $row == slow ]]; then
  trap '' HUP
  trap 'touch "$output/told"; sleep 1; echo stopped after step 5; exit 143' TERM
fi
touch "$output/ready"
if [[ $row == halted ]]; then kill -STOP $$; fi
if [[ $row == hangs || $row == stubborn || $row == slow || $row == halted ]]; then while :; do sleep 0.05; done; fi
sleep ${NAP:-0.05}
echo '{"kind":"validation","step":30,"perplexity":9.5,"bleu":3.5}' >>"$metrics"
echo "{\"format\":1,\"ended_by\":\"time\",\"steps\":30,\"averaged_checkpoints\":3,\"parameters\":1000,\"seconds\":2.5,\"flops\":1e6," \
  "\"perplexity\":${set[model.heads]:-4}.25,\"bleu\":12.5,\"bleu_signature\":\"BLEU|x\"}" >"$output/summary.json"
rm -f "$active"
)SCRIPT";

std::string grid_head(const std::string& rows) {
  return "base: base.yaml\noutput: " + std::string("@\n") + "rows:\n" + rows;
}

struct Sweep {
  const BlockedSignals signals{SIGINT, SIGTERM, SIGHUP, SIGCHLD};  // before a thread starts
  TemporaryDirectory directory;
  Plan plan;
  std::vector<SweepRun> results;
  RunnerOptions options;
  int changes = 0;
  std::function<void()> changed = [this] { ++changes; };

  explicit Sweep(const std::string& rows) {
    write_file(directory / "base.yaml", "model: {heads: 4}\n");
    write_program(directory / "train", train_script);
    set_rows(rows);
    options.train = (directory / "train").string();
  }
  Sweep(const Sweep&) = delete;

  void set_rows(const std::string& rows) {
    auto text = grid_head(rows);
    text.replace(text.find('@'), 1, (directory / "out").string());
    write_file(directory / "grid.yaml", text);
    plan = make_plan(read_grid(directory / "grid.yaml", {"model", "training", "data"}), {}, toy_reader());
    std::filesystem::create_directories(plan.grid.output);
  }

  RunnerEnd run() {
    results.clear();
    for (const auto& run : plan.runs) results.push_back(read_result(run, toy_reader()));
    return run_all(plan, plan.runs_of({}), results, options, signals, toy_reader(), changed);
  }
  const SweepRun& result(const std::string& name) const { return results.at(plan.find(name)); }
  std::string order() const { return read_file(plan.grid.output / "order"); }
  std::filesystem::path folder(const std::string& row) const { return plan.grid.output / row / "seed-1"; }
};

void wait_for(const std::filesystem::path& file) {
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// SIGTERM to this process once `file` exists.
std::thread terminate_when(const std::filesystem::path& file) {
  return std::thread([file] {
    wait_for(file);
    kill(getpid(), SIGTERM);
  });
}

// A sweep whose report cannot be written any more once `row`, which does not end by itself, trains.
void fail_during(Sweep& sweep, const std::string& row) {
  sweep.options.devices = {"cpu", "cpu"};
  sweep.changed = [&sweep, row] {
    if (sweep.result("quick/seed-1").state != SweepRun::State::finished) return;
    wait_for(sweep.folder(row) / "metrics.jsonl");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // till the stand-in has come to its loop
    throw Failure("report.md", "cannot be written");
  };
  CHECK_THROWS_WITH(sweep.run(), Contains("report.md: cannot be written"));
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // nothing runs on
}

}  // namespace

TEST_CASE("a report that takes long is not written anew for every run") {
  Sweep sweep("  - {name: a, seeds: [1, 2, 3, 4, 5, 6]}\n");
  sweep.changed = [&] {
    ++sweep.changes;
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
  };
  CHECK(sweep.run().finished == 6);
  CHECK(sweep.changes > 0);
  CHECK(sweep.changes < 12);
}

TEST_CASE("runs train one after another, and failing ones stop nobody") {
  Sweep sweep(
      "  - {name: bad}\n  - {name: good, seeds: [1, 2], model: {heads: 8}}\n  - {name: dies}\n"
      "  - {name: silent}\n  - {name: base}\n");
  const auto end = sweep.run();
  CHECK(end.finished == 3);
  CHECK(end.failed == 3);
  CHECK(end.signal == 0);
  CHECK(sweep.changes == 12);  // six begin, six end
  CHECK(sweep.result("bad/seed-1").state == SweepRun::State::failed);
  CHECK(sweep.result("bad/seed-1").reason == "data: no such text; name another");
  CHECK(sweep.result("dies/seed-1").reason == "train was ended by signal 9 (Killed)");
  CHECK_THAT(sweep.result("silent/seed-1").reason, Contains("without a summary.json"));
  const auto& good = sweep.result("good/seed-2");
  CHECK(good.state == SweepRun::State::finished);
  CHECK(good.seed == 2);
  CHECK(good.perplexity == 8.25);
  CHECK(good.bleu == 12.5);
  CHECK(good.bleu_signature == "BLEU|x");
  CHECK(good.parameters == 1000);
  CHECK(good.seconds == 2.5);
  CHECK(good.flops == 1e6);
  CHECK(good.steps == 30);
  CHECK(good.ended_by == "time");
  CHECK(good.averaged_checkpoints == 3);
  REQUIRE(good.curve.size() == 1);
  CHECK(good.curve[0].step == 30);
  CHECK(good.curve[0].target_tokens == 210);  // 7 a step
  CHECK(good.curve[0].perplexity == 9.5);
  CHECK(good.curve[0].bleu == 3.5);
  CHECK_THAT(read_file(sweep.plan.runs[sweep.plan.find("good/seed-2")].log),
             Contains("starts: ") && Contains("model.heads=8") && EndsWith("finished\n"));

  // Again: finished runs are left alone, failed ones are tried again.
  std::filesystem::remove(sweep.plan.grid.output / "order");
  const auto again = sweep.run();
  CHECK(again.finished == 3);
  CHECK(again.failed == 3);
  CHECK_THAT(sweep.order(), !Contains("good") && !Contains("base") && Contains("bad") && Contains("dies"));
}

TEST_CASE("a failure is remembered, whatever the process wrote last") {
  Sweep sweep("  - {name: unended}\n  - {name: base}\n");
  CHECK(sweep.run().failed == 1);
  const auto& run = sweep.plan.runs[0];
  CHECK_THAT(read_file(run.log), Contains("\nno newline\nsweep: "));
  const auto remembered = [&] { return read_result(run, toy_reader()); };
  CHECK(remembered().state == SweepRun::State::failed);
  CHECK(remembered().reason == sweep.result("unended/seed-1").reason);
  CHECK_THAT(read_file(sweep.plan.runs[1].log), !Contains("\n\n"));
  // Last words as long as can be.
  for (const size_t bytes : {size_t{10'000}, size_t{20'000}}) {
    write_file(run.log, "train: error: " + std::string(bytes, 'x'));
    const auto reason = failure_reason(run.log, std::string(1 << 14, 'y'));
    note_failure(run.log, reason);
    CHECK(remembered().state == SweepRun::State::failed);
    CHECK(remembered().reason == reason);
  }
}

TEST_CASE("figures that cannot be read cost a run its curve, and it says why") {
  Sweep sweep("  - {name: base}\n  - {name: other, model: {heads: 2}}\n");
  sweep.run();
  const auto file = sweep.plan.runs[0].folder / "metrics.jsonl";
  std::filesystem::remove(file);
  CHECK(read_result(sweep.plan.runs[0], toy_reader()).curve.empty());
  std::filesystem::create_directory(file);
  const auto check_reason = [&](const std::string& reason) {
    const auto result = read_result(sweep.plan.runs[0], toy_reader());
    CHECK(result.state == SweepRun::State::finished);
    CHECK(result.perplexity);
    CHECK(result.curve.empty());
    CHECK_THAT(result.reason, Contains(reason));
  };
  check_reason("metrics.jsonl: is not a regular file");
  std::filesystem::remove(file);
  write_file(file, "garbage\n");
  check_reason("metrics.jsonl:1: is no record of a run");
  renew_report(sweep.plan, toy_reader());
  CHECK_THAT(read_file(sweep.plan.grid.output / "report.html"), Contains("metrics.jsonl:1: is no record of a run"));

  // Nor does a vocabulary that cannot be read stop the others, and nobody's perplexity compares with that of its run.
  write_file(file, "");
  const auto vocabulary = sweep.plan.runs[0].folder / "vocabulary.model";
  std::filesystem::remove(vocabulary);
  std::filesystem::create_directory(vocabulary);
  std::vector<SweepRun> results;
  for (const auto& run : sweep.plan.runs) results.push_back(read_result(run, toy_reader()));
  const auto report = make_report(sweep.plan, results);
  CHECK_THAT(report.rows[0].runs[0].reason, Contains("vocabulary.model: "));
  CHECK_FALSE(report.rows[0].vocabulary.empty());
  CHECK(report.rows[1].runs[0].reason.empty());

  const auto summary = sweep.plan.runs[0].folder / "summary.json";
  std::filesystem::remove(summary);
  std::filesystem::create_directory(summary);
  CHECK(read_result(sweep.plan.runs[0], toy_reader()).state == SweepRun::State::waiting);
}

TEST_CASE("a report stays where what a run came to cannot be read") {
  Sweep sweep("  - {name: base}\n  - {name: bad}\n");
  sweep.run();
  renew_report(sweep.plan, toy_reader());
  const auto results = read_file(sweep.plan.grid.output / "results.json");
  const auto& failed = sweep.plan.runs[1];
  for (const auto& file : {sweep.folder("base") / "summary.json", sweep.folder("base") / "config.yaml", failed.log}) {
    const auto kept = sweep.directory / "kept";
    std::filesystem::rename(file, kept);
    std::filesystem::create_symlink("/proc/self/mem", file);  // a file that nobody can read
    CHECK_THROWS_AS(renew_report(sweep.plan, toy_reader()), Failure);
    CHECK_THROWS_WITH(renew_report(sweep.plan, toy_reader()), Contains(file.string()) && Contains("cannot be read"));
    CHECK(read_file(sweep.plan.grid.output / "results.json") == results);
    // Whoever trains goes on without a run's last words.
    if (file == failed.log) CHECK(failure_reason(file, "train ended") == "train ended");
    std::filesystem::remove(file);
    std::filesystem::rename(kept, file);
  }
  renew_report(sweep.plan, toy_reader());
  CHECK(read_file(sweep.plan.grid.output / "results.json") == results);
  std::filesystem::create_symlink("/proc/self/mem", failed.folder / "metrics.jsonl");
  CHECK_FALSE(read_progress(failed.folder));
}

TEST_CASE("a curve has what a run's log tells of its models") {
  Sweep sweep("  - {name: base}\n");
  sweep.run();
  const auto curve_of = [&](const std::string& metrics) {
    write_file(sweep.folder("base") / "metrics.jsonl", metrics);
    std::vector<std::vector<double>> points;
    for (const auto& point : read_result(sweep.plan.runs[0], toy_reader()).curve) {
      points.push_back({static_cast<double>(point.step), static_cast<double>(point.target_tokens), point.perplexity,
                        point.bleu.value_or(-1)});
    }
    return points;
  };
  const std::string metrics =
      "{\"kind\":\"header\",\"format\":1}\n"
      "{\"kind\":\"validation\",\"step\":5,\"perplexity\":90}\n"
      "{\"kind\":\"train\",\"step\":10,\"target_tokens\":70}\n"
      "{\"kind\":\"validation\",\"step\":10,\"perplexity\":20.5,\"bleu\":2}\n"
      "{\"kind\":\"validation\",\"step\":15,\"perplexity\":12}\n"
      "{\"kind\":\"train\",\"step\":20,\"target_tokens\":160}\n"
      "{\"kind\":\"validation\",\"step\":20,\"perplexity\":null}\n"
      "{\"kind\":\"validation\",\"step\":30,\"perplexity\":9}\n"
      "{\"kind\":\"final\",\"step\":30,\"perplexity\":8.5,\"bleu\":4}\n";
  const std::vector<std::vector<double>> points = {
      {5, 35, 90, -1}, {10, 70, 20.5, 2}, {15, 105, 12, -1}, {30, 240, 8.5, 4}};
  CHECK(curve_of(metrics) == points);
  // A line may still be being written.
  CHECK(curve_of(metrics + "{\"kind\":\"validation\",\"step\":40,\"perplexity\":7}") == points);
  auto later = metrics;
  later.replace(later.find("\"format\":1"), 10, "\"format\":99");
  CHECK(curve_of(later).empty());
  CHECK_THAT(read_result(sweep.plan.runs[0], toy_reader()).reason,
             Contains("metrics.jsonl: is of a later version of its format"));
}

TEST_CASE("a result of other settings is not this run's") {
  Sweep sweep("  - {name: base}\n");
  sweep.run();
  REQUIRE(sweep.result("base/seed-1").state == SweepRun::State::finished);
  REQUIRE_FALSE(sweep.result("base/seed-1").curve.empty());
  sweep.set_rows("  - {name: base, model: {heads: 2}}\n");
  const auto other = read_result(sweep.plan.runs[0], toy_reader());
  CHECK(other.state == SweepRun::State::waiting);
  CHECK(other.curve.empty());
  CHECK(other.reason.empty());
  // Where it computed is no part of what.
  sweep.set_rows("  - {name: base, training: {threads: 3, device: cuda}}\n");
  CHECK(read_result(sweep.plan.runs[0], toy_reader()).state == SweepRun::State::finished);
  write_file(sweep.plan.runs[0].folder / "summary.json", "{\"per");
  CHECK(read_result(sweep.plan.runs[0], toy_reader()).state == SweepRun::State::waiting);
}

TEST_CASE("a setting that changes no figure leaves a run finished, one that judges does not") {
  Sweep sweep("  - {name: base}\n");
  sweep.run();
  sweep.set_rows("  - {name: base, training: {log_every: 7}}\n");
  CHECK(read_result(sweep.plan.runs[0], toy_reader()).state == SweepRun::State::finished);
  CHECK(make_report(sweep.plan, sweep.results).rows[0].averaged_checkpoints == std::set<int64_t>{3});
  sweep.set_rows("  - {name: base, training: {average_checkpoints: 8}}\n");
  CHECK(read_result(sweep.plan.runs[0], toy_reader()).state == SweepRun::State::waiting);
}

TEST_CASE("a run that ended well and is not finished says which file is at fault") {
  Sweep sweep("  - {name: silent}\n");
  const auto folder = sweep.folder("silent");
  std::filesystem::create_directories(folder);
  const auto reason = [&] {
    CHECK(sweep.run().failed == 1);
    return sweep.result("silent/seed-1").reason;
  };
  const auto& run = sweep.plan.runs[0];
  const auto config = fmt::format("model: {{heads: 4}}\ntraining: {{output: {}}}\n", run.folder.string());
  const auto way_out = Contains("; remove " + (folder / "summary.json").string() + ", and");
  write_file(folder / "config.yaml", config);
  CHECK(reason() == "it ended well, but without a summary.json");
  write_file(folder / "summary.json", "{\"per");
  CHECK_THAT(reason(), StartsWith((folder / "summary.json").string() + ": is no summary") && way_out);
  write_file(folder / "summary.json", "{}");
  write_file(folder / "config.yaml", "model: {heads: 2}\n");
  CHECK_THAT(reason(),
             StartsWith((folder / "config.yaml").string() + ": is of other settings (model.heads: 2 there, 4 now)") &&
                 way_out);
  write_file(folder / "config.yaml", "model: {heads: [\n");
  CHECK_THAT(reason(), StartsWith((folder / "config.yaml").string()) && way_out);
  std::filesystem::remove(folder / "config.yaml");
  CHECK_THAT(reason(), StartsWith((folder / "config.yaml").string()) && way_out);
  REQUIRE(::mkfifo((folder / "config.yaml").c_str(), 0600) == 0);  // nobody waits for who writes to it
  CHECK_THAT(reason(), StartsWith((folder / "config.yaml").string() + ": is not a regular file") && way_out);
  std::filesystem::remove(folder / "config.yaml");
  write_file(folder / "config.yaml", config);
  CHECK(sweep.run().finished == 1);
}

TEST_CASE("what was checked is what runs: a base that changes meanwhile is refused") {
  Sweep sweep("  - {name: one}\n  - {name: two}\n");
  sweep.changed = [&] {
    if (sweep.result("one/seed-1").state == SweepRun::State::finished) {
      write_file(sweep.directory / "base.yaml", "model: {heads: 2}\n");
    }
  };
  const auto end = sweep.run();
  CHECK(end.finished == 1);
  CHECK(end.failed == 1);
  CHECK_THAT(sweep.result("two/seed-1").reason,
             Contains("base.yaml: has changed since the sweep began; put it back as it was, or start the sweep again"));
  CHECK_THAT(sweep.order(), !Contains("two"));
  write_file(sweep.directory / "base.yaml", "model: {heads: 4}\n");
  CHECK(sweep.run().finished == 2);
}

TEST_CASE("a run that another process trains is left to it") {
  Sweep sweep("  - {name: one}\n  - {name: two}\n");
  const auto& one = sweep.plan.runs[0];
  CHECK_FALSE(is_being_trained(one));
  std::filesystem::create_directories(one.folder);
  write_file(one.log, "its first words\n");
  CHECK_FALSE(is_being_trained(one));
  {
    const FileLock held(one.log, FileLock::Wait::no);
    CHECK(is_being_trained(one));
    const auto end = sweep.run();
    CHECK(end.finished == 1);
    CHECK(end.failed == 0);
  }
  CHECK(sweep.result("one/seed-1").state == SweepRun::State::running);
  CHECK(read_file(one.log) == "its first words\n");
  sweep.changed = [&] {
    if (sweep.result("one/seed-1").state == SweepRun::State::running) CHECK(is_being_trained(one));
  };
  CHECK(sweep.run().finished == 2);
  CHECK_FALSE(is_being_trained(one));
}

TEST_CASE("a signal ends a wait for a lock, and nothing starts after it") {
  Sweep sweep("  - {name: one}\n  - {name: two}\n");
  const FileLock held(sweep.plan.grid.output / ".sweep.lock", FileLock::Wait::no);
  std::thread killer([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getpid(), SIGTERM);
  });
  const auto end = sweep.run();
  killer.join();
  CHECK(end.signal == SIGTERM);
  CHECK(end.failed == 0);
  CHECK(sweep.result("one/seed-1").state == SweepRun::State::waiting);
  CHECK_FALSE(std::filesystem::exists(sweep.plan.grid.output / "order"));
}

TEST_CASE("runs begin while a report is being written") {
  Sweep sweep("  - {name: one}\n  - {name: two}\n");
  const FileLock held(sweep.plan.grid.output / ".report.lock", FileLock::Wait::no);
  claim_files(sweep.plan, {0});
  kill(getpid(), SIGTERM);  // ends a wait
  CHECK_NOTHROW(claim_files(sweep.plan, {1}));
  CHECK_THROWS_WITH(renew_report(sweep.plan, toy_reader()), Contains(".report.lock: another process holds it"));
  CHECK(sweep.signals.next(0) == SIGTERM);
}

TEST_CASE("of the runs that end while a report is written one waits to write the next") {
  Sweep sweep("  - {name: one}\n");
  sweep.run();
  const auto report = sweep.plan.grid.output / "report.html";
  const auto held_by_another = [&](const char* name) {
    return FileLock(sweep.plan.grid.output / name, FileLock::Wait::no).error_number() == EWOULDBLOCK;
  };
  {
    const FileLock held(sweep.plan.grid.output / ".report.lock", FileLock::Wait::no);
    {
      const FileLock next(sweep.plan.grid.output / ".next-report.lock", FileLock::Wait::no);
      renew_report_after_run(sweep.plan, toy_reader());  // the one who waits will find its result
    }
    kill(getpid(), SIGTERM);
    CHECK_THROWS_WITH(renew_report_after_run(sweep.plan, toy_reader()), Contains("another process holds it"));
    CHECK(sweep.signals.next(0) == SIGTERM);
  }
  CHECK_FALSE(std::filesystem::exists(report));
  // Whose result may have come too late for the reading has a place to wait.
  int readings = 0;
  auto reader = toy_reader();
  reader.checked = [&](const auto&... file) {
    ++readings;
    CHECK(held_by_another(".report.lock"));
    CHECK_FALSE(held_by_another(".next-report.lock"));
    return toy_reader().checked(file...);
  };
  renew_report_after_run(sweep.plan, reader);
  CHECK(readings > 0);
  CHECK(std::filesystem::exists(report));
  CHECK_FALSE(held_by_another(".report.lock"));
}

TEST_CASE("however many runs end at once, the report has them all") {
  std::string rows;
  for (int row = 0; row < 12; ++row) rows += fmt::format("  - {{name: row-{}}}\n", row);
  Sweep sweep(rows);
  sweep.run();
  const auto summary = [](const PlannedRun& run) { return run.folder / "summary.json"; };
  for (const auto& run : sweep.plan.runs) std::filesystem::rename(summary(run), run.folder / "ready");
  std::vector<std::thread> tasks;
  for (const auto& run : sweep.plan.runs) {
    tasks.emplace_back([&sweep, &summary, &run] {
      std::filesystem::rename(run.folder / "ready", summary(run));
      renew_report_after_run(sweep.plan, toy_reader());
    });
  }
  for (auto& task : tasks) task.join();
  const auto results = nlohmann::json::parse(read_file(sweep.plan.grid.output / "results.json"));
  for (const auto& row : results["rows"]) CHECK(row["runs"][0]["state"] == "finished");
}

TEST_CASE("a signal that came before the first run starts none") {
  Sweep sweep("  - {name: one}\n");
  kill(getpid(), SIGTERM);
  CHECK(sweep.run().signal == SIGTERM);
  CHECK_FALSE(std::filesystem::exists(sweep.plan.grid.output / "order"));
}

TEST_CASE("cores are shared by the runs that there are") {
  Sweep sweep("  - {name: alone}\n");
  unsetenv("OMP_NUM_THREADS");
  sweep.options.devices = {"cpu", "cpu"};
  CHECK(sweep.run().finished == 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  CHECK_THAT(sweep.order(), Contains(fmt::format("threads {} ", usable_cores())));
}

TEST_CASE("a base whose name begins like an option is a file to train") {
  Sweep sweep("  - {name: one}\n");
  sweep.plan.grid.base = "-x.yaml";
  CHECK(train_command(sweep.plan, sweep.plan.runs[0], "train").at(1) == "./-x.yaml");
  CHECK(as_operand("x.yaml") == "x.yaml");
}

TEST_CASE("several run at a time, each with its part of the cores or a GPU of its own") {
  Sweep sweep("  - {name: a, seeds: [1, 2]}\n  - {name: b, seeds: [1, 2]}\n");
  unsetenv("OMP_NUM_THREADS");
  setenv("CUDA_VISIBLE_DEVICES", "5,3", 1);
  setenv("NAP", "2", 1);
  sweep.options.devices = {"cuda:0", "cuda:1"};
  const auto started = std::chrono::steady_clock::now();
  CHECK(sweep.run().finished == 4);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  setenv("OMP_NUM_THREADS", "1", 1);
  unsetenv("NAP");
  unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK(seconds.count() < 7.5);  // one after another takes 8
  CHECK_THAT(sweep.order(),
             Contains(fmt::format("threads {} gpu 5\n", std::max(1, usable_cores() / 2))) && Contains("gpu 3\n"));
}

TEST_CASE("a signal reaches the runs, and the sweep goes on where it was") {
  Sweep sweep("  - {name: first}\n  - {name: hangs}\n  - {name: last}\n");
  auto killer = terminate_when(sweep.directory / "out/hangs/seed-1/metrics.jsonl");
  const auto end = sweep.run();
  killer.join();
  CHECK(end.signal == SIGTERM);
  CHECK(end.finished == 1);
  CHECK(end.failed == 0);
  CHECK(sweep.result("hangs/seed-1").state == SweepRun::State::waiting);
  CHECK_THAT(sweep.result("hangs/seed-1").reason, Contains("at step") && Contains("of 100"));
  CHECK_THAT(read_file(sweep.plan.runs[1].log), Contains("stopped after step 5") && EndsWith("interrupted\n"));
  CHECK(sweep.result("last/seed-1").state == SweepRun::State::waiting);
  CHECK_FALSE(std::filesystem::exists(sweep.plan.runs[2].log));
  CHECK_FALSE(std::filesystem::exists(sweep.plan.grid.output / "hangs-1.active"));
}

TEST_CASE("runs are told to stop before the log is, whose reader may take no more") {
  Sweep sweep("  - {name: hangs}\n");
  bool stopped = false;
  sweep.options.log = Log([&](LogLevel, const std::string& line) {
    if (!line.starts_with("stopping once checkpoints are written")) return;
    for (int i = 0; i < 1000 && !stopped; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      stopped = read_file(sweep.plan.runs[0].log).ends_with("stopped after step 5\n");
    }
  });
  auto killer = terminate_when(sweep.folder("hangs") / "metrics.jsonl");
  CHECK(sweep.run().signal == SIGTERM);
  killer.join();
  CHECK(stopped);
}

TEST_CASE("signals that come together are one wish, and leave a checkpoint that takes its time") {
  Sweep sweep("  - {name: slow}\n");
  sweep.options.kill_seconds = 0.05;
  std::thread killer([&] {
    terminate_when(sweep.folder("slow") / "ready").join();
    wait_for(sweep.folder("slow") / "told");
    for (const int signal : {SIGTERM, SIGHUP}) {
      kill(getpid(), signal);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  sweep.run();
  killer.join();
  CHECK_THAT(read_file(sweep.plan.runs[0].log), Contains("stopped after step 5") && EndsWith("interrupted\n"));
}

TEST_CASE("a run that does not stop is killed after the second wish") {
  Sweep sweep("  - {name: stubborn}\n");
  sweep.options.kill_seconds = 0.3;
  std::string said;
  sweep.options.log = Log([&](LogLevel, const std::string& line) { said += line + "\n"; });
  std::thread killer([&] {
    wait_for(sweep.folder("stubborn") / "ready");
    kill(getpid(), SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    kill(getpid(), SIGINT);
  });
  const auto end = sweep.run();
  killer.join();
  CHECK(end.signal == SIGINT);
  CHECK_THAT(said, Contains("(1 running); once more, after more than 1 s, to stop at once\n"));
  CHECK(end.failed == 0);
  CHECK(sweep.result("stubborn/seed-1").state == SweepRun::State::waiting);
}

TEST_CASE("a run that cannot be started stops nobody") {
  Sweep sweep("  - {name: a}\n  - {name: b}\n  - {name: c}\n");
  sweep.options.devices = {"cpu", "cpu"};
  std::filesystem::create_directories(sweep.plan.grid.output / "b");
  write_file(sweep.folder("b"), "mine");
  const auto end = sweep.run();
  CHECK(end.finished == 2);
  CHECK(end.failed == 1);
  CHECK(sweep.result("a/seed-1").state == SweepRun::State::finished);
  CHECK(sweep.result("b/seed-1").state == SweepRun::State::failed);
  CHECK_THAT(sweep.result("b/seed-1").reason, Contains("b/seed-1: cannot be made: Not a directory"));
  CHECK(read_result(sweep.plan.runs[1], toy_reader()).reason == sweep.result("b/seed-1").reason);
  CHECK(sweep.result("c/seed-1").state == SweepRun::State::finished);
  CHECK(read_file(sweep.folder("b")) == "mine");

  // One whose log cannot be written, either.
  std::filesystem::remove(sweep.folder("b"));
  std::filesystem::remove(sweep.plan.runs[1].log);
  std::filesystem::create_directory(sweep.plan.runs[1].log);
  CHECK(sweep.run().failed == 1);
  CHECK_THAT(sweep.result("b/seed-1").reason, Contains("b/seed-1.log: cannot be written"));
}

TEST_CASE("an interrupted run whose figures cannot be read leaves the others their time") {
  Sweep sweep("  - {name: hangs, seeds: [1, 2]}\n");
  sweep.options.devices = {"cpu", "cpu"};
  std::thread killer([&] {
    const auto metrics = sweep.folder("hangs") / "metrics.jsonl";
    for (const auto& run : sweep.plan.runs) wait_for(run.folder / "metrics.jsonl");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::filesystem::remove(metrics);
    std::filesystem::create_directory(metrics);
    kill(getpid(), SIGTERM);
  });
  const auto end = sweep.run();
  killer.join();
  CHECK(end.signal == SIGTERM);
  CHECK(end.failed == 0);
  CHECK_THAT(sweep.result("hangs/seed-1").reason, Contains("metrics.jsonl: is not a regular file"));
  CHECK(sweep.result("hangs/seed-2").state == SweepRun::State::waiting);
  CHECK_THAT(read_file(sweep.plan.runs[1].log), Contains("stopped after step 5") && EndsWith("interrupted\n"));
}

TEST_CASE("a sweep that cannot go on lets its runs end with checkpoints") {
  Sweep sweep("  - {name: hangs}\n  - {name: quick}\n");
  fail_during(sweep, "hangs");
  CHECK_THAT(read_file(sweep.plan.runs[0].log), EndsWith("stopped after step 5\n"));
}

TEST_CASE("a run that was halted ends with a checkpoint as well") {
  Sweep sweep("  - {name: halted}\n  - {name: quick}\n");
  sweep.options.kill_seconds = 10;
  fail_during(sweep, "halted");
  CHECK_THAT(read_file(sweep.plan.runs[0].log), EndsWith("stopped after step 5\n"));
}

TEST_CASE("a sweep that cannot go on kills a run that does not stop") {
  Sweep sweep("  - {name: stubborn}\n  - {name: quick}\n");
  sweep.options.kill_seconds = 0.3;
  fail_during(sweep, "stubborn");
}

TEST_CASE("a vocabulary that one run learned serves those that would learn the same") {
  Sweep sweep(
      "  - {name: one}\n  - {name: two, model: {heads: 2}}\n  - {name: other, model: {vocabulary_size: 50}}\n"
      "  - {name: tagged, data: {train_tags: [\"<BT>\"]}}\n");
  sweep.run();
  const auto vocabulary = [&](const std::string& row) {
    return read_file(sweep.plan.grid.output / row / "seed-1" / "vocabulary.model");
  };
  CHECK(vocabulary("one") == "learned by one\n");
  CHECK(vocabulary("two") == "learned by one\n");
  CHECK(vocabulary("other") == "learned by other\n");
  CHECK(vocabulary("tagged") == "learned by tagged\n");  // its tag is a piece
  const auto report = make_report(sweep.plan, sweep.results);
  CHECK(report.rows[0].vocabulary == report.rows[1].vocabulary);
  CHECK(report.rows[0].vocabulary != report.rows[2].vocabulary);
  // Nobody knows what a vocabulary without settings beside it was learned from.
  const auto& two = sweep.plan.runs[sweep.plan.find("two/seed-1")];
  write_file(sweep.folder("one") / "vocabulary.model", "learned anew");
  share_vocabulary(sweep.plan, two, toy_reader());
  CHECK(vocabulary("two") == "learned by one\n");
  std::filesystem::remove(two.folder / "config.yaml");
  share_vocabulary(sweep.plan, two, toy_reader());
  CHECK(vocabulary("two") == "learned anew");
  // What the sweep did not put there is the user's, also in place of what it did.
  write_file(two.folder / "vocabulary.model", "mine");
  share_vocabulary(sweep.plan, two, toy_reader());
  CHECK(vocabulary("two") == "mine");
  const auto& one = sweep.plan.runs[sweep.plan.find("one/seed-1")];
  std::filesystem::remove(one.folder / "config.yaml");
  write_file(one.folder / "vocabulary.model", "mine");
  share_vocabulary(sweep.plan, one, toy_reader());
  CHECK(vocabulary("one") == "mine");
}

TEST_CASE("a run on another text than the sweep's others have read is not begun") {
  Sweep sweep("  - {name: good}\n");
  const auto text = (sweep.directory / "text.en").string();
  write_file(text, "one\n");
  const auto data = ", data: {train_source: " + text + "}}\n";
  sweep.set_rows("  - {name: one" + data + "  - {name: two" + data);
  sweep.changed = [&] {
    if (sweep.result("one/seed-1").state == SweepRun::State::finished) write_file(text, "two\n");
  };
  auto end = sweep.run();
  CHECK(end.finished == 1);
  CHECK_THAT(sweep.result("two/seed-1").reason, Contains(text + ": is another file than the one that runs in") &&
                                                    Contains("put that one back, or choose another --output"));
  const auto checksums = [&] { return input_checksums(sweep.plan, sweep.plan.runs_of({})); };
  CHECK_THROWS_WITH(SweepFiles(sweep.plan.grid.output).check_inputs(checksums()), Contains("is another file"));
  CHECK_FALSE(std::filesystem::exists(sweep.folder("two") / "config.yaml"));
  write_file(text, "one\n");
  CHECK_NOTHROW(SweepFiles(sweep.plan.grid.output).check_inputs(checksums()));
  end = sweep.run();
  CHECK(end.finished == 2);
}

TEST_CASE("what a sweep reads may change while no run has begun, or is no file") {
  Sweep sweep("  - {name: one}\n");
  const auto text = (sweep.directory / "text.en").string();
  sweep.set_rows("  - {name: one, data: {train_source: " + text + "}}\n");
  CHECK(input_checksums(sweep.plan, {0}).empty());  // train says so
  const auto claim = [&](const std::string& words) {
    write_file(text, words);
    SweepFiles(sweep.plan.grid.output).claim_inputs(input_checksums(sweep.plan, {0}));
  };
  claim("one");
  claim("two");
  std::filesystem::create_directories(sweep.folder("one"));
  std::filesystem::create_directories(sweep.plan.grid.output / "notes");
  write_file(sweep.plan.grid.output / "notes" / "config.yaml", "the user's");
  claim("three");
  write_file(sweep.folder("one") / "config.yaml", "begun");
  claim("three");
  CHECK_THROWS_WITH(claim("four"), Contains("is another file"));
}

TEST_CASE("a vocabulary that the user gives a run stays, whenever it comes") {
  Sweep sweep("  - {name: one}\n  - {name: two, model: {heads: 2}}\n");
  const auto give = [&](const std::string& row) {
    std::filesystem::create_directories(sweep.folder(row));
    write_file(sweep.folder(row) / "vocabulary.model", "mine");
    share_vocabulary(sweep.plan, sweep.plan.runs[sweep.plan.find(row + "/seed-1")], toy_reader());
    CHECK(read_file(sweep.folder(row) / "vocabulary.model") == "mine");
  };
  claim_files(sweep.plan, sweep.plan.runs_of({"one"}));
  give("one");
  give("two");
  // Records from before there were checksums have the names of all runs' vocabularies, whosever they are.
  write_file(sweep.plan.grid.output / "sweep.json",
             R"({"kind": "transformer sweep", "files": ["report.md", "two/seed-1/vocabulary.model"]})");
  give("two");
  claim_files(sweep.plan, sweep.plan.runs_of({}));
  give("two");
  const auto record = nlohmann::json::parse(read_file(sweep.plan.grid.output / "sweep.json"));
  CHECK_THAT(record["files"].dump(), Contains("report.md") && Contains("two/seed-1.log"));
}

TEST_CASE("a sweep writes over nothing that is not its own") {
  Sweep sweep("  - {name: base}\n  - {name: other}\n");
  const auto& output = sweep.plan.grid.output;
  const auto claim = [&](const std::vector<std::string>& rows) { claim_files(sweep.plan, sweep.plan.runs_of(rows)); };
  for (const std::string name : {"report.md", "results.json", "report.html", "base/seed-1.log", "sweep.json"}) {
    std::filesystem::create_directories(output / "base");
    write_file(output / name, "mine");
    CHECK_THROWS_WITH(claim({"base"}), Contains(name));
    CHECK(read_file(output / name) == "mine");
    std::filesystem::remove(output / name);
  }
  CHECK_FALSE(std::filesystem::exists(output / "sweep.json"));
  // What this sweep will not write is not its own yet.
  claim({"base"});
  std::filesystem::create_directories(output / "other");
  for (const std::string name : {"other/seed-1.log", "sweep.sbatch"}) {
    write_file(output / name, "mine");
    claim({"base"});
    CHECK_THROWS_WITH((claim({}), claim_job_array(sweep.plan)), Contains(name));
    std::filesystem::remove(output / name);
  }
  claim({});
  sweep.run();
  write_report(sweep.plan, sweep.results);
  claim({});
  // A sweep from before there was a record.
  std::filesystem::remove(output / "sweep.json");
  write_file(output / "sweep.sbatch", "its own");
  claim({"base"});
  CHECK(std::filesystem::exists(output / "sweep.json"));
  claim({});
  claim_job_array(sweep.plan);
}

TEST_CASE("what cannot be started is a failure with its reason") {
  Sweep sweep("  - {name: base}\n");
  sweep.options.train = (sweep.directory / "no-such-program").string();
  CHECK(sweep.run().failed == 1);
  CHECK_THAT(sweep.result("base/seed-1").reason, Contains("cannot be started: No such file"));
}

TEST_CASE("a GPU is handed over as the one that is visible") {
  using Environment = std::map<std::string, std::string>;
  CHECK(device_environment("cpu", "").empty());
  CHECK(device_environment("cuda:2", "") == Environment{{"CUDA_VISIBLE_DEVICES", "2"}});
  CHECK(device_environment("cuda:1", "4,GPU-7f") == Environment{{"CUDA_VISIBLE_DEVICES", "GPU-7f"}});
  CHECK_THROWS_WITH(device_environment("cuda:2", "4,5"), Contains("shows 2 GPUs"));
}

TEST_CASE("results.json holds what is known") {
  Sweep sweep("  - {name: base, seeds: [1, 2], paper: {bleu: 25.8}}\n  - {name: bad, group: A, model: {heads: 2}}\n");
  sweep.run();
  sweep.results[2].state = SweepRun::State::waiting;
  write_report(sweep.plan, sweep.results);
  const auto json = nlohmann::json::parse(read_file(sweep.plan.grid.output / "results.json"));
  CHECK(json["format"] == 1);
  CHECK(json["base_row"] == "base");
  REQUIRE(json["rows"].size() == 2);
  CHECK(json["rows"][0]["paper"] == nlohmann::json{{"bleu", 25.8}});
  REQUIRE(json["rows"][0]["runs"].size() == 2);
  CHECK(json["rows"][0]["runs"][0]["perplexity"] == 4.25);
  CHECK(json["rows"][0]["runs"][0]["curve"][0]["target_tokens"] == 210);
  CHECK(json["rows"][0]["runs"][0]["steps"] == 30);
  CHECK(json["rows"][0]["runs"][0]["ended_by"] == "time");
  CHECK(json["rows"][0]["runs"][0]["averaged_checkpoints"] == 3);
  CHECK_FALSE(json["rows"][1]["runs"][0].contains("ended_by"));
  CHECK(json["rows"][1]["changes"] == "heads 2");
  CHECK(json["rows"][1]["runs"][0]["state"] == "failed");
  CHECK(json["rows"][1]["runs"][0]["reason"] == "data: no such text; name another");
  CHECK(json["rows"][0]["runs"][1]["state"] == "waiting");
  CHECK_THAT(read_file(sweep.plan.grid.output / "report.md"), Contains("| base"));
  CHECK_THAT(read_file(sweep.plan.grid.output / "report.html"), Contains("</html>"));
}
