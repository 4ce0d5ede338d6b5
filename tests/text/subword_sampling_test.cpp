#include "transformer/text/subword_sampling.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "text_support.h"
#include "transformer/text/batches.h"
#include "transformer/text/learn_vocabulary.h"
#include "transformer/text/sentencepiece_model.h"

namespace transformer::test {

namespace {

struct Text {
  TemporaryDirectory folder;
  std::shared_ptr<const Vocabulary> vocabulary;
  Corpus corpus;

  explicit Text(VocabularySettings::Algorithm algorithm = VocabularySettings::Algorithm::bpe)
      : vocabulary(std::make_shared<const Vocabulary>(small_vocabulary(folder, {.algorithm = algorithm}))),
        corpus(Corpus::read({demo_data("valid.en.gz").string()}, {demo_data("valid.de.gz").string()}, *vocabulary,
                            *vocabulary, {})) {}
  SubwordSampling sampling(double alpha) const { return {{vocabulary, vocabulary}, alpha}; }
};

using Ids = std::vector<int64_t>;

bool same(const Batch& a, const Batch& b) {
  return a.pairs == b.pairs && a.source_tokens == b.source_tokens && a.target_tokens == b.target_tokens &&
         a.source_length == b.source_length && a.target_length == b.target_length && a.source == b.source &&
         a.target_input == b.target_input && a.target_output == b.target_output;
}

std::vector<Batch> all_batches(const Corpus& corpus, const Batches::Options& options, int64_t epoch,
                               int64_t first = 0) {
  Batches batches(corpus, options, epoch, first);
  std::vector<Batch> result;
  for (Batch batch; batches.next(batch);) result.push_back(std::move(batch));
  return result;
}

}  // namespace

TEST_CASE("sampled pieces spell the same text, in other pieces for other seeds") {
  const Text text(GENERATE(VocabularySettings::Algorithm::bpe, VocabularySettings::Algorithm::unigram));
  Ids pairs(200);
  std::iota(pairs.begin(), pairs.end(), 300);
  const auto first = sample_pieces(text.corpus, pairs, text.sampling(0.1), 7);
  const auto again = sample_pieces(text.corpus, pairs, text.sampling(0.1), 7);
  const auto other = sample_pieces(text.corpus, pairs, text.sampling(0.1), 8);
  int64_t different = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& vocabulary = *text.vocabulary;
    CHECK(vocabulary.decode(first[i].source) == vocabulary.decode(text.corpus.source(pairs[i])));
    CHECK(vocabulary.decode(first[i].target) == vocabulary.decode(text.corpus.target(pairs[i])));
    CHECK(first[i].source == again[i].source);
    CHECK(first[i].target == again[i].target);
    different += first[i].target != other[i].target;
  }
  CHECK(different > 100);
}

TEST_CASE("a language stays before its text, and no piece is drawn that a table lacks") {
  const TemporaryDirectory folder;
  const auto plain = small_vocabulary(folder);
  std::vector<std::string> table = {"<none>", "<go>", "<stop>", "<what>", "eng", "deu"};
  // Single letters are what sampling falls back upon: some are missing.
  for (int64_t id = 4; id < plain.size(); ++id) {
    const auto piece = plain.piece(id);
    if (piece == "c" || piece == "p" || piece == "w") continue;
    table.push_back(piece);
  }
  write_file(folder / "vocabulary.model",
             Vocabulary::with_languages(
                 SentencePieceModel::without_own_fields(read_file(folder / "small.model"), "small.model"), table,
                 {"eng", "deu"}, {}, false, "small.model"));
  const auto vocabulary = std::make_shared<const Vocabulary>(folder / "vocabulary.model");
  const auto corpus = Corpus::read({demo_data("valid.en.gz").string()}, {demo_data("valid.de.gz").string()},
                                   *vocabulary, *vocabulary, {.source_language = "eng", .target_language = "deu"});
  Ids pairs(300);
  std::iota(pairs.begin(), pairs.end(), 100);
  const auto drawn = sample_pieces(corpus, pairs, {{vocabulary, vocabulary}, 0.1}, 7);
  const auto unknowns = [](const Ids& ids) { return std::count(ids.begin(), ids.end(), Vocabulary::unknown); };
  int64_t different = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto &source = drawn[i].source, &target = drawn[i].target;
    CHECK(source.front() == 4);
    CHECK(target.front() == 5);
    CHECK(vocabulary->decode(target) == vocabulary->decode(corpus.target(pairs[i])));
    CHECK(unknowns(source) == unknowns(corpus.source(pairs[i])));
    different += target != corpus.target(pairs[i]);
  }
  CHECK(different > 50);
}

