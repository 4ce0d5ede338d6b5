#include "transformer/text/corpus_cache.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "text_support.h"
#include "transformer/base/checksum.h"
#include "transformer/text/corpus.h"
#include "without_locks.h"

namespace transformer::test {

namespace fs = std::filesystem;

namespace {

// Two parallel texts of a few sentences, a vocabulary and a cache.
class CacheTest {
 public:
  CacheTest() : vocabulary_(small_vocabulary(folder_)) {
    write("a.en", "One.\nTwo cats.\n\nThree dogs ran home.\n");
    write("a.de", "Eins.\nZwei Katzen.\nnichts\nDrei Hunde liefen heim.\n");
    write("b.en", "Four.\n");
    write("b.de", "Vier.\n");
  }

  // A text that was last written to an hour ago.
  void write(const std::string& name, const std::string& text) const {
    write_file(folder_ / name, text);
    set_age(name, std::chrono::hours(1));
  }
  void set_age(const std::string& name, fs::file_time_type::duration age) const {
    fs::last_write_time(folder_ / name, fs::file_time_type::clock::now() - age);
  }

  Corpus read(const std::vector<std::string>& names = {"a"}, Corpus::Options options = {}) const {
    return read(names, vocabulary_, options);
  }
  Corpus read(const std::vector<std::string>& names, const Vocabulary& vocabulary, Corpus::Options options) const {
    std::vector<std::string> sources, targets;
    for (const auto& name : names) {
      sources.push_back((folder_ / (name + ".en")).string());
      targets.push_back((folder_ / (name + ".de")).string());
    }
    options.cache = cache();
    auto corpus = Corpus::read(sources, targets, vocabulary, vocabulary, options);
    options.cache.clear();
    check_equal(corpus, Corpus::read(sources, targets, vocabulary, vocabulary, options));
    return corpus;
  }

  static void check_equal(const Corpus& cached, const Corpus& in_memory) {
    REQUIRE(cached.size() == in_memory.size());
    REQUIRE(cached.sizes() == in_memory.sizes());
    for (int64_t pair = 0; pair < cached.size(); ++pair) {
      REQUIRE(cached.source(pair) == in_memory.source(pair));
      REQUIRE(cached.target(pair) == in_memory.target(pair));
      REQUIRE(cached.target_length(pair) == in_memory.target_length(pair));
    }
    const auto &a = cached.report(), &b = in_memory.report();
    REQUIRE(std::tie(a.pairs, a.empty, a.too_long, a.ratio, a.source_tokens, a.target_tokens) ==
            std::tie(b.pairs, b.empty, b.too_long, b.ratio, b.source_tokens, b.target_tokens));
    REQUIRE(cached.longest() == in_memory.longest());
    REQUIRE(cached.checksum() == in_memory.checksum());
    REQUIRE(in_memory.report().from_cache == 0);
  }

  fs::path cache() const { return folder_ / "cache"; }
  std::set<fs::path> items(const std::string& extension) const {
    std::set<fs::path> found;
    for (const auto& item : fs::directory_iterator(cache())) {
      if (item.is_directory() && item.path().extension() == extension) found.insert(item.path());
    }
    return found;
  }
  std::set<fs::path> entries() const { return items(""); }

