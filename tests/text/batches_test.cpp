#include "transformer/text/batches.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "text_support.h"
#include "transformer/base/checksum.h"

namespace transformer::test {

namespace {

// A corpus whose sentences are as long as given: of single letters, each a piece.
class LengthCorpus {
 public:
  // (source, target) pieces of each pair, begin and end not counted
  explicit LengthCorpus(const std::vector<std::pair<int64_t, int64_t>>& lengths, size_t files = 1) {
    std::string alphabet;
    for (char letter = 'a'; letter <= 'z'; ++letter) alphabet += std::string(1, letter) + " ";
    write_file(folder_ / "alphabet", alphabet + "\n");
    // Just the alphabet, with and without the space before it: a word is one piece.
    Vocabulary::train({folder_ / "alphabet"}, 256 + 4 + 27 + 26, {}, folder_ / "letters.model");
    vocabulary_ = std::make_unique<Vocabulary>(folder_ / "letters.model");
    std::vector<std::string> sources, targets;
    for (size_t file = 0; file < files; ++file) {
      std::string source, target;
      for (size_t pair = lengths.size() * file / files; pair < lengths.size() * (file + 1) / files; ++pair) {
        source += sentence(lengths[pair].first, pair) + "\n";
        target += sentence(lengths[pair].second, pair / 7) + "\n";
      }
      sources.push_back((folder_ / "source").string() + std::to_string(file));
      targets.push_back((folder_ / "target").string() + std::to_string(file));
      write_file(sources.back(), source);
      write_file(targets.back(), target);
    }
    corpus_ = std::make_unique<Corpus>(
        Corpus::read(sources, targets, *vocabulary_, *vocabulary_, {.max_length = 1000, .keep_all = true}));
    for (size_t pair = 0; pair < lengths.size(); ++pair) {
      REQUIRE(corpus_->source_length(static_cast<int64_t>(pair)) == lengths[pair].first);
      REQUIRE(corpus_->target_length(static_cast<int64_t>(pair)) == lengths[pair].second);
    }
  }
  const Corpus& operator*() const { return *corpus_; }
  const Corpus* operator->() const { return corpus_.get(); }

