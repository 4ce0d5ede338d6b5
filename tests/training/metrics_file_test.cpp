#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "support.h"
#include "transformer/base/error.h"
#include "transformer/training/metrics.h"

using namespace transformer;
using namespace transformer::test;

namespace {

constexpr const char* header = "{\"kind\":\"header\",\"format\":1}\n";

}  // namespace

TEST_CASE("metrics.jsonl is a header and a line for each report, and its length is known") {
  TemporaryDirectory run;
  Metrics metrics(run.path(), 0, 1);
  CHECK(read_file(run / metrics_name) == header);
  CHECK(metrics.bytes() == static_cast<int64_t>(std::string(header).size()));
  metrics.record("train", 5, {{"loss", 2.5}, {"tokens", int64_t{12}}, {"signature", std::string("a\"b")}});
  metrics.record("validation", 6, {{"perplexity", 7.0}});
  const std::string expected = std::string(header) +
                               "{\"kind\":\"train\",\"step\":5,\"loss\":2.5,\"tokens\":12,\"signature\":\"a\\\"b\"}\n"
                               "{\"kind\":\"validation\",\"step\":6,\"perplexity\":7.0}\n";
  CHECK(read_file(run / metrics_name) == expected);
  CHECK(metrics.bytes() == static_cast<int64_t>(expected.size()));
  // TensorBoard's own reader finds the numbers, whole ones as well, and no text.
  const auto events = (run / events_name).string();
  write_file(events + ".json",
             R"({"train/loss": [[5, 2.5]], "train/tokens": [[5, 12]], "validation/perplexity": [[6, 7]]})");
  run_reference("event_file.py", fmt::format("read '{0}' '{0}.json' 0", events));
}

TEST_CASE("a copy of a run that shares its files (cp -al) keeps its figures") {
  TemporaryDirectory run, copy;
  int64_t at_the_checkpoint = 0;
  {
    Metrics metrics(run.path(), 0, 1);
    metrics.record("train", 1, {{"loss", 1.0}});
    at_the_checkpoint = metrics.bytes();
    metrics.record("train", 2, {{"loss", 2.0}});
  }
  std::map<std::string, std::string> before;
  for (const auto* name : {metrics_name, events_name}) {
    std::filesystem::create_hard_link(run / name, copy / name);
    before[name] = read_file(copy / name);
  }
  Metrics metrics(run.path(), at_the_checkpoint, 2);
  metrics.record("train", 2, {{"loss", 3.0}});
  for (const auto& [name, text] : before) {
    CHECK(read_file(copy / name) == text);
    CHECK(read_file(run / name) != text);
  }
}

TEST_CASE("metrics.jsonl is gone on with at the checkpoint's length") {
  TemporaryDirectory run;
  int64_t at_the_checkpoint = 0;
  {
    Metrics metrics(run.path(), 0, 1);
    metrics.record("train", 1, {{"loss", 1.0}});
    at_the_checkpoint = metrics.bytes();
    metrics.record("train", 2, {{"loss", 2.0}});
  }
  const auto all = read_file(run / metrics_name);
  REQUIRE(static_cast<int64_t>(all.size()) > at_the_checkpoint);
  SECTION("what came after it goes") {
    Metrics metrics(run.path(), at_the_checkpoint, 2);
    CHECK(read_file(run / metrics_name) == all.substr(0, at_the_checkpoint));
    CHECK(metrics.bytes() == at_the_checkpoint);
    metrics.record("train", 2, {{"loss", 2.0}});
    CHECK(read_file(run / metrics_name) == all);
    CHECK(metrics.bytes() == static_cast<int64_t>(all.size()));
  }
  SECTION("a shorter file stays as it is, without zeros up to that length") {
    Metrics metrics(run.path(), static_cast<int64_t>(all.size()) + 100, 3);
    CHECK(read_file(run / metrics_name) == all);
    CHECK(metrics.bytes() == static_cast<int64_t>(all.size()));
  }
  SECTION("of a file that ends within a line, that line goes") {
    write_file(run / metrics_name, all.substr(0, all.size() - 5));
    Metrics metrics(run.path(), static_cast<int64_t>(all.size()), 3);
    CHECK(read_file(run / metrics_name) == all.substr(0, at_the_checkpoint));
    CHECK(metrics.bytes() == at_the_checkpoint);
    CHECK_NOTHROW(metrics.sync());
  }
  SECTION("a file that somebody removed is begun anew") {
    std::filesystem::remove(run / metrics_name);
    const Metrics metrics(run.path(), at_the_checkpoint, 2);
    CHECK(read_file(run / metrics_name) == header);
    CHECK(metrics.bytes() == static_cast<int64_t>(std::string(header).size()));
  }
}