  const TemporaryDirectory& folder() const { return folder_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  TemporaryDirectory folder_;
  Vocabulary vocabulary_;
};

// Writes `manifest` and the checksums of the files as they are now, as if they had been written so.
void forge(const fs::path& entry, nlohmann::ordered_json manifest) {
  for (auto& [name, file] : manifest["files"].items()) {
    file = {{"bytes", fs::file_size(entry / name)}, {"checksum", file_checksum(entry / name)}};
  }
  write_file(entry / "corpus.json", manifest.dump());
}

void set_number(const fs::path& file, size_t index, auto number) {
  auto bytes = read_file(file);
  REQUIRE(bytes.size() >= (index + 1) * sizeof number);
  std::memcpy(bytes.data() + index * sizeof number, &number, sizeof number);
  write_file(file, bytes);
}

}  // namespace

TEST_CASE("text is tokenised once") {
  const CacheTest test;
  CHECK(test.read({"a", "b"}).report().from_cache == 0);
  CHECK(test.entries().size() == 2);
  const auto again = test.read({"a", "b"});
  CHECK(again.report().from_cache == 2);
  CHECK(again.report().warnings.empty());
  CHECK(again.size() == 4);
  CHECK(test.entries().size() == 2);
  CHECK(test.items(".partial").empty());
}

TEST_CASE("a corpus that is added leaves the others as they are, and the same text elsewhere needs no other entry") {
  const CacheTest test;
  CHECK(test.read({"b"}).report().from_cache == 0);
  CHECK(test.read({"a", "b"}).report().from_cache == 1);
  CHECK(test.read({"b", "a", "b"}).report().from_cache == 3);
  test.write("copy.en", read_file(test.folder() / "a.en"));
  test.write("copy.de", read_file(test.folder() / "a.de"));
  CHECK(test.read({"copy"}).report().from_cache == 1);
  CHECK(test.entries().size() == 2);
}

TEST_CASE("whatever changes the ids needs another entry") {
  const CacheTest test;
  test.read();
  size_t entries = 1;
  const auto is_new = [&](const Corpus& corpus) {
    return corpus.report().from_cache == 0 && test.entries().size() == ++entries;
  };
  CHECK(is_new(test.read({"a"}, {.max_length = 255})));
  CHECK(is_new(test.read({"a"}, {.keep_all = true})));
  CHECK(is_new(test.read({"a"}, {.max_length_ratio = 2})));
  CHECK(is_new(test.read({"a"}, {.max_length_ratio = 2.5})));
  const TemporaryDirectory other;
  CHECK(is_new(test.read({"a"}, small_vocabulary(other, {}, 999), {})));
  CHECK(is_new(test.read({"a"}, small_vocabulary(other, {.algorithm = VocabularySettings::Algorithm::unigram}), {})));
  test.write("a.de", "Eins.\nZwei Kater.\nnichts\nDrei Hunde liefen heim.\n");
  CHECK(is_new(test.read()));
  test.write("a.en", "One!\nTwo cats.\n\nThree dogs ran home.\n");
  CHECK(is_new(test.read()));
  // The same vocabulary from another file is the same.
  fs::copy_file(test.folder() / "small.model", other / "copy.model");
  CHECK(test.read({"a"}, Vocabulary(other / "copy.model"), {}).report().from_cache == 1);
}

TEST_CASE("a text's bytes are read again only when the file was written to") {
  const CacheTest test;
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));  // what was written to a moment ago is not listed
  test.read();
  const auto list = test.cache() / "texts.json";
  REQUIRE(fs::exists(list));
  // A forged checksum is of no entry: where the list is believed, one is made.
  auto forged = nlohmann::ordered_json::parse(read_file(list));
  forged["texts"][fs::canonical(test.folder() / "a.en").string()]["checksum"] = "forged";
  write_file(list, forged.dump());
  // Another time, content or file, or a list that was lost, and they are read.
  const auto change = GENERATE(as<std::string>{}, "nothing", "time", "content", "file", "list");
  CAPTURE(change);
  const auto time = fs::last_write_time(test.folder() / "a.en");
  if (change == "time") test.set_age("a.en", std::chrono::hours(2));
  if (change == "content") {
    // Written anew in place, with the size and the time that it had.
    write_file(test.folder() / "a.en", "Uno.\nTwo cats.\n\nThree dogs ran home.\n");
    fs::last_write_time(test.folder() / "a.en", time);
  }
  if (change == "file") {
    fs::copy_file(test.folder() / "a.en", test.folder() / "new");
    fs::last_write_time(test.folder() / "new", time);
    fs::rename(test.folder() / "new", test.folder() / "a.en");
  }
  if (change == "list") {
    const auto damage = GENERATE(as<std::string>{}, "gone", "cut", "older", "other type");
    if (damage == "gone") fs::remove(list);
    if (damage == "cut") write_file(list, forged.dump().substr(0, 50));
    if (damage == "other type") write_file(list, "[1, 2]");
    forged["format"] = 1;
    if (damage == "older") write_file(list, forged.dump());
  }
  const auto corpus = test.read();
  CHECK(corpus.report().from_cache == (change == "nothing" || change == "content" ? 0 : 1));
  CHECK(test.read().report().from_cache == 1);
}