 private:
  static std::string sentence(int64_t words, size_t seed) {
    std::string text;
    for (int64_t i = 0; i < words; ++i) {
      if (i) text += ' ';
      text += static_cast<char>('a' + (seed + static_cast<size_t>(i) * 5) % 26);
    }
    return text;
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Vocabulary> vocabulary_;
  std::unique_ptr<Corpus> corpus_;
};

// Lengths spread as those of translated short sentences: log-normal, the sides correlated.
std::vector<std::pair<int64_t, int64_t>> realistic_lengths(size_t pairs, double mean = 9, double spread = 0.4) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  std::vector<std::pair<int64_t, int64_t>> lengths;
  for (size_t i = 0; i < pairs; ++i) {
    const double size = std::log(mean) + spread * normal(random);
    const auto one = [&] { return std::clamp<int64_t>(std::lround(std::exp(size + 0.15 * normal(random))), 1, 90); };
    const auto source = one();
    lengths.emplace_back(source, one());
  }
  return lengths;
}

std::vector<Batch> all_of(Batches&& batches) {
  std::vector<Batch> result;
  for (Batch batch; batches.next(batch);) result.push_back(batch);
  return result;
}

std::vector<std::vector<int64_t>> pairs_of(const std::vector<Batch>& batches) {
  std::vector<std::vector<int64_t>> result;
  for (const auto& batch : batches) result.push_back(batch.pairs);
  return result;
}

int64_t positions_in(const IdMatrix& matrix) {
  return matrix.rows * matrix.columns;
}

int64_t tokens_in(const IdMatrix& matrix) {
  return positions_in(matrix) - std::count(matrix.ids.begin(), matrix.ids.end(), Vocabulary::padding);
}

}  // namespace

TEST_CASE("a batch is padded, begun and ended as the model expects") {
  const LengthCorpus corpus({{3, 1}, {1, 2}, {0, 0}});
  const auto a = corpus->source(0), b = corpus->source(1), x = corpus->target(0), y = corpus->target(1);
  const Batch batch = make_batch(*corpus, {1, 0, 2});
  const auto expect = [](const IdMatrix& matrix, const std::vector<std::vector<int64_t>>& rows) {
    REQUIRE(matrix.rows == static_cast<int64_t>(rows.size()));
    REQUIRE(matrix.columns == static_cast<int64_t>(rows[0].size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = matrix.row(static_cast<int64_t>(i));
      CHECK(std::vector<int64_t>(row.begin(), row.end()) == rows[i]);
    }
  };
  expect(batch.source, {{b[0], 2, 0, 0}, {a[0], a[1], a[2], 2}, {2, 0, 0, 0}});
  expect(batch.target_input, {{1, y[0], y[1]}, {1, x[0], 0}, {1, 0, 0}});
  expect(batch.target_output, {{y[0], y[1], 2}, {x[0], 2, 0}, {2, 0, 0}});
  CHECK(batch.source_tokens == 7);
  CHECK(batch.target_tokens == 6);
  CHECK(batch.pairs == std::vector<int64_t>{1, 0, 2});
  CHECK_THROWS(make_batch(*corpus, {3}));
}

TEST_CASE("an epoch holds every pair once, in batches within the budget, full and hardly padded") {
  const LengthCorpus corpus(realistic_lengths(20000));
  const bool shuffle = GENERATE(true, false);
  const int64_t budget = GENERATE(91, 1500, 4096, 25000);
  CAPTURE(shuffle, budget);
  Batches batches(*corpus, {.batch_tokens = budget, .seed = 3, .shuffle = shuffle}, 0);
  const int64_t size = batches.size();
  const double padding = batches.padding();
  const auto epoch = all_of(std::move(batches));
  CHECK(static_cast<int64_t>(epoch.size()) == size);

  std::vector<int> seen(static_cast<size_t>(corpus->size()));
  double used = 0, positions = 0, tokens = 0, unpadded = 0;
  for (const auto& batch : epoch) {
    REQUIRE(positions_in(batch.source) <= budget);
    REQUIRE(positions_in(batch.target_input) <= budget);
    REQUIRE(batch.target_output.rows == batch.target_input.rows);
    REQUIRE(batch.target_output.columns == batch.target_input.columns);
    REQUIRE(batch.source_tokens == tokens_in(batch.source));
    REQUIRE(batch.target_tokens == tokens_in(batch.target_output));
    for (const int64_t pair : batch.pairs) ++seen[static_cast<size_t>(pair)];
    used += static_cast<double>(std::max(positions_in(batch.source), positions_in(batch.target_input))) /
            static_cast<double>(budget);
    const auto here = static_cast<double>(positions_in(batch.source) + positions_in(batch.target_input));
    const auto real = static_cast<double>(batch.source_tokens + batch.target_tokens);
    positions += here;
    tokens += real;
    unpadded += here == real;
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  CHECK(padding == Approx(1 - tokens / positions).margin(1e-12));
  const auto count = static_cast<double>(epoch.size());
  // With 25,000 tokens the whole corpus is 10 batches or so: fewer than there are common lengths.
  if (budget == 25000) {
    CHECK(padding < 0.15);
    CHECK(used / count > 0.8);
  } else {
    CHECK(padding < 0.05);
    CHECK(used / count > 0.9);
  }
  if (budget <= 1500) CHECK(unpadded / count > 0.3);
}

TEST_CASE("an epoch depends on seed and number alone") {
  const LengthCorpus corpus(realistic_lengths(3000));
  const auto epoch = [&](uint64_t seed, int64_t number) {
    return pairs_of(all_of(Batches(*corpus, {.batch_tokens = 500, .seed = seed}, number)));
  };
  const auto first = epoch(1, 0);
  CHECK(first == epoch(1, 0));
  auto sorted = first;
  for (auto& pairs : sorted) std::sort(pairs.begin(), pairs.end());
  std::sort(sorted.begin(), sorted.end());
  for (auto other : {epoch(1, 1), epoch(2, 0), epoch(2, 1), epoch(0, 1)}) {
    CHECK(first != other);
    // Not the order alone: other pairs meet, except where few have about the same lengths.
    for (auto& pairs : other) std::sort(pairs.begin(), pairs.end());
    std::sort(other.begin(), other.end());
    size_t same = 0;
    for (const auto& pairs : other) same += std::binary_search(sorted.begin(), sorted.end(), pairs);
    CHECK(same < other.size() / 2);
  }
  CHECK(epoch(1, 1) != epoch(2, 0));
}

// Whoever trains again with the same seed must get the same run: these plans are part of the format of a checkpoint.
TEST_CASE("the plan of an epoch is what it has always been") {
  std::vector<std::pair<int64_t, int64_t>> lengths;
  uint64_t state = 12345;
  const auto draw = [&](uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % bound);
  };
  for (int pair = 0; pair < 4000; ++pair) {
    const int64_t first = draw(12), common = first + draw(12), source = 1 + common + draw(5);
    lengths.emplace_back(source, 1 + common + draw(5));
  }
  const LengthCorpus corpus(lengths);
  const auto plan = [&](const Batches::Options& options, int64_t epoch) {
    Checksum checksum;
    for (const auto& pairs : pairs_of(all_of(Batches(*corpus, options, epoch)))) {
      const auto count = static_cast<int64_t>(pairs.size());
      checksum.add(&count, sizeof count);
      checksum.add(pairs.data(), pairs.size() * sizeof pairs[0]);
    }
    return checksum.text();
  };
  CHECK(plan({.batch_tokens = 500, .seed = 1}, 0) == "1f576d8dc5d654fb62524b38dc341fca");
  CHECK(plan({.batch_tokens = 500, .seed = 1}, 1) == "1b0bfdccb69da4211a134fd1e1fd990f");
  CHECK(plan({.batch_tokens = 1500, .seed = 7}, 0) == "7398e7abc615ecf232ad02e152b44448");
  CHECK(plan({.batch_tokens = 1500, .seed = 7}, 3) == "ebd32500e5cec8bbd3eec8c68036bf73");
  CHECK(plan({.batch_tokens = 1500, .seed = 7, .shuffle = false}, 0) == "16d1bb59d40988946e7f458b2b4559bd");
  CHECK(plan({.batch_tokens = 1500, .seed = 7, .weights = {1}, .pool_pairs = 4000}, 3) ==
        "ebd32500e5cec8bbd3eec8c68036bf73");
  CHECK(plan({.batch_tokens = 1500, .seed = 7, .pool_pairs = 3999}, 3) != "ebd32500e5cec8bbd3eec8c68036bf73");
}

TEST_CASE("an epoch in several pools holds every pair once, mixed and full") {
  const LengthCorpus corpus(realistic_lengths(20000), 3);
  const bool shuffle = GENERATE(true, false);
  CAPTURE(shuffle);
  const Batches::Options options{.batch_tokens = 500, .seed = 3, .shuffle = shuffle, .pool_pairs = 1500};
  Batches batches(*corpus, options, 2);
  const int64_t size = batches.size();
  CHECK(batches.padding() < 0.07);
  const auto epoch = all_of(std::move(batches));
  CHECK(static_cast<int64_t>(epoch.size()) == size);
  std::vector<int> seen(static_cast<size_t>(corpus->size()));
  double used = 0, early_sum = 0, early = 0;
  for (size_t i = 0; i < epoch.size(); ++i) {
    REQUIRE(positions_in(epoch[i].source) <= 500);
    REQUIRE(positions_in(epoch[i].target_input) <= 500);
    used += static_cast<double>(std::max(positions_in(epoch[i].source), positions_in(epoch[i].target_input))) / 500;
    for (const int64_t pair : epoch[i].pairs) {
      ++seen[static_cast<size_t>(pair)];
      early += i < epoch.size() / 14;
      early_sum += i < epoch.size() / 14 ? static_cast<double>(pair) : 0;
    }
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  CHECK(used / static_cast<double>(epoch.size()) > 0.9);
  // The first pool is drawn from the whole corpus, or is its beginning.
  CHECK(early_sum / early == Approx(shuffle ? 10000 : 750).epsilon(0.1));
  CHECK(pairs_of(all_of(Batches(*corpus, options, 2))) == pairs_of(epoch));
  if (shuffle) CHECK(pairs_of(all_of(Batches(*corpus, options, 3))) != pairs_of(epoch));
}

TEST_CASE("an epoch in pools goes on where it was left, in any pool") {
  const LengthCorpus corpus(realistic_lengths(2000), 2);
  const Batches::Options options{.batch_tokens = 300, .seed = 9, .weights = {1, 1.5}, .pool_pairs = 400};
  const auto whole = all_of(Batches(*corpus, options, 4));
  REQUIRE(whole.size() > 60);
  for (size_t first = 0; first <= whole.size() + 1; ++first) {
    const auto rest = all_of(Batches(*corpus, options, 4, static_cast<int64_t>(first)));
    REQUIRE(rest.size() == whole.size() - std::min(first, whole.size()));
    for (size_t i = 0; i < rest.size(); ++i) {
      REQUIRE(rest[i].pairs == whole[first + i].pairs);
      REQUIRE(rest[i].target_output == whole[first + i].target_output);
    }
  }
}

TEST_CASE("weights say how often an epoch uses each file's pairs") {
  const LengthCorpus corpus(realistic_lengths(900), 3);  // 300 pairs a file
  Batches::Options options{.batch_tokens = 300, .seed = 5, .weights = {2, 0.5, 0}};
  options.pool_pairs = GENERATE(1000000, 100);
  std::vector<int> total(900);
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<int> seen(900);
    for (const auto& pairs : pairs_of(all_of(Batches(*corpus, options, epoch)))) {
      for (const int64_t pair : pairs) ++seen[static_cast<size_t>(pair)];
    }
    for (size_t pair = 0; pair < 900; ++pair) total[pair] += seen[pair];
    CHECK(std::all_of(seen.begin(), seen.begin() + 300, [](int times) { return times == 2; }));
    CHECK(std::accumulate(seen.begin() + 300, seen.begin() + 600, 0) == 150);
    CHECK(std::all_of(seen.begin() + 300, seen.begin() + 600, [](int times) { return times <= 1; }));
    CHECK(std::accumulate(seen.begin() + 600, seen.end(), 0) == 0);
  }
  CHECK(std::all_of(total.begin() + 300, total.begin() + 600, [](int times) { return times == 2; }));

  const auto refused = [&](std::vector<double> weights) {
    return error_of([&] { Batches(*corpus, {.weights = std::move(weights)}, 0); });
  };
  CHECK_THAT(refused({1, 1}), Contains("data.train_weights: 2 weights for 3 pairs of training files"));
  CHECK_THAT(refused({1, 1, -0.5}), Contains("data.train_weights: -0.5 is no weight"));
  CHECK_THAT(refused({0, 0, 0}), Contains("data.train_weights: all are 0"));
}

TEST_CASE("shares together are the whole, and each knows the counts of all") {
  const LengthCorpus corpus(realistic_lengths(2000), 2);
  Batches::Options options{.batch_tokens = 200, .seed = 9, .pool_pairs = 700};
  const int64_t first = GENERATE(0, 5);
  const auto whole = all_of(Batches(*corpus, options, 1, first));
  for (const int64_t shares : {2, 3, 8}) {
    options.shares = shares;
    for (options.share = 0; options.share < shares; ++options.share) {
      const auto mine = all_of(Batches(*corpus, options, 1, first));
      REQUIRE(mine.size() == whole.size());
      for (size_t i = 0; i < mine.size(); ++i) {
        REQUIRE(mine[i].is_made() == (static_cast<int64_t>(i) % shares == options.share));
        REQUIRE(!mine[i].target_input.ids.empty() == mine[i].is_made());
        REQUIRE(mine[i].source_tokens == whole[i].source_tokens);
        REQUIRE(mine[i].target_tokens == whole[i].target_tokens);
        REQUIRE(mine[i].source_length == whole[i].source.columns);
        REQUIRE(mine[i].target_length == whole[i].target_input.columns);
        REQUIRE(mine[i].pairs == whole[i].pairs);
        if (mine[i].is_made()) REQUIRE(mine[i].source == whole[i].source);
      }
    }
  }
  // Steps that do not divide evenly, begun in the middle of one.
  options.shares = 3;
  options.step = 4;
  options.taken = 2;
  for (options.share = 0; options.share < 3; ++options.share) {
    const auto mine = all_of(Batches(*corpus, options, 1, first));
    for (size_t i = 0; i < mine.size(); ++i) REQUIRE(mine[i].is_made() == ((i + 2) % 4 % 3 == size_t(options.share)));
  }
  CHECK_THROWS(Batches(*corpus, {.share = 2, .shares = 2}, 0));
  CHECK_THROWS(Batches(*corpus, {.share = -1, .shares = 2}, 0));
}

TEST_CASE("shuffled batches come in no order of length, the others in order") {
  const LengthCorpus corpus(realistic_lengths(3000));
  const auto lengths = [&](bool shuffle) {
    std::vector<int64_t> result;
    for (const auto& batch : all_of(Batches(*corpus, {.batch_tokens = 500, .shuffle = shuffle}, 0))) {
      result.push_back(batch.target_input.columns);
    }
    return result;
  };
  const auto in_order = lengths(false), shuffled = lengths(true);
  CHECK(std::is_sorted(in_order.begin(), in_order.end()));
  // Correlation of neighbours: near 0 when shuffled, near 1 when in order.
  double mean = 0, variance = 0, covariance = 0;
  for (const auto length : shuffled) mean += static_cast<double>(length) / static_cast<double>(shuffled.size());
  for (size_t i = 1; i < shuffled.size(); ++i) {
    variance += std::pow(static_cast<double>(shuffled[i]) - mean, 2);
    covariance += (static_cast<double>(shuffled[i]) - mean) * (static_cast<double>(shuffled[i - 1]) - mean);
  }
  CHECK(std::abs(covariance / variance) < 0.3);
}

TEST_CASE("an epoch goes on where it was left") {
  const LengthCorpus corpus(realistic_lengths(2000));
  const Batches::Options options{.batch_tokens = 400, .seed = 9};
  const auto whole = all_of(Batches(*corpus, options, 4));
  for (const size_t first :
       {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1, whole.size(), whole.size() + 3}) {
    Batches batches(*corpus, options, 4, static_cast<int64_t>(first));
    CHECK(batches.size() == static_cast<int64_t>(whole.size()));
    const auto rest = all_of(std::move(batches));
    REQUIRE(rest.size() == whole.size() - std::min(first, whole.size()));
    for (size_t i = 0; i < rest.size(); ++i) {
      REQUIRE(rest[i].pairs == whole[first + i].pairs);
      REQUIRE(rest[i].source == whole[first + i].source);
      REQUIRE(rest[i].target_input == whole[first + i].target_input);
      REQUIRE(rest[i].target_output == whole[first + i].target_output);
    }
  }
}

TEST_CASE("the end of an epoch stays the end") {
  const LengthCorpus corpus({{2, 2}, {3, 3}});
  Batches batches(*corpus, {.batch_tokens = 100}, 0);
  Batch batch;
  int64_t pairs = 0;
  while (batches.next(batch)) pairs += static_cast<int64_t>(batch.pairs.size());
  CHECK(pairs == 2);
  CHECK(!batches.next(batch));
  CHECK(!batches.next(batch));
}

TEST_CASE("leaving in the middle of an epoch ends its thread") {
  const LengthCorpus corpus(realistic_lengths(2000));
  for (int i = 0; i < 200; ++i) {
    Batches batches(*corpus, {.batch_tokens = 200}, i);
    Batch batch;
    for (int k = 0; k < i % 4; ++k) REQUIRE(batches.next(batch));
    Batches moved = std::move(batches);
    if (i % 2 == 0) REQUIRE(moved.next(batch));
  }
}

TEST_CASE("a corpus without pairs has no batches") {
  const LengthCorpus corpus({});
  Batches batches(*corpus, {}, 0);
  Batch batch;
  CHECK(batches.size() == 0);
  CHECK(batches.padding() == 0);
  CHECK(!batches.next(batch));
}

TEST_CASE("pieces are cut where padding and unused budget cost least, though the first batch be a piece alone") {
  // With ends and begins 2 x 2, 5 x 5 and 5 x 4 in 10: the first alone leaves 8 unused, worth 2, and the others have
  // one place of padding; the first two together would have 6.
  const LengthCorpus corpus({{1, 1}, {4, 4}, {4, 3}});
  for (const bool shuffle : {false, true}) {
    auto plan = pairs_of(all_of(Batches(*corpus, {.batch_tokens = 10, .shuffle = shuffle}, 0)));
    for (auto& pairs : plan) std::sort(pairs.begin(), pairs.end());
    std::sort(plan.begin(), plan.end());
    CHECK(plan == std::vector<std::vector<int64_t>>{{0}, {1, 2}});
  }
}

TEST_CASE("a pair longer than the budget is refused") {
  const LengthCorpus corpus({{3, 3}, {5, 21}});
  CHECK_THAT(error_of([&] { Batches(*corpus, {.batch_tokens = 21}, 0); }),
             Contains("sentence pair 2") && Contains("22 target tokens") && Contains("at least 22"));
  CHECK(Batches(*corpus, {.batch_tokens = 22}, 0).size() == 1 + 1);
  const LengthCorpus first({{21, 5}, {3, 3}});
  CHECK_THAT(error_of([&] { Batches(*first, {.batch_tokens = 21}, 0); }),
             Contains("sentence pair 1") && Contains("22 source"));
}

TEST_CASE("pieces are not drawn without vocabularies") {
  const LengthCorpus corpus({{3, 3}});
  CHECK_THROWS_AS(Batches(*corpus, {.batch_tokens = 21, .sampling = {.vocabularies = {}, .alpha = 0.1}}, 0),
                  std::invalid_argument);
}

TEST_CASE("files of weight 0 set no limit") {
  const LengthCorpus corpus({{40, 3}, {4, 4}, {3, 5}, {30, 2}}, 2);
  CHECK(corpus->longest() == 40);
  CHECK(corpus->longest({0, 1}) == 30);
  CHECK(corpus->longest({0.1, 0}) == 40);
  CHECK_THAT(error_of([&] { (void)corpus->longest({1}); }), Contains("data.train_weights"));
  CHECK(Batches(*corpus, {.batch_tokens = 31, .weights = {0, 1}}, 0).size() == 2);
  CHECK_THAT(error_of([&] {
               Batches(*corpus, {.batch_tokens = 30, .weights = {0, 1}}, 0);
             }),
             Contains("sentence pair 4 has 31 source"));
}

}  // namespace transformer::test
