#include "transformer/text/corpus.h"

#include <cmath>

#include "text_support.h"
#include "transformer/base/unicode.h"
#include "transformer/text/parallel_lines.h"

namespace transformer::test {

namespace {

std::vector<std::string> names(std::initializer_list<std::filesystem::path> files) {
  return {files.begin(), files.end()};
}

}  // namespace

TEST_CASE("a corpus holds every pair's ids in the order of the files") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  write_file(folder / "a.en", "One.\r\nTwo cats.\r\nThree");
  write_file(folder / "a.de",
             "\xEF\xBB\xBF"
             "Eins.\nZwei Katzen.\n  Drei \t\n");
  write_file(folder / "b.en.gz", gzip("Four.\n"));
  write_file(folder / "b.de.gz", gzip("Vier."));
  const auto corpus = Corpus::read(names({folder / "a.en", folder / "b.en.gz"}),
                                   names({folder / "a.de", folder / "b.de.gz"}), vocabulary, vocabulary, {});
  REQUIRE(corpus.size() == 4);
  const std::vector<std::string> english = {"One.", "Two cats.", "Three", "Four."};
  const std::vector<std::string> german = {"Eins.", "Zwei Katzen.", "Drei", "Vier."};
  int64_t source_tokens = 0, target_tokens = 0;
  for (size_t i = 0; i < english.size(); ++i) {
    const auto pair = static_cast<int64_t>(i);
    CHECK(corpus.source(pair) == vocabulary.encode(english[i]));
    CHECK(corpus.target(pair) == vocabulary.encode(german[i]));
    CHECK(corpus.source_length(pair) == static_cast<int64_t>(vocabulary.encode(english[i]).size()));
    CHECK(corpus.target_ids(pair).size() == vocabulary.encode(german[i]).size());
    source_tokens += corpus.source_length(pair);
    target_tokens += corpus.target_length(pair);
  }
  CHECK(corpus.report().pairs == 4);
  CHECK(corpus.report().source_tokens == source_tokens);
  CHECK(corpus.report().target_tokens == target_tokens);
  CHECK(corpus.report().empty == 0);
  CHECK(corpus.report().too_long == 0);
}

TEST_CASE("each side has its own vocabulary") {
  const TemporaryDirectory folder;
  Vocabulary::train({demo_data("valid.en.gz")}, 500, {}, folder / "en.model");
  Vocabulary::train({demo_data("valid.de.gz")}, 600, {}, folder / "de.model");
  const Vocabulary english(folder / "en.model"), german(folder / "de.model");
  const auto corpus =
      Corpus::read(names({demo_data("valid.en.gz")}), names({demo_data("valid.de.gz")}), english, german, {});
  const auto source = read_lines(demo_data("valid.en.gz")), target = read_lines(demo_data("valid.de.gz"));
  REQUIRE(corpus.size() == 1500);
  for (const int64_t pair : {0, 700, 1499}) {
    CHECK(english.decode(corpus.source(pair)) == source[static_cast<size_t>(pair)]);
    CHECK(german.decode(corpus.target(pair)) == target[static_cast<size_t>(pair)]);
  }
}

TEST_CASE("pairs that are empty or too long are dropped and counted, or kept and cut") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  std::string long_sentence;
  for (int i = 0; i < 50; ++i) long_sentence += "word ";
  write_file(folder / "en", "a\n\nb\n \t \nc\n" + long_sentence + "\nd\n" + long_sentence + "\n");
  write_file(folder / "de", "a\nb\n\n\n" + long_sentence + "\nc\nd\n\n");
  const auto read = [&](const Corpus::Options& options) {
    return Corpus::read(names({folder / "en"}), names({folder / "de"}), vocabulary, vocabulary, options);
  };
  const auto dropped = read({.max_length = 20});
  REQUIRE(dropped.size() == 2);
  CHECK(vocabulary.decode(dropped.source(0)) == "a");
  CHECK(vocabulary.decode(dropped.target(1)) == "d");
  CHECK(dropped.report().pairs == 2);
  CHECK(dropped.report().empty == 4);
  CHECK(dropped.report().too_long == 2);

  const auto kept = read({.max_length = 20, .keep_all = true});
  REQUIRE(kept.size() == 8);
  CHECK(kept.report().too_long == 3);  // cut, those beside an empty side as well
  CHECK(kept.source_length(1) == 0);
  CHECK(kept.target_length(2) == 0);
  CHECK(kept.source_length(3) == 0);
  CHECK(kept.target_length(4) == 20);
  CHECK(kept.source_length(7) == 20);
  auto beginning = vocabulary.encode(trim(long_sentence));
  beginning.resize(20);
  CHECK(kept.source(5) == beginning);

  const auto length = static_cast<int64_t>(vocabulary.encode(trim(long_sentence)).size());
  CHECK(read({.max_length = length}).report().too_long == 0);
  CHECK(read({.max_length = length - 1}).report().too_long == 2);
}