TEST_CASE("a corpus's checksum is of its text alone") {
  const CacheTest test;
  const auto checksum = test.read({"a", "b"}).checksum();
  CHECK(checksum.size() == 32);
  const auto cached = test.read({"a", "b"});
  CHECK(cached.report().from_cache == 2);
  CHECK(cached.checksum() == checksum);
  // However it is stored and whatever is made of it.
  const auto other = small_vocabulary(TemporaryDirectory(), {}, 900);
  CHECK(test.read({"a", "b"}, other, {.max_length = 3}).checksum() == checksum);
  for (const char* name : {"a.en", "a.de"}) {
    const auto text = read_file(test.folder() / name);
    test.write(fmt::format("packed{}", name + 1), gzip(text));
    std::string ends;
    for (const char c : text) ends += c == '\n' ? "\r\n" : std::string(1, c);
    test.write(fmt::format("ends{}", name + 1), ends);
  }
  CHECK(test.read({"packed", "b"}).checksum() == checksum);
  CHECK(test.read({"ends", "b"}).checksum() == checksum);
  // Another order, another line, a border elsewhere.
  std::set<std::string> others = {checksum, test.read({"b", "a"}).checksum(), test.read({"a"}).checksum(),
                                  test.read({"a", "b", "b"}).checksum()};
  const auto also = [&](const std::string& source, const std::string& target) {
    test.write("c.en", source);
    test.write("c.de", target);
    others.insert(test.read({"c"}).checksum());
  };
  also("ab\nc\n", "d\ne\n");
  also("a\nbc\n", "d\ne\n");
  also("ab\nd\n", "c\ne\n");
  also("ab\nc\n", "de\n\n");
  also("ab\nc\n\n", "d\ne\n\n");
  CHECK(others.size() == 9);
}

TEST_CASE("a text written to a moment ago is not trusted to stay as it is") {
  const CacheTest test;
  test.set_age("a.en", std::chrono::seconds(0));
  test.read();
  const auto time = fs::last_write_time(test.folder() / "a.en");
  write_file(test.folder() / "a.en", "Uno.\nTwo cats.\n\nThree dogs ran home.\n");
  fs::last_write_time(test.folder() / "a.en", time);
  CHECK(test.read().report().from_cache == 0);
}

