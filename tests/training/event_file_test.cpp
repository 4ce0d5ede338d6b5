#include "transformer/training/event_file.h"

#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "few_threads.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/base/run_files.h"

using namespace transformer;
using namespace transformer::test;

namespace {

// tag -> step -> value
using Curves = std::map<std::string, std::map<int64_t, double>>;

// What TensorBoard's own reader finds must be `curves`, each step once. With `watched_from`, a TensorBoard that had
// read so many bytes before the rest was written must find the same.
void check_read_by_tensorboard(const std::filesystem::path& file, const Curves& curves, int64_t watched_from = 0) {
  nlohmann::json expected;
  for (const auto& [tag, points] : curves) {
    for (const auto& [step, value] : points) expected[tag].push_back({step, value});
  }
  write_file(file.string() + ".json", expected.dump());
  run_reference("event_file.py", fmt::format("read '{0}' '{0}.json' {1}", file.string(), watched_from));
}

int64_t size_of(const std::filesystem::path& file) {
  return static_cast<int64_t>(std::filesystem::file_size(file));
}

}  // namespace

TEST_CASE("CRC-32C has the values of RFC 3720") {
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(crc32c("") == 0);
}

TEST_CASE("TensorBoard reads tags, steps and values") {
  TemporaryDirectory directory;
  const auto file = directory / events_name;
  const int64_t last = 5000000000;  // more than 32 bits hold
  {
    EventFile events(file, 1);
    events.write(100, {{"train/loss", 7.25}, {"train/rate", 1.7e-7}});
    events.write(200, {{"train/loss", -6.123456789012345}, {"train/rate", 3.4e38}});
    events.write(200, {{"validation/perplexity", 812.5}});
    events.write(last, {{"train/loss", 0}, {"größe/" + std::string(300, 'x'), 1}});
  }
  check_read_by_tensorboard(file, {{"train/loss", {{100, 7.25}, {200, -6.123456789012345}, {last, 0}}},
                                   {"train/rate", {{100, 1.7e-7}, {200, 3.4e38}}},
                                   {"validation/perplexity", {{200, 812.5}}},
                                   {"größe/" + std::string(300, 'x'), {{last, 1}}}});
}

TEST_CASE("a reader notices every flipped byte of an event file") {
  TemporaryDirectory directory;
  const auto file = directory / events_name;
  {
    EventFile events(file, 1);
    events.write(1, {{"train/loss", 2.5}, {"train/rate", 1e-4}});
    events.write(2, {{"train/loss", 2.25}});
  }
  run_reference("event_file.py", fmt::format("damage '{}'", file.string()));
}

TEST_CASE("a run that goes on from an earlier step shows no step twice") {
  TemporaryDirectory directory;
  const auto file = directory / events_name;
  {
    EventFile events(file, 1);
    for (int64_t step = 100; step <= 500; step += 100) events.write(step, {{"train/loss", step / 100.0}});
    events.write(300, {{"validation/loss", 3}});
    events.write(500, {{"validation/loss", 5}});
  }
  const int64_t before = size_of(file);
  {
    EventFile events(file, 301);  // from the checkpoint of step 300
    events.write(400, {{"train/loss", 40}});
  }
  check_read_by_tensorboard(
      file, {{"train/loss", {{100, 1}, {200, 2}, {300, 3}, {400, 40}}}, {"validation/loss", {{300, 3}}}}, before);
}

TEST_CASE("what a crash left unfinished is cut off and written on from there") {
  TemporaryDirectory directory;
  const auto file = directory / events_name;
  {
    EventFile events(file, 1);
    events.write(1, {{"train/loss", 1}});
  }
  const auto whole = read_file(file);
  {
    EventFile events(file, 2);
    events.write(2, {{"train/loss", 2}});
  }
  const auto longer = read_file(file);
  REQUIRE(longer.starts_with(whole));

  const int64_t cut = GENERATE(1, 4, 12, 20);  // within the last record, up to its header
  SECTION("an unfinished record") {
    write_file(file, longer.substr(0, longer.size() - cut));
  }
  SECTION("zeros in its place") {
    write_file(file, longer.substr(0, longer.size() - cut) + std::string(cut, '\0'));
  }
  {
    EventFile events(file, 2);
    events.write(2, {{"train/loss", 4}});
    events.write(3, {{"train/loss", 9}});
  }
  check_read_by_tensorboard(file, {{"train/loss", {{1, 1}, {2, 4}, {3, 9}}}});
}

TEST_CASE("an event file is gone on with in little memory, however long it is") {
  TemporaryDirectory directory;
  const auto file = directory / events_name;
  {
    EventFile events(file, 1);
    for (int64_t step = 1; step <= 10000; ++step) events.write(step, {{"train/loss", 1}, {"train/rate", 1e-4}});
  }
  const auto some = read_file(file);
  {
    std::ofstream out(file, std::ios::binary | std::ios::app);
    for (int64_t bytes = 0; bytes < int64_t{96} << 20; bytes += std::ssize(some)) out << some;
  }
  const auto whole = size_of(file);
  SECTION("whole") {}
  SECTION("with a long end that is none of it") {
    std::filesystem::resize_file(file, static_cast<uintmax_t>(whole) + (uintmax_t{1} << 30));
  }
  CHECK(with_few_threads([&] {
    const EventFile events(file, 10001);
    return true;
  }));
  CHECK(size_of(file) > whole);
  CHECK(size_of(file) < whole + 100);  // the restart record
}

TEST_CASE("a file that is no event file, or holds less than one record, is begun anew") {
  TemporaryDirectory directory;
  const auto file = directory / events_name;
  write_file(file, GENERATE("", "x", "something else, longer than a record's header is"));
  EventFile(file, 1).write(7, {{"train/loss", 1}});
  check_read_by_tensorboard(file, {{"train/loss", {{7, 1}}}});
}

TEST_CASE("an event file that cannot be written is named, and stays whole") {
  TemporaryDirectory directory;
  CHECK_THROWS_AS(EventFile(directory / "missing" / events_name, 1), Failure);
  CHECK_THROWS_WITH(EventFile(directory / "missing" / events_name, 1),
                    Contains("missing/events.out.tfevents") && Contains("No such file"));

  const auto file = directory / events_name;
  EventFile events(file, 1);
  events.write(1, {{"train/loss", 1}});
  const auto whole = read_file(file);
  // A limit on the size of files stands for a full disk: the first ten bytes still fit.
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{whole.size() + 10, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  std::string message;
  try {
    events.write(2, {{"train/loss", 2}});
  } catch (const Failure& failure) {
    message = failure.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  CHECK_THAT(message, Contains(file.string()) && Contains("File too large"));
  CHECK(read_file(file) == whole);
  events.write(2, {{"train/loss", 3}});
  check_read_by_tensorboard(file, {{"train/loss", {{1, 1}, {2, 3}}}});
}