TEST_CASE("pairs of unlike length are dropped and counted where that is asked for") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  // "a" is one piece after another, so lengths are known.
  const auto sentence = [](int words) {
    std::string text;
    for (int i = 0; i < words; ++i) text += i ? " a" : "a";
    return text + "\n";
  };
  REQUIRE(vocabulary.encode("a a a").size() == 3);
  const std::vector<std::pair<int, int>> lengths = {{4, 4},  {1, 10}, {10, 1},  {5, 11},  {11, 5},
                                                    {6, 12}, {12, 6}, {20, 11}, {41, 20}, {40, 20}};
  std::string source, target;
  for (const auto& [a, b] : lengths) {
    source += sentence(a);
    target += sentence(b);
  }
  write_file(folder / "en", source);
  write_file(folder / "de", target);
  const auto read = [&](const Corpus::Options& options) {
    return Corpus::read(names({folder / "en"}), names({folder / "de"}), vocabulary, vocabulary, options);
  };
  CHECK(read({}).size() == 10);
  CHECK(read({}).report().ratio == 0);
  const auto limited = read({.max_length_ratio = 2});
  CHECK(limited.report().ratio == 3);  // 5 and 11, 11 and 5, 41 and 20; up to 10 pieces no ratio is judged
  REQUIRE(limited.size() == 7);
  CHECK(limited.source_length(6) == 40);
  CHECK(limited.longest() == 40);
  CHECK(read({.max_length_ratio = 1}).report().ratio == 7);
  CHECK(read({.keep_all = true, .max_length_ratio = 2}).size() == 10);
  // A pair is counted once.
  const auto both = read({.max_length = 40, .max_length_ratio = 2});
  CHECK(both.report().too_long == 1);
  CHECK(both.report().ratio == 2);
  for (const double ratio : {0.5, -1.0, std::nan("")}) {
    CHECK_THAT(error_of([&] { read({.max_length_ratio = ratio}); }), Contains("data.max_length_ratio"));
  }
}

TEST_CASE("pairs of lines are counted, and unequal files refused") {
  const TemporaryDirectory folder;
  write_file(folder / "three", "a\n\nc");
  write_file(folder / "three.gz", gzip("a\nb\nc\n"));
  write_file(folder / "four", "a\n\nc\n\n");
  CHECK(count_pairs(folder / "three", folder / "three.gz") == 3);
  CHECK(count_pairs(folder / "four", folder / "four") == 4);
  CHECK_THAT(error_of([&] { count_pairs(folder / "three", folder / "four"); }),
             Contains((folder / "three").string() + " has 3 lines but " + (folder / "four").string() + " has 4"));
  CHECK_THAT(error_of([&] { count_pairs(folder / "four", folder / "three"); }), Contains("has 4 lines but"));
  // What is wrong with the longer one where the other has ended is not what is wrong with both.
  write_file(folder / "broken", "a\n\nc\n\nb\xFF\nd\n");
  CHECK_THAT(error_of([&] { count_pairs(folder / "three", folder / "broken"); }), Contains("has at least 5"));
  CHECK_THAT(error_of([&] { check_file_counts({"a", "b"}, {"c"}); }), Contains("2 source files but 1 target files"));
}

TEST_CASE("files that do not belong together are refused") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  write_file(folder / "three", "a\nb\nc\n");
  write_file(folder / "five", "a\nb\nc\nd\ne");
  write_file(folder / "broken", "a\nb\xFF\nc\n");
  const auto read = [&](const std::vector<std::string>& source, const std::vector<std::string>& target) {
    return error_of([&] { Corpus::read(source, target, vocabulary, vocabulary, {}); });
  };
  const std::string three = folder / "three", five = folder / "five", broken = folder / "broken";
  CHECK_THAT(read({three}, {five}), Contains(three + " has 3 lines but " + five + " has 5"));
  CHECK_THAT(read({five}, {three}), Contains(five + " has 5 lines but " + three + " has 3"));
  // As many lines in all, but the boundary between the files is elsewhere.
  CHECK_THAT(read({three, five}, {five, three}), Contains("has 3 lines but"));
  CHECK_THAT(read({three, three}, {three}), Contains("2 source files but 1 target files"));
  CHECK_THAT(read({three}, {broken}), Contains(broken + ":2: not UTF-8"));
  CHECK_THAT(read({three}, {three + ".absent"}), Contains(three + ".absent: no such file"));
}