TEST_CASE("a text from years that no clock of nanoseconds reaches is read every time") {
  const CacheTest test;
  test.read();
  const std::array<timespec, 2> times{{{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 13'000'000'000, .tv_nsec = 0}}};
  REQUIRE(utimensat(AT_FDCWD, (test.folder() / "a.en").c_str(), times.data(), 0) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));  // the time of change is then settled
  CHECK(test.read().report().from_cache == 1);
  const auto list = nlohmann::ordered_json::parse(read_file(test.cache() / "texts.json"));
  CHECK(list["texts"].contains(fs::canonical(test.folder() / "a.de").string()));
  CHECK_FALSE(list["texts"].contains(fs::canonical(test.folder() / "a.en").string()));
}

TEST_CASE("a damaged entry is found and made anew") {
  const CacheTest test;
  test.read();
  const auto entry = *test.entries().begin();
  const std::string file =
      GENERATE(as<std::string>{}, "source.ids", "target.ids", "source.offsets", "target.offsets", "corpus.json");
  const std::string damage = GENERATE(as<std::string>{}, "cut", "longer", "empty", "missing", "a byte", "a folder");
  CAPTURE(file, damage);
  const std::string bytes = read_file(entry / file);
  if (damage == "cut") write_file(entry / file, bytes.substr(0, bytes.size() - 3));
  if (damage == "longer") write_file(entry / file, bytes + bytes);
  if (damage == "empty") write_file(entry / file, "");
  if (damage == "missing" || damage == "a folder") fs::remove(entry / file);
  if (damage == "a folder") fs::create_directory(entry / file);
  if (damage == "a byte") {
    auto other = bytes;
    other[other.find('"') == std::string::npos ? 8 : other.find("checksum")] ^= 1;
    write_file(entry / file, other);
  }
  const auto mended = test.read();
  CHECK(mended.report().from_cache == 0);
  REQUIRE(mended.report().warnings.size() == 1);
  CHECK_THAT(mended.report().warnings[0], Contains(entry.string()) && Contains("was damaged ("));
  CHECK(test.read().report().from_cache == 1);
  CHECK(test.read().report().warnings.empty());
  CHECK(test.items(".partial").empty());
}

TEST_CASE("no number in an entry leads out of an array or out of the vocabulary, even with the right checksum") {
  const CacheTest test;
  test.read();
  const auto entry = *test.entries().begin();
  auto manifest = nlohmann::ordered_json::parse(read_file(entry / "corpus.json"));
  const auto pairs = manifest.at("pairs").get<size_t>();
  const std::string damage =
      GENERATE(as<std::string>{}, "id too large", "id negative", "id of padding", "offset backwards", "first offset",
               "last offset", "offset far out", "pairs", "negative pairs", "most pairs", "pairs no number", "format");
  CAPTURE(damage);
  if (damage == "id too large") set_number(entry / "source.ids", 1, static_cast<int32_t>(test.vocabulary().size()));
  if (damage == "id negative") set_number(entry / "target.ids", 0, int32_t{-1});
  if (damage == "id of padding") set_number(entry / "target.ids", 2, int32_t{0});
  if (damage == "offset backwards") set_number(entry / "source.offsets", 2, int64_t{1});
  if (damage == "first offset") set_number(entry / "source.offsets", 0, int64_t{1});
  if (damage == "last offset") set_number(entry / "target.offsets", pairs, int64_t{1} << 40);
  if (damage == "offset far out") set_number(entry / "target.offsets", 1, int64_t{1} << 40);
  if (damage == "pairs") manifest["pairs"] = pairs + 1;
  if (damage == "negative pairs") manifest["pairs"] = -1;
  if (damage == "most pairs") manifest["pairs"] = std::numeric_limits<int64_t>::max();
  if (damage == "pairs no number") manifest["pairs"] = "three";
  if (damage == "format") manifest["format"] = 1;
  forge(entry, manifest);
  const auto mended = test.read();
  CHECK(mended.report().from_cache == 0);
  CHECK(mended.report().warnings.size() == 1);
  CHECK(test.read().report().from_cache == 1);
}

TEST_CASE("what a killed process left is no entry and goes") {
  const CacheTest test;
  test.read();
  const auto entry = *test.entries().begin();
  fs::rename(entry, entry.string() + ".partial");
  fs::create_directory(test.cache() / "01230123012301230123012301230123.partial");
  write_file(test.cache() / "01230123012301230123012301230123.partial" / "source.ids", "half");
  write_file(test.cache() / "01230123012301230123012301230123.lock", "");
  CHECK(test.read().report().from_cache == 0);
  CHECK(test.items(".partial").empty());
  CHECK(test.entries().size() == 1);

  // What another process is making stays.
  const auto busy = test.cache() / "45674567456745674567456745674567.partial";
  fs::create_directory(busy);
  const int lock =
      open((test.cache() / "45674567456745674567456745674567.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  REQUIRE(flock(lock, LOCK_EX) == 0);
  test.read();
  CHECK(fs::exists(busy));
  close(lock);
  test.read();
  CHECK(!fs::exists(busy));
}

TEST_CASE("what is named like an entry and is somebody's stays") {
  const CacheTest test;
  test.read();
  const auto named = [&](char digit, const char* ending) { return test.cache() / (std::string(32, digit) + ending); };
  fs::create_directory(named('a', ".partial"));  // nobody held its lock
  write_file(named('b', ".partial"), "mine");
  fs::create_directory(named('c', ".partial"));
  write_file(named('c', ".partial") / "mine.txt", "mine");
  write_file(named('c', ".partial") / "source.ids", "half");
  write_file(named('c', ".lock"), "");
  test.read();
  CHECK(fs::exists(named('a', ".partial")));
  CHECK_FALSE(fs::exists(named('a', ".lock")));
  CHECK(read_file(named('b', ".partial")) == "mine");
  CHECK(read_file(named('c', ".partial") / "mine.txt") == "mine");

  const auto entry = *test.entries().begin();
  write_file(entry / "notes.txt", "mine");
  CHECK(test.read().report().from_cache == 1);
  write_file(entry / "corpus.json", "damaged");
  CHECK_THAT(error_of([&] { test.read(); }), Contains("notes.txt") && Contains("in the way"));
  CHECK(read_file(entry / "notes.txt") == "mine");
  fs::remove(entry / "notes.txt");
  CHECK(test.read().report().from_cache == 0);
}

TEST_CASE("a process killed while it tokenises leaves nothing half") {
  const CacheTest test;
  std::string text;
  for (int i = 0; i < 150000; ++i) text += std::to_string(i) + " words\n";
  test.write("long.en", text);
  test.write("long.de", text);
  for (const int milliseconds : {0, 20, 100}) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Corpus::read({(test.folder() / "long.en").string()}, {(test.folder() / "long.de").string()}, test.vocabulary(),
                   test.vocabulary(), {.cache = test.cache()});
      _exit(0);
    }
    while (!fs::exists(test.cache()) || (test.items(".partial").empty() && test.entries().empty())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    CHECK(test.items(".partial").size() + test.entries().size() == 1);
  }
  const auto corpus = test.read({"long"});
  CHECK(corpus.size() == 150000);
  CHECK(test.items(".partial").empty());
  CHECK(test.entries().size() == 1);
}

// Four threads that need the same new entry at once, of 30,000 numbers.
std::vector<std::optional<Corpus>> read_at_once(const CacheTest& test) {
  std::string text;
  for (int i = 0; i < 30000; ++i) text += std::to_string(i) + "\n";
  test.write("long.en", text);
  test.write("long.de", text);
  std::vector<std::optional<Corpus>> corpora(4);
  {
    std::vector<std::jthread> threads;
    for (auto& corpus : corpora) {
      threads.emplace_back([&] {
        corpus = Corpus::read({(test.folder() / "long.en").string()}, {(test.folder() / "long.de").string()},
                              test.vocabulary(), test.vocabulary(), {.cache = test.cache()});
      });
    }
  }
  for (const auto& corpus : corpora) {
    REQUIRE(corpus);
    CHECK(corpus->size() == 30000);
    CHECK(test.vocabulary().decode(corpus->source(29999)) == "29999");
  }
  return corpora;
}

TEST_CASE("of several that need an entry at once one makes it") {
  const CacheTest test;
  int64_t made = 0;
  for (const auto& corpus : read_at_once(test)) {
    made += 1 - corpus->report().from_cache;
    CHECK(corpus->report().warnings.empty());
  }
  CHECK(made == 1);
  CHECK(test.entries().size() == 1);
}

TEST_CASE("where there are no locks several make an entry, whole, and what another process may be making stays") {
  const CacheTest test;
  const WithoutLocks without;
  // Of somebody who makes the same entry at this time, and of one who makes another.
  test.read();
  const auto entry = *test.entries().begin();
  const auto other = test.cache() / "45674567456745674567456745674567.partial";
  const auto same = fs::path(entry.string() + ".partial");
  write_file(test.cache() / "45674567456745674567456745674567.lock", "");
  fs::create_directory(other);
  fs::rename(entry, same);
  CHECK(test.read().report().from_cache == 0);
  CHECK(test.items(".partial") == std::set{other, same});
  CHECK(fs::exists(same / "source.ids"));
  // A damaged one is made anew as well.
  write_file(entry / "source.ids", "");
  CHECK(test.read().report().warnings.size() == 1);
  CHECK(test.read().report().from_cache == 1);
  CHECK(test.items(".partial") == std::set{other, same});

  read_at_once(test);
  CHECK(test.items(".partial") == std::set{other, same});
  CHECK(test.entries().size() == 2);

  // Killed there, a process leaves a name of its own, which goes where there are locks.
  fs::rename(other, test.cache() / "45674567456745674567456745674567.1-0.partial");
  test.read();
  CHECK(test.items(".partial").size() == 2);
  {
    const WithoutLocks none(0);
    test.read();
  }
  CHECK(test.items(".partial").empty());
}

TEST_CASE("a corpus stays readable when its entry is removed") {
  const CacheTest test;
  std::optional<Corpus> corpus = test.read();
  const auto expected = corpus->source(2);
  fs::remove_all(test.cache());
  const Corpus copy = *corpus;
  corpus.reset();
  CHECK(copy.source(2) == expected);
}

TEST_CASE("text that is refused leaves no entry, and a corrected one is read") {
  const CacheTest test;
  test.write("a.de", "Eins.\nZwei Katzen.\n");
  CHECK_THAT(error_of([&] { test.read(); }), Contains("has 4 lines but") && Contains("has 2"));
  test.write("a.de", "Eins.\nZwei Katzen.\n\xFF\n\n");
  CHECK_THAT(error_of([&] { test.read(); }), Contains("a.de:3: not UTF-8"));
  CHECK_THAT(error_of([&] { test.read({"absent"}); }), Contains("absent.en: no such file"));
  CHECK(test.entries().empty());
  CHECK(test.items(".partial").empty());
  test.write("a.de", "Eins.\nZwei Katzen.\nDrei.\nVier.\n");
  CHECK(test.read().size() == 3);
}

TEST_CASE("texts without pairs have an entry like others") {
  const CacheTest test;
  test.write("empty.en", "");
  test.write("empty.de", "");
  CHECK(test.read({"empty"}).size() == 0);
  CHECK(test.read({"empty", "a"}).size() == 3);
  CHECK(test.read({"a", "empty", "a"}).report().from_cache == 3);
}

TEST_CASE("a cache that cannot be written is named") {
  const CacheTest test;
  write_file(test.folder() / "file", "");
  const auto read_to = [&](const fs::path& cache) {
    Corpus::read({(test.folder() / "a.en").string()}, {(test.folder() / "a.de").string()}, test.vocabulary(),
                 test.vocabulary(), {.cache = cache});
  };
  CHECK_THAT(error_of([&] { read_to(test.folder() / "file"); }), Contains("file: cannot be made"));
  CHECK_THAT(error_of([&] { read_to(test.folder() / "file" / "below"); }), Contains("below: cannot be made"));

  // A disk that takes no more than a few bytes.
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i) + "\n";
  test.write("a.en", text);
  test.write("a.de", text);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{10000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  std::string message = "nothing was thrown";
  try {
    read_to(test.cache());
  } catch (const Failure& failure) {
    message = failure.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  CHECK_THAT(message,
             Contains("cannot write " + test.cache().string()) && Contains("source.") && Contains("File too large"));
  CHECK(test.entries().empty());
  CHECK(test.items(".partial").empty());
  CHECK(test.read().report().from_cache == 0);
}

}  // namespace transformer::test