TEST_CASE("a last step that is judged anew shows once, and what was said of it before stays") {
  TemporaryDirectory run;
  int64_t at_the_checkpoint = 0;
  {
    Metrics metrics(run.path(), 0, 1);
    for (const int64_t step : {3, 6}) metrics.record("train", step, {{"loss", 1.5 * static_cast<double>(step)}});
    metrics.record("validation", 6, {{"perplexity", 7.25}, {"tokens", int64_t{12}}, {"signature", std::string("x")}});
    at_the_checkpoint = metrics.bytes();
    metrics.record("final", 6, {{"perplexity", 6.5}});
  }
  for (const double perplexity : {5.5, 4.5}) {
    Metrics metrics(run.path(), at_the_checkpoint, 7);
    metrics.record("final", 6, {{"perplexity", perplexity}});
  }
  const auto events = (run / events_name).string();
  write_file(events + ".json", R"({"train/loss": [[3, 4.5], [6, 9]], "validation/perplexity": [[6, 7.25]],)"
                               R"( "validation/tokens": [[6, 12]], "final/perplexity": [[6, 4.5]]})");
  run_reference("event_file.py", fmt::format("read '{0}' '{0}.json' 0", events));
  // Lines that are none harm nobody.
  for (const std::string bad : {"", "{", "[6]", R"({"kind":"final","step":"6"})", R"({"kind":7,"step":6})",
                                R"({"kind":"final","step":-6})", R"({"kind":"final","step":1e300})"}) {
    const auto all = read_file(run / metrics_name);
    write_file(run / metrics_name, all.substr(0, at_the_checkpoint) + bad + "\n");
    CHECK(Metrics(run.path(), at_the_checkpoint, 7).bytes() == at_the_checkpoint);
  }
}

TEST_CASE("metrics that cannot be looked at are not taken for none") {
  TemporaryDirectory run;
  std::filesystem::create_symlink(metrics_name, run / metrics_name);  // leads to itself
  CHECK_THROWS_AS(Metrics(run.path(), 0, 1), Failure);
  CHECK_THROWS_WITH(Metrics(run.path(), 0, 1), Contains((run / metrics_name).string() + ": cannot be read"));
}

TEST_CASE("metrics that cannot be written are named") {
  TemporaryDirectory run;
  std::filesystem::create_directory(run / metrics_name);  // a folder in the file's place
  CHECK_THROWS_AS(Metrics(run.path(), 0, 1), Failure);
  CHECK_THROWS_WITH(Metrics(run.path(), 0, 1), Contains((run / metrics_name).string()));
  // Every write to it finds the disk full, but only when it is flushed.
  TemporaryDirectory full;
  std::filesystem::create_symlink("/dev/full", full / metrics_name);
  CHECK_THROWS_WITH(Metrics(full.path(), 0, 1), Contains("No space left on device"));
  // A program that runs cannot be cut; to its own length, so that nothing could be lost.
  TemporaryDirectory busy;
  std::filesystem::create_symlink("/proc/self/exe", busy / metrics_name);
  CHECK_THROWS_WITH(Metrics(busy.path(), std::numeric_limits<int64_t>::max(), 1), Contains("cannot be cut"));
}