TEST_CASE("a tag begins every source of its files, and no other") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  write_file(folder / "a", "One.\n \nTwo.\n");
  write_file(folder / "b", "Three.\n\nFour.\n");
  const auto read = [&](const std::vector<std::string>& tags, const std::filesystem::path& cache = {}) {
    const auto files = names({folder / "a", folder / "b"});
    return Corpus::read(files, files, vocabulary, vocabulary, {.cache = cache, .tags = tags});
  };
  for (int pass = 0; pass < 2; ++pass) {  // the second reads what the first kept
    const auto cache = folder / "cache";
    const auto plain = read({}, cache), tagged = read({"", "<BT>"}, cache), other = read({"", "<NT>"}, cache);
    REQUIRE(tagged.size() == 4);  // a tag alone is no sentence
    CHECK(tagged.report().empty == 2);
    for (const int64_t pair : {0, 1}) CHECK(tagged.source(pair) == plain.source(pair));
    for (const int64_t pair : {2, 3}) {
      CHECK(tagged.source(pair) != other.source(pair));
      CHECK(vocabulary.decode(tagged.source(pair)) == "<BT> " + vocabulary.decode(plain.source(pair)));
      CHECK(tagged.target(pair) == plain.target(pair));
    }
    CHECK(tagged.report().from_cache == (pass == 0 ? 1 : 2));
  }
  CHECK_THAT(error_of([&] { read({"<BT>"}); }), Contains("data.train_tags: 1 tag for 2 pairs"));
  for (const std::string tag : {"<B T>", "a,b", " ", "\t", "\xff", "e\u0301"}) {
    CHECK_THAT(error_of([&] { read({"", tag}); }), Contains("data.train_tags") && Contains("is no tag"));
  }
  CHECK_THAT(error_of([&] { check_tags({std::string(65, 'x')}, 1); }), Contains("is no tag"));
  CHECK(error_of([&] { check_tags({"", ""}, 2); }) == "");
}

TEST_CASE("no files are an empty corpus") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  CHECK(Corpus::read({}, {}, vocabulary, vocabulary, {}).size() == 0);
}

TEST_CASE("a corpus of many chunks is read as one") {
  const TemporaryDirectory folder;
  const auto vocabulary = small_vocabulary(folder);
  // More pairs than are encoded at a time, all different.
  std::string text;
  for (int i = 0; i < 70000; ++i) text += std::to_string(i) + "\n";
  write_file(folder / "text", text);
  const auto corpus = Corpus::read(names({folder / "text"}), names({folder / "text"}), vocabulary, vocabulary, {});
  REQUIRE(corpus.size() == 70000);
  for (int64_t pair = 0; pair < corpus.size(); pair += 997) {
    CHECK(vocabulary.decode(corpus.source(pair)) == std::to_string(pair));
    CHECK(vocabulary.decode(corpus.target(pair)) == std::to_string(pair));
  }
}

TEST_CASE("the data's and the vocabulary's settings can be set") {
  DataSettings data;
  VocabularySettings vocabulary;
  Settings settings;
  settings.section("data", data, "Data");
  settings.section("vocabulary", vocabulary, "Vocabulary");
  settings.set({"data.train_source=[a.en, b.en.gz]", "data.max_length=99", "data.train_weights=2,0.5",
                "data.max_length_ratio=1.5", "data.cache=/big/cache", "vocabulary.algorithm=unigram",
                "vocabulary.joint=false", "vocabulary.character_coverage=0.9995", "vocabulary.sample_sentences=5000",
                "vocabulary.byte_fallback=false"});
  CHECK(data.train_source == std::vector<std::string>{"a.en", "b.en.gz"});
  CHECK(data.max_length == 99);
  CHECK(data.train_weights == std::vector<double>{2, 0.5});
  CHECK(data.max_length_ratio == 1.5);
  CHECK(data.cache == "/big/cache");
  CHECK(vocabulary.algorithm == VocabularySettings::Algorithm::unigram);
  CHECK(!vocabulary.joint);
  CHECK(vocabulary.character_coverage == 0.9995);
  CHECK(vocabulary.sample_sentences == 5000);
  CHECK(!vocabulary.byte_fallback);
  CHECK_THROWS_AS(settings.set({"data.max_length=0"}), Error);
  CHECK_THROWS_AS(settings.set({"data.train_weights=1,-1"}), Error);
  CHECK_THROWS_AS(settings.set({"data.max_length_ratio=-1"}), Error);
  CHECK_THROWS_AS(settings.set({"vocabulary.algorithm=wordpiece"}), Error);
  CHECK_THROWS_AS(settings.set({"vocabulary.character_coverage=1.1"}), Error);
}

}  // namespace transformer::test