TEST_CASE("a tag stays before its text in the pieces that a model is always told it in") {
  const TemporaryDirectory folder;
  const auto algorithm = GENERATE(VocabularySettings::Algorithm::bpe, VocabularySettings::Algorithm::unigram);
  // "back" is a piece, "BT" and what begins with it are several; other texts begin like them.
  write_file(folder / "small.model", learn_vocabulary({demo_data("valid.en.gz"), demo_data("valid.de.gz")}, 1000,
                                                      {.algorithm = algorithm}, {"back"}, [](auto) {}));
  const auto vocabulary = std::make_shared<const Vocabulary>(folder / "small.model");
  write_file(folder / "text", "backbone of the thing\nBTW it goes\nback again\nCome in, information\n");
  const std::vector<std::string> names = {"back", "", "BT2", "BT"}, files(names.size(), (folder / "text").string());
  const auto corpus = Corpus::read(files, files, *vocabulary, *vocabulary, {.tags = names});
  std::vector<Ids> tags;
  for (const auto& name : names) tags.push_back(vocabulary->encode(name));
  Ids pairs(static_cast<size_t>(corpus.size()));
  std::iota(pairs.begin(), pairs.end(), 0);
  int64_t different = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto drawn = sample_pieces(corpus, pairs, {{vocabulary, vocabulary}, 0.05, tags}, seed);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto& tag = tags[i / 4];
      const auto& source = drawn[i].source;
      const auto whole = corpus.source(pairs[i]);
      CHECK(vocabulary->decode(source) == vocabulary->decode(whole));
      CHECK(std::equal(tag.begin(), tag.end(), source.begin()));
      different += source != whole;
    }
  }
  CHECK(different > 100);
}

TEST_CASE("drawn pieces are no more than the longest side that is used has") {
  const TemporaryDirectory folder;
  const auto vocabulary = std::make_shared<const Vocabulary>(small_vocabulary(folder));
  write_file(folder / "short", "information\nresponsibility\n");
  write_file(folder / "long", "a b c d e f g h i j k l m n o p q r s t u v w x y z\n");
  const std::vector<std::string> files = {(folder / "long").string(), (folder / "short").string()};
  const auto corpus = Corpus::read(files, files, *vocabulary, *vocabulary, {});
  const auto longest_drawn = [&](const std::vector<double>& weights) {
    size_t longest = 0;
    for (uint64_t seed = 0; seed < 50; ++seed) {
      for (const auto& pair : sample_pieces(corpus, {1, 2}, {{vocabulary, vocabulary}, 0.5}, seed, weights)) {
        longest = std::max({longest, pair.source.size(), pair.target.size()});
      }
    }
    return static_cast<int64_t>(longest);
  };
  CHECK(longest_drawn({}) > corpus.longest({0, 1}));
  CHECK(longest_drawn({0, 1}) <= corpus.longest({0, 1}));
}

TEST_CASE("the share of merges left out is that asked for") {
  const TemporaryDirectory folder;
  std::string words, lines;
  for (int i = 0; i < 2000; ++i) {
    words += "xab ";
    lines += "xab xab\n";
  }
  write_file(folder / "text", lines);
  // Bytes, reserved ids, the letters x, a, b, the space's symbol, and one merge of two of them.
  Vocabulary::train({folder / "text"}, 256 + 4 + 4 + 1, {}, folder / "model");
  const Vocabulary vocabulary(folder / "model");
  const auto whole = static_cast<double>(vocabulary.encode(words).size());
  const auto letters = static_cast<double>(vocabulary.sample(words, 1).size());
  REQUIRE(letters - whole == 2000);
  for (const double share : {0.1, 0.5}) {
    const auto left_out = (static_cast<double>(vocabulary.sample(words, share).size()) - whole) / 2000;
    CHECK(left_out == Approx(share).margin(0.05));  // four standard deviations and more
  }
}

TEST_CASE("batches of sampled pieces can be repeated, resumed and shared") {
  const Text text;
  const Batches::Options options{.batch_tokens = 600, .seed = 3, .sampling = text.sampling(0.2)};
  const auto whole = all_batches(text.corpus, options, 2);
  REQUIRE(whole.size() > 20);

  auto plain_options = options;
  plain_options.sampling = {};
  const auto plain = all_batches(text.corpus, plain_options, 2);
  REQUIRE(plain.size() == whole.size());
  int64_t more = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    CHECK(whole[i].pairs == plain[i].pairs);
    more += whole[i].target_tokens - plain[i].target_tokens;
  }
  CHECK(more > 1000);

  const auto resumed = all_batches(text.corpus, options, 2, 5);
  REQUIRE(resumed.size() == whole.size() - 5);
  for (size_t i = 0; i < resumed.size(); ++i) CHECK(same(resumed[i], whole[i + 5]));

  const auto later = all_batches(text.corpus, options, 3);
  std::map<int64_t, Ids> rows;  // of source ids, as epoch 2 spelled them
  const auto row_of = [](const Batch& batch, size_t row) {
    const auto padded = batch.source.row(static_cast<int64_t>(row));
    Ids ids(padded.begin(), padded.end());
    ids.erase(std::remove(ids.begin(), ids.end(), Vocabulary::padding), ids.end());
    return ids;
  };
  for (const auto& batch : whole) {
    for (size_t row = 0; row < batch.pairs.size(); ++row) rows[batch.pairs[row]] = row_of(batch, row);
  }
  int64_t respelled = 0;
  for (const auto& batch : later) {
    for (size_t row = 0; row < batch.pairs.size(); ++row) respelled += rows.at(batch.pairs[row]) != row_of(batch, row);
  }
  CHECK(respelled > text.corpus.size() / 2);

  for (const int64_t share : {0, 1}) {
    auto shared = options;
    shared.share = share;
    shared.shares = 2;
    const auto part = all_batches(text.corpus, shared, 2);
    REQUIRE(part.size() == whole.size());
    for (size_t i = 0; i < part.size(); ++i) {
      CHECK(part[i].is_made() == (static_cast<int64_t>(i) % 2 == share));
      CHECK(part[i].pairs == whole[i].pairs);
      if (part[i].is_made()) CHECK(same(part[i], whole[i]));
    }
  }
}

}  // namespace transformer::test
