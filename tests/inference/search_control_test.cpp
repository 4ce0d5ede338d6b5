#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "error_of.h"
#include "inference/table_model.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/inference/beam_search.h"
#include "transformer/inference/draft_pace.h"
#include "transformer/inference/output_prefix.h"
#include "transformer/inference/sampling.h"

namespace transformer::test {

namespace {

using Search = DecodingSettings::Search;

struct Scored {
  Tokens tokens;
  double ranked, log_probability, score;
};

/// Of `prefix`, what hypotheses are compared by: the table's row with a bias, normalised again, and the penalty.
std::vector<double> ranked_row(RandomTable& table, const Tokens& prefix, const DecodingRequest& request) {
  auto row = table.row(prefix);
  double sum = 0;
  for (const auto& [token, addition] : request.control.bias) row[static_cast<size_t>(token)] += addition;
  for (const double value : row) sum += std::exp(value);
  for (double& value : row) value -= std::log(sum);
  for (const int64_t token : std::set<int64_t>(prefix.begin(), prefix.end())) {
    row[static_cast<size_t>(token)] *= request.settings.repetition_penalty;
  }
  return row;
}

bool repeats(const Tokens& tokens, size_t n) {
  std::set<Tokens> seen;
  for (size_t i = 0; i + n <= tokens.size(); ++i) {
    if (!seen.emplace(tokens.begin() + static_cast<std::ptrdiff_t>(i),
                      tokens.begin() + static_cast<std::ptrdiff_t>(i + n))
             .second) {
      return true;
    }
  }
  return false;
}

bool holds(const Tokens& tokens, const Tokens& phrase) {
  return std::search(tokens.begin(), tokens.end(), phrase.begin(), phrase.end()) != tokens.end();
}

/// Every output that the request allows, best first.
std::vector<Scored> exhaustive(RandomTable& table, const DecodingRequest& request) {
  std::vector<Scored> all;
  const auto& settings = request.settings;
  const auto longest = settings.max_length > 0 ? std::min(settings.max_length, request.max_length) : request.max_length;
  const auto visit = [&](auto&& self, Tokens& prefix, double ranked, double log_probability) -> void {
    if (settings.no_repeat_ngram > 0 && repeats(prefix, static_cast<size_t>(settings.no_repeat_ngram))) return;
    const auto row = ranked_row(table, prefix, request);
    const auto plain = table.row(prefix);
    const auto& required = request.control.required;
    if (std::ssize(prefix) >= settings.min_length &&
        std::all_of(required.begin(), required.end(), [&](const auto& phrase) { return holds(prefix, phrase); })) {
      all.push_back({prefix, ranked + row[end], log_probability + plain[end],
                     (ranked + row[end]) / std::pow((6 + static_cast<double>(prefix.size())) / 6, settings.alpha)});
    }
    if (std::ssize(prefix) == longest) return;
    for (int64_t token = 0; token < table.vocabulary(); ++token) {
      if (token == end || (!settings.write_unknown && token == Vocabulary::unknown)) continue;
      prefix.push_back(token);
      self(self, prefix, ranked + row[static_cast<size_t>(token)], log_probability + plain[static_cast<size_t>(token)]);
      prefix.pop_back();
    }
  };
  Tokens prefix;
  visit(visit, prefix, 0, 0);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  return all;
}

std::vector<Hypothesis> search(RandomTable& table, const DecodingRequest& request) {
  TableSteps steps({&table});
  return beam_search(steps.function(), std::vector<DecodingRequest>{request}, begin).at(0);
}

/// By a model that has `row(prefix)` for every prefix: what may follow, and its log-probability.
std::vector<Hypothesis> search(int64_t vocabulary,
                               const std::function<std::vector<Continuations::Candidate>(const Tokens&)>& row,
                               const DecodingRequest& request, size_t* most_rows = nullptr) {
  std::vector<Tokens> prefixes;
  const StepFunction step = [&](std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t) {
    std::vector<Tokens> next;
    for (size_t i = 0; i < tokens.size(); ++i) {
      next.push_back(prefixes.empty() ? Tokens() : prefixes[static_cast<size_t>(parents[i])]);
      if (!prefixes.empty()) next.back().push_back(tokens[i]);
    }
    prefixes = std::move(next);
    if (most_rows) *most_rows = std::max(*most_rows, prefixes.size());
    Continuations all{vocabulary, {}, {}};
    for (const auto& prefix : prefixes) all.add_row(row(prefix));
    return all;
  };
  return beam_search(step, std::span(&request, 1), begin).front();
}

void check_first(const std::vector<Hypothesis>& found, const std::vector<Scored>& expected) {
  REQUIRE(!found.empty());
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    INFO(i);
    CHECK(found[i].tokens == expected[i].tokens);
    CHECK(found[i].finished);
    CHECK(found[i].score == Approx(expected[i].score).epsilon(1e-5));
    CHECK(found[i].log_probability == Approx(expected[i].log_probability).epsilon(1e-5));
  }
}

DecodingRequest request_of(int64_t max_length, const DecodingSettings& settings) {
  return {.source = {7, 5, 2}, .max_length = max_length, .settings = settings.validated(), .end = end};
}

/// Tokens in the order of what `value` gives them.
template <class Value>
std::vector<size_t> descending(size_t size, Value value) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return value(a) > value(b); });
  return order;
}

/// What sampling should draw by, straight from its definition.
std::vector<double> distribution(const std::vector<double>& row, const DecodingSettings& settings) {
  std::vector<double> p;
  const double most = *std::max_element(row.begin(), row.end());
  for (const double value : row) p.push_back(std::exp((value - most) / settings.temperature));
  const auto normalise = [&] {
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
  };
  normalise();
  const auto order = descending(p.size(), [&](size_t i) { return p[i]; });
  if (settings.top_k > 0) {
    for (size_t i = static_cast<size_t>(settings.top_k); i < order.size(); ++i) p[order[i]] = 0;
  }
  normalise();
  double before = 0;
  for (const size_t token : order) {
    const double own = p[token];
    if (before >= settings.top_p) p[token] = 0;
    before += own;
  }
  normalise();
  for (double& value : p) {
    if (value < settings.min_p * p[order[0]]) value = 0;
  }
  normalise();
  return p;
}

}  // namespace

TEST_CASE("a beam as wide as the space finds the best of what penalties, bans and bias leave") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomTable table(seed + 3000, 5);
    DecodingSettings settings{.beam = 2000, .n_best = 6};
    settings.min_length = static_cast<int64_t>(seed % 4);
    settings.no_repeat_ngram = static_cast<int64_t>(seed / 4 % 4);
    settings.write_unknown = seed % 3 != 0;
    settings.repetition_penalty = seed % 5 == 0 ? 1.7 : 1;
    settings.max_length = seed % 7 == 0 ? 3 : 0;
    auto request = request_of(4, settings);
    if (seed % 2 == 0) request.control.bias = {{2, 3.0}, {4, -1.5}, {end, 0.25}};
    INFO(seed);
    check_first(search(table, request), exhaustive(table, request));
  }
}

TEST_CASE("a bias is what a softmax in double precision makes of it, however sure the model is") {
  constexpr size_t vocabulary = 60, sure = 7;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  // The rest of the probability: about 1e-8, 1e-4, a third; and what a distribution lacks that is not normalised.
  for (const float peak : {22.5F, 13.5F, 5.0F, 300.0F}) {
    for (const double lacking : {0.0, 1.25}) {
      for (const double addition : {-100.0, -20.0, -5.0, 0.0, 3.0, 100.0}) {
        std::vector<float> logits(vocabulary);
        for (float& logit : logits) logit = normal(random);
        logits[sure] = peak;
        logits[3] = -std::numeric_limits<float>::infinity();
        const auto before = logits;
        const auto sum = [](const std::vector<double>& values) {
          const double most = *std::max_element(values.begin(), values.end());
          double total = 0;
          for (const double value : values) total += std::exp(value - most);
          return most + std::log(total);
        };
        std::vector<double> biased(logits.begin(), logits.end());
        // As sums of float32 have it, which nothing that is left of 1 can be told from.
        const double normaliser = static_cast<double>(static_cast<float>(sum(biased))) + lacking;
        biased[sure] += addition;
        biased[9] += 2;
        const double all = sum(biased) + lacking;
        for (const auto how : {Search::beam, Search::sampling}) {
          CAPTURE(peak, lacking, addition, how == Search::beam);
          DecodingSettings settings{.beam = 4, .search = how};
          if (how == Search::beam) settings.beam = vocabulary;
          settings.n_best = how == Search::beam ? 1 : 300;
          auto request = request_of(4, settings);
          request.control.bias = {{static_cast<int64_t>(sure), addition}, {9, 2.0}};
          SentenceSearch search_of_one(request);
          REQUIRE(search_of_one.wants_whole_rows());
          search_of_one.take_row(0, {logits, normaliser});
          CHECK(logits == before);
          search_of_one.advance({}, 0);
          REQUIRE(!search_of_one.live().empty());
          for (const auto& live : search_of_one.live()) {
            const auto token = static_cast<size_t>(live.token);
            CHECK(live.ranked <= 0);
            CHECK(live.ranked == Approx(biased[token] - all).epsilon(1e-5).margin(1e-5));
            CHECK(live.log_probability == static_cast<double>(before[token]) - normaliser);
            if (how == Search::sampling && addition == -100.0 && peak < 50) CHECK(token != sure);
          }
        }
      }
    }
  }
}

TEST_CASE("whatever looks at whole rows finds the same where a row leaves out what is impossible") {
  // As a model that never proposes its first tokens, and once in a while nothing but the lower half of the others.
  constexpr int64_t vocabulary = 12, first = 2;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomTable table(seed + 9000, vocabulary);
    auto request = request_of(6, {.beam = 3, .n_best = 3});
    request.end = 3;
    if (seed % 4 == 0) {
      request.settings = {.n_best = 3, .search = Search::sampling};
      request.settings.seed = static_cast<int64_t>(seed);
    }
    if (seed % 4 == 1) request.settings.min_length = 3;
    if (seed % 4 == 2) request.settings.repetition_penalty = 1.4;
    if (seed % 4 == 3) request.control.required = {{5, vocabulary - 1}, {7}};
    // Some are tokens that no row has.
    if (seed % 3 == 0) request.control.bias = {{vocabulary - 1, 2.0}, {vocabulary + 100, 1.0}};
    const auto by = [&](bool left_out) {
      const auto row = [&](const Tokens& prefix) {
        const auto& log_probabilities = table.row(prefix);
        std::vector<Continuations::Candidate> candidates;
        const int64_t last = prefix.size() == 3 ? vocabulary / 2 : vocabulary;
        for (int64_t token = 0; token < vocabulary; ++token) {
          const bool possible = token >= first && token < last;
          if (!possible && left_out) continue;
          candidates.push_back(
              {possible ? log_probabilities[static_cast<size_t>(token)] : -std::numeric_limits<double>::infinity(),
               token});
        }
        return candidates;
      };
      return search(left_out ? vocabulary - first : vocabulary, row, request);
    };
    INFO(seed);
    const auto found = by(true), expected = by(false);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].tokens == expected[i].tokens);
      CHECK(found[i].log_probability == expected[i].log_probability);
      CHECK(found[i].score == expected[i].score);
    }
  }
}

TEST_CASE("what is told counts in no length but the penalty's: behind it a search is the one without it") {
  constexpr int64_t told = 5;
  for (uint64_t seed = 0; seed < 48; ++seed) {
    RandomTable table(seed + 8000, 6);
    DecodingSettings settings{.beam = 4, .alpha = 0, .n_best = 3};
    if (seed % 3 == 0) settings.stop = DecodingSettings::Stop::beam_finished;
    if (seed % 4 == 1) settings.min_length = 2;
    if (seed % 4 == 2) settings.min_length_ratio = 1.4;  // of two pieces: 2.8
    if (seed % 5 == 1) settings.max_length = 4;
    if (seed % 5 == 2) settings.no_repeat_ngram = 1;
    if (seed % 5 == 3) settings.repetition_penalty = 1.6;
    if (seed % 6 == 5) settings.beam_groups = 2;
    auto request = request_of(7, settings);
    if (seed % 7 == 1) request.control.bias = {{3, 2.0}, {told, -1.5}};
    if (seed % 7 == 2 && settings.beam_groups == 1) request.control.required = {{told, 2}, {told}};
    if (seed % 7 == 2) request.settings.no_repeat_ngram = 0;
    const auto expected = search(table, request);

    auto behind = request;
    behind.source.insert(behind.source.begin(), 9);
    behind.told = 1;
    TableSteps steps({&table});
    const auto step = steps.function();
    int64_t count = 0;
    const StepFunction after_told = [&](std::span<const int64_t> tokens, std::span<const int64_t> parents,
                                        int64_t width) {
      Tokens read(tokens.begin(), tokens.end());
      if (count == 1) std::fill(read.begin(), read.end(), begin);
      if (count++ > 0) return step(read, parents, width);
      Continuations only{std::min(width, table.vocabulary()), {}, {}};
      only.add_row({{0, told}});
      return only;
    };
    const auto found = beam_search(after_told, std::vector<DecodingRequest>{behind}, begin).at(0);
    INFO(seed);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      REQUIRE(!found[i].tokens.empty());
      CHECK(found[i].tokens.front() == told);
      CHECK(Tokens(found[i].tokens.begin() + 1, found[i].tokens.end()) == expected[i].tokens);
      CHECK(found[i].score == expected[i].score);
      CHECK(found[i].log_probability == expected[i].log_probability);
      CHECK(found[i].finished == expected[i].finished);
      CHECK(found[i].missing == expected[i].missing);
    }
  }
}

TEST_CASE("rows are asked for whole from where an n-gram could come again") {
  const auto next = [](Tokens tokens) {  // one likely continuation of every live hypothesis
    Continuations all{1, std::move(tokens), {}};
    all.log_probabilities.assign(all.tokens.size(), -1.0);
    return all;
  };
  SentenceSearch one(request_of(20, {.beam = 1, .no_repeat_ngram = 3}));
  for (const int64_t token : {4, 5, 6, 4}) {
    CHECK_FALSE(one.wants_whole_rows());
    REQUIRE_FALSE(one.advance(next({token}), 0));
  }
  CHECK_FALSE(one.wants_whole_rows());
  CHECK(one.wants_whole_rows(Tokens{5}));  // 4 5 has gone on with 6
  CHECK_FALSE(one.wants_whole_rows(Tokens{6}));
  CHECK_FALSE(one.wants_whole_rows(Tokens{5, 5}));
  REQUIRE_FALSE(one.advance(next({5}), 0));
  REQUIRE(one.wants_whole_rows());
  std::vector<float> logits(8, -9);
  logits[6] = -1;
  logits[7] = -2;
  one.take_row(0, {logits, 0});
  CHECK(logits[6] == -1);
  REQUIRE_FALSE(one.advance({}, 0));
  CHECK(one.certain() == Tokens{4, 5, 6, 4, 5, 7});
  CHECK_FALSE(one.wants_whole_rows());

  // One of several that live is enough, and one group of several.
  SentenceSearch two(request_of(20, {.beam = 2, .no_repeat_ngram = 2}));
  REQUIRE_FALSE(two.advance({2, {4, 5}, {-1.0, -1.5}}, 0));
  CHECK_FALSE(two.wants_whole_rows());
  CHECK(two.wants_whole_rows(Tokens{5, 4}));
  SentenceSearch groups(request_of(20, {.beam = 2, .no_repeat_ngram = 1, .beam_groups = 2}));
  CHECK_FALSE(groups.wants_whole_rows());
  REQUIRE_FALSE(groups.advance({2, {4, 5}, {-1.0, -1.5}}, 0));
  CHECK(groups.wants_whole_rows());
}

TEST_CASE("the shortest output may depend on the input") {
  RandomTable table(2, 5);
  DecodingSettings settings{.beam = 3};
  settings.min_length_ratio = 1.4;  // of two pieces: 2.8
  auto request = request_of(6, settings);
  CHECK(search(table, request).front().tokens.size() >= 3);
  request.max_length = 1;  // comes before
  CHECK(search(table, request).front().tokens.size() <= 1);
}

TEST_CASE("a share of the input's length is counted as it is written") {
  size_t shortest = 1000;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomTable table(seed, 5);
    auto share = request_of(80, {.beam = 1});
    share.source = Tokens(51, 4);  // fifty pieces, of which 1.1 are 55
    auto number = share;
    share.settings.min_length_ratio = 1.1;
    number.settings.min_length = 55;
    const auto found = search(table, share).front().tokens;
    CHECK(found == search(table, number).front().tokens);
    shortest = std::min(shortest, found.size());
  }
  CHECK(shortest == 55);
}

TEST_CASE("required phrases: a wide beam finds the best output that holds them, a narrow one finds one") {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    RandomTable table(seed + 4000, 6);
    auto request = request_of(4, {.beam = 10000, .n_best = 3});
    request.control.required = seed % 3 == 0   ? std::vector<Tokens>{{2, 3}, {5}}
                               : seed % 3 == 1 ? std::vector<Tokens>{{4, 4, 2}}
                                               : std::vector<Tokens>{{2, 3, 4}, {3}};  // the second is in the first
    INFO(seed);
    check_first(search(table, request), exhaustive(table, request));
    for (const int64_t beam : {1, 2, 4, 10}) {
      auto narrow = request;
      narrow.settings.beam = narrow.settings.n_best = beam;
      narrow.max_length = 12;
      for (const auto& hypothesis : search(table, narrow)) {
        for (size_t i = 0; i < request.control.required.size(); ++i) {
          const bool missing =
              std::find(hypothesis.missing.begin(), hypothesis.missing.end(), i) != hypothesis.missing.end();
          CHECK(holds(hypothesis.tokens, request.control.required[i]) == !missing);
          CHECK((!missing || !hypothesis.finished));
        }
      }
      CHECK(search(table, narrow).front().missing.empty());
      // Where there is no room, the sentence says so.
      narrow.max_length = 2;
      CHECK(search(table, narrow).front().missing.size() == 1);
    }
  }
}

TEST_CASE("required phrases may repeat what otherwise comes once") {
  struct Case {
    std::vector<Tokens> phrases;
    int64_t ngram;
  };
  for (const auto& [phrases, ngram] :
       {Case{{{4, 4, 4, 4}}, 2}, Case{{{2}, {3, 2}}, 1}, Case{{{5}, {5}}, 1}, Case{{{2, 3}, {2, 3}}, 2}}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      RandomTable table(seed + 6000, 6);
      auto request = request_of(30, {.beam = 4, .no_repeat_ngram = ngram});
      request.control.required = phrases;
      const auto found = search(table, request).front();
      CHECK(found.missing.empty());
      CHECK(found.finished);
    }
  }
}

TEST_CASE("required phrases that begin alike, overlap or come twice are all held") {
  const std::vector<std::vector<Tokens>> cases = {{{2, 3}, {2, 4}}, {{2}, {2, 3}},         {{2, 2, 3}, {3, 2}},
                                                  {{4}, {4}, {4}},  {{2, 2, 2, 3}},        {{2, 3, 2, 4}, {3, 2, 2}},
                                                  {{2, 3, 4}, {4}}, {{2, 3, 4, 5}, {3, 4}}};
  for (const auto& phrases : cases) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      RandomTable table(seed + 5000, 6);
      auto request = request_of(30, {.beam = 4});
      request.control.required = phrases;
      const auto found = search(table, request).front();
      CHECK(found.missing.empty());
      for (const auto& phrase : phrases) CHECK(holds(found.tokens, phrase));
      if (phrases.size() == 3) CHECK(std::count(found.tokens.begin(), found.tokens.end(), 4) >= 3);
    }
  }
  // A phrase that goes wrong may have begun again meanwhile.
  const RequiredPhrases::Phrases phrase = {{2, 2, 3}};
  RequiredPhrases progress(phrase);
  for (const int64_t token : {2, 2, 2}) progress.append(token);
  CHECK(progress.tokens() == 2);
  CHECK(progress.next() == Tokens{3});
  progress.append(3);
  CHECK(progress.all_met());
}

TEST_CASE("a phrase is there where the output holds it, by looking for it") {
  std::mt19937 random(11);
  const auto drawn = [&](size_t longest) {
    Tokens tokens(1 + random() % longest);
    for (auto& token : tokens) token = 4 + static_cast<int64_t>(random() % 2);
    return tokens;
  };
  size_t met = 0, same = 0;
  for (int time = 0; time < 300; ++time) {
    RequiredPhrases::Phrases phrases;
    int64_t all = 0;
    for (size_t count = 1 + random() % 5; count > 0; --count) {
      phrases.push_back(drawn(4));
      all += std::ssize(phrases.back());
    }
    RequiredPhrases progress(phrases);
    Tokens output;
    for (int64_t step = 0; step < 14; ++step) {
      auto forward = progress;
      if (!progress.all_met()) {
        const auto next = progress.next();
        REQUIRE(!next.empty());
        for (const int64_t token : next) {
          forward = progress;
          forward.append(token);
          CHECK(forward.tokens() > progress.tokens());
        }
      }
      output.push_back(4 + static_cast<int64_t>(random() % 2));
      progress.append(output.back());
      std::vector<size_t> missing;
      std::map<Tokens, std::ptrdiff_t> asked;
      for (size_t i = 0; i < phrases.size(); ++i) {
        std::ptrdiff_t times = 0;
        for (auto at = output.begin(); at != output.end(); ++at) {
          at = std::search(at, output.end(), phrases[i].begin(), phrases[i].end());
          if (at == output.end()) break;
          ++times;
        }
        if (++asked[phrases[i]] > times) missing.push_back(i);
        if (asked[phrases[i]] > 1) ++same;
      }
      CHECK(progress.missing() == missing);
      CHECK(progress.all_met() == missing.empty());
      CHECK(progress.tokens() <= all);
      if (missing.empty()) {
        CHECK(progress.tokens() == all);
        CHECK(progress.next().empty());
        ++met;
      }
    }
  }
  CHECK(met > 100);
  CHECK(same > 100);
}

TEST_CASE("banks share the beam, and leave nothing of it unused") {
  CHECK(bank_sizes(4, Tokens{9, 9, 9, 9}) == Tokens{1, 1, 1, 1});
  CHECK(bank_sizes(5, Tokens{9, 9}) == Tokens{2, 3});
  CHECK(bank_sizes(4, Tokens{9, 0, 1}) == Tokens{3, 0, 1});
  CHECK(bank_sizes(1, Tokens{9, 2, 0}) == Tokens{0, 1, 0});
  CHECK(bank_sizes(8, Tokens{1, 2, 0}) == Tokens{1, 2, 0});
  CHECK(bank_sizes(8, Tokens{9, 9, 0, 0, 0}) == Tokens{4, 4, 0, 0, 0});
  std::mt19937 random(8);
  for (int time = 0; time < 500; ++time) {
    const auto slots = 1 + static_cast<int64_t>(random() % 9);
    Tokens candidates(1 + random() % 12);
    for (auto& count : candidates) count = static_cast<int64_t>(random() % 5);
    const auto filled = std::max<int64_t>(1, std::count_if(candidates.begin(), candidates.end(), std::identity()));
    const auto sizes = bank_sizes(slots, candidates);
    for (size_t bank = 0; bank < sizes.size(); ++bank) {
      CHECK(sizes[bank] <= candidates[bank]);
      CHECK(sizes[bank] >= std::min(candidates[bank], slots / filled));
    }
    CHECK(std::reduce(sizes.begin(), sizes.end()) ==
          std::min(slots, std::reduce(candidates.begin(), candidates.end())));
  }
}

TEST_CASE("a phrase comes where the model has a place for it, however long it is") {
  constexpr int64_t vocabulary = 200, place = 4, longest = 12;
  for (const int64_t pieces : {1, 4, 5, 30, 100}) {
    for (const int64_t beam : {1, 2, 4}) {
      CAPTURE(pieces, beam);
      DecodingRequest request = request_of(longest + pieces, {.beam = beam});
      Tokens phrase(static_cast<size_t>(pieces));
      std::iota(phrase.begin(), phrase.end(), int64_t{100});
      request.control.required = {phrase};
      CHECK(request.hypotheses() == beam + std::min<int64_t>(pieces, 64));
      // Writes 20, 21, ... of itself, and the phrase once it has begun; begins it in one place alone with any liking.
      const auto row = [&](const Tokens& prefix) {
        const auto length = std::ssize(prefix);
        std::map<int64_t, double> likely;
        if (length > 0 && prefix.back() >= 100 && prefix.back() + 1 < 100 + pieces) {
          likely = {{prefix.back() + 1, 0.9}};
        } else if (std::count(prefix.begin(), prefix.end(), 100) > 0) {
          likely = length < longest / 2 + pieces ? std::map<int64_t, double>{{20 + length - pieces, 0.8}}
                                                 : std::map<int64_t, double>{{end, 0.8}};
        } else {
          likely = {{length < longest / 2 ? 20 + length : end, 0.7}, {100, length == place ? 0.2 : 1e-6}};
        }
        double rest = 1;
        for (const auto& [token, probability] : likely) rest -= probability;
        std::vector<Continuations::Candidate> all;
        for (int64_t token = 0; token < vocabulary; ++token) {
          const auto found = likely.find(token);
          const double other = rest / static_cast<double>(vocabulary - std::ssize(likely));
          all.push_back({std::log(found == likely.end() ? other : found->second), token});
        }
        return all;
      };
      size_t most_rows = 0;
      const auto found = search(vocabulary, row, request, &most_rows).front();
      CHECK(static_cast<int64_t>(most_rows) <= request.hypotheses());
      CHECK(found.missing.empty());
      const auto at = std::search(found.tokens.begin(), found.tokens.end(), phrase.begin(), phrase.end());
      CHECK(at - found.tokens.begin() == place);
      CHECK(std::ssize(found.tokens) == longest / 2 + pieces);
    }
  }
}

TEST_CASE("who lacks a phrase and is behind those that hold it lives on no longer") {
  constexpr int64_t vocabulary = 50, longest = 40;
  for (const int64_t beam : {1, 4}) {
    CAPTURE(beam);
    auto request = request_of(longest, {.beam = beam});
    request.control.required = {{10, 11, 12}};
    // Wants the phrase in the third place, and nothing in particular before and behind it.
    std::vector<int64_t> rows(longest + 1);
    const auto row = [&](const Tokens& prefix) {
      const auto length = std::ssize(prefix);
      ++rows[static_cast<size_t>(length)];
      const bool there = std::find(prefix.begin(), prefix.end(), 12) != prefix.end();
      const int64_t likely = length >= 2 && length < 5 ? 8 + length : there && length > 30 ? end : 20;
      std::vector<Continuations::Candidate> all;
      for (int64_t token = 0; token < vocabulary; ++token) {
        all.push_back({std::log(token == likely ? 0.9 : 0.1 / (vocabulary - 1)), token});
      }
      return all;
    };
    const auto found = search(vocabulary, row, request).front();
    CHECK(found.missing.empty());
    CHECK(found.tokens.size() == 31);
    const int64_t holding = beam, waiting = beam - beam / 4;
    // Those that begin the phrase once more are worse than all that hold it.
    for (size_t length = 10; length <= 30; ++length) CHECK(rows[length] <= std::max(holding, waiting));
    // Before, all may be of use.
    CHECK(rows[2] > waiting);
    for (const int64_t count : rows) CHECK(count <= holding + waiting + 2);
  }
}

TEST_CASE("many phrases are all held, however few hypotheses there are for their tokens") {
  constexpr int64_t vocabulary = 300;
  for (const int64_t beam : {1, 4}) {
    for (const int64_t count : {10, 25, 60}) {
      CAPTURE(beam, count);
      auto request = request_of(6 * count, {.beam = beam});
      for (int64_t i = 0; i < count; ++i) request.control.required.push_back({50 + 4 * i, 51 + 4 * i, 52 + 4 * i});
      // Never goes on with a phrase of itself, and wants to end early.
      const auto row = [&](const Tokens& prefix) {
        std::vector<Continuations::Candidate> all;
        for (int64_t token = 0; token < vocabulary; ++token) {
          const bool likely = token == (std::ssize(prefix) < 3 * count ? 20 + std::ssize(prefix) % 7 : end);
          all.push_back({std::log(likely ? 0.5 : 0.5 / (vocabulary - 1)), token});
        }
        return all;
      };
      const auto found = search(vocabulary, row, request).front();
      CHECK(found.finished);
      CHECK(found.missing.empty());
    }
  }
}

TEST_CASE("the time that phrases take grows with their number, not with its square") {
  constexpr int64_t vocabulary = 3000;
  std::vector<Continuations::Candidate> all;
  for (int64_t token = 0; token < vocabulary; ++token) all.push_back({-8 - static_cast<double>(token) / 1000, token});
  const auto seconds = [&](int64_t phrases) {
    auto request = request_of(6, {.beam = 4});
    for (int64_t i = 0; i < phrases; ++i) request.control.required.push_back({100 + i, 101 + i});
    const CpuClock clock;
    const auto found = search(
                           vocabulary, [&](const Tokens&) { return all; }, request)
                           .front();
    CHECK(std::ssize(found.missing) < phrases);
    return clock.seconds();
  };
  CHECK(seconds(2400) < 20 * seconds(240));
}

TEST_CASE("a search does not stop at what lacks a phrase while something may still hold it") {
  // Behind 4 nothing but an end can follow, which comes all the same; behind 5 comes the phrase.
  const auto row = [](const Tokens& prefix) -> std::vector<Continuations::Candidate> {
    if (prefix.empty()) return {{std::log(0.9), 4}, {std::log(0.1), 5}};
    if (prefix == Tokens{5}) return {{std::log(0.6), 6}, {std::log(0.4), 7}};
    return {{0.0, end}};
  };
  auto request = request_of(5, {.beam = 3});
  request.control.required = {{6}};
  const auto found = search(8, row, request);
  REQUIRE(found.size() == 1);
  CHECK(found.front().tokens == Tokens{5, 6});
  CHECK(found.front().missing.empty());
}

TEST_CASE("samples come as often as the distribution has them") {
  RandomTable table(77, 6, 1.5);
  for (int variant = 0; variant < 6; ++variant) {
    DecodingSettings settings{.n_best = 6000, .search = Search::sampling};
    settings.temperature = variant == 1 ? 0.6 : variant == 5 ? 1.8 : 1;
    settings.top_k = variant == 2 || variant == 5 ? 3 : 0;
    settings.top_p = variant == 3 || variant == 5 ? 0.75 : 1;
    settings.min_p = variant == 4 ? 0.2 : 0;
    settings.no_repeat_ngram = variant == 5 ? 1 : 0;
    const auto request = request_of(2, settings);
    // The probability of every output: of at most two tokens, cut or ended.
    std::map<Tokens, double> expected;
    const auto visit = [&](auto&& self, Tokens& prefix, double probability) -> void {
      auto row = table.row(prefix);
      if (settings.no_repeat_ngram == 1) {
        for (const int64_t token : prefix) row[static_cast<size_t>(token)] = -std::numeric_limits<double>::infinity();
      }
      const auto p = distribution(row, settings);
      expected[prefix] += probability * (prefix.size() == 2 ? 1 : p[end]);
      if (prefix.size() == 2) return;
      for (int64_t token = 1; token < table.vocabulary(); ++token) {
        if (p[static_cast<size_t>(token)] == 0) continue;
        prefix.push_back(token);
        self(self, prefix, probability * p[static_cast<size_t>(token)]);
        prefix.pop_back();
      }
    };
    Tokens prefix;
    visit(visit, prefix, 1);

    std::map<Tokens, int> counts;
    const auto found = search(table, request);
    REQUIRE(found.size() == 6000);
    for (const auto& sample : found) {
      ++counts[sample.tokens];
      double log_probability = 0;  // the model's, whatever was drawn by
      Tokens before;
      for (const int64_t token : sample.tokens) {
        log_probability += table.row(before)[static_cast<size_t>(token)];
        before.push_back(token);
      }
      if (sample.finished) log_probability += table.row(before)[end];
      CHECK(sample.log_probability == Approx(log_probability).epsilon(1e-5).margin(1e-6));
    }
    INFO("variant " << variant);
    for (const auto& [tokens, count] : counts) CHECK(expected[tokens] > 0);
    // Pearson's statistic, rare outputs together: beyond mean + 4 standard deviations once in far more than 10,000.
    double statistic = 0, rare = 0;
    int rare_count = 0, cells = 0;
    for (const auto& [tokens, probability] : expected) {
      const double mean = probability * 6000;
      if (mean < 8) {
        rare += mean;
        rare_count += counts[tokens];
        continue;
      }
      statistic += std::pow(counts[tokens] - mean, 2) / mean;
      ++cells;
    }
    if (rare > 8) {
      statistic += std::pow(rare_count - rare, 2) / rare;
      ++cells;
    }
    const double freedom = cells - 1;
    CHECK(freedom > 1);
    CHECK(statistic < freedom + 4 * std::sqrt(2 * freedom));
  }
}

TEST_CASE("a sample follows from seed, source and its number alone") {
  RandomTable table(78, 6, 1.5);
  auto request = request_of(8, {.n_best = 20, .search = Search::sampling});
  const auto twenty = search(table, request);
  auto one = request;
  one.settings.n_best = 1;
  CHECK(search(table, one).front().tokens == twenty.front().tokens);
  std::set<Tokens> different;
  for (const auto& sample : twenty) different.insert(sample.tokens);
  CHECK(different.size() > 10);
  const auto tokens_of = [](const std::vector<Hypothesis>& found) {
    std::vector<Tokens> all;
    for (const auto& hypothesis : found) all.push_back(hypothesis.tokens);
    return all;
  };
  CHECK(tokens_of(search(table, request)) == tokens_of(twenty));
  request.settings.seed = 2;
  CHECK(tokens_of(search(table, request)) != tokens_of(twenty));
  request.settings.seed = 1;
  request.source.front() = 8;
  CHECK(tokens_of(search(table, request)) != tokens_of(twenty));
  // The likeliest alone, and a temperature next to nothing, are greedy search.
  request.settings.top_k = 1;
  const auto greedy = search(table, request_of(8, {.beam = 1})).front().tokens;
  CHECK(search(table, request).back().tokens == greedy);
  request.settings.top_k = 0;
  request.settings.temperature = 0.001;
  CHECK(search(table, request).back().tokens == greedy);
}

TEST_CASE("draws are where their uniform number falls, also in large vocabularies") {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(3000);
  for (float& logit : logits) logit = normal(random);
  for (int i = 0; i < 50; ++i) logits[random() % logits.size()] = -std::numeric_limits<float>::infinity();
  for (int variant = 0; variant < 5; ++variant) {
    DecodingSettings settings;
    settings.temperature = 1.5;
    settings.top_p = variant == 1 ? 0.3 : variant == 2 ? 0.999 : 1;
    settings.top_k = variant == 3 ? 200 : 0;
    settings.min_p = variant == 4 ? 0.01 : 0;
    const auto p = distribution({logits.begin(), logits.end()}, settings);
    const auto order = descending(p.size(), [&](size_t i) { return p[i]; });
    std::vector<size_t> tokens = order;  // the order in which a draw walks
    if (variant == 0 || variant == 4) std::iota(tokens.begin(), tokens.end(), size_t{0});
    double before = 0;
    for (const size_t token : tokens) {
      if (p[token] > 1e-4) CHECK(draw(logits, settings, before + p[token] / 2) == static_cast<int64_t>(token));
      before += p[token];
    }
    CHECK(draw(logits, settings, 0) >= 0);
    CHECK(p[static_cast<size_t>(draw(logits, settings, std::nextafter(1.0, 0.0)))] > 0);
  }
  const std::vector<float> none(100, -std::numeric_limits<float>::infinity());
  CHECK(draw(none, {}, 0.5) == -1);
  std::vector<std::pair<float, int64_t>> best;
  best_of(logits, 200, best);
  const auto order = descending(logits.size(), [&](size_t i) { return logits[i]; });
  REQUIRE(best.size() == 200);
  for (size_t i = 0; i < best.size(); ++i) CHECK(best[i].second == static_cast<int64_t>(order[i]));
  best_of(none, 5, best);
  CHECK(best.empty());
}

TEST_CASE("groups search by the letter of diverse beam search") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomTable table(seed + 6000, 7);
    DecodingSettings settings{.beam = 6, .n_best = 6};
    settings.beam_groups = seed % 2 == 0 ? 2 : 3;
    settings.diversity = seed % 5 == 0 ? 0 : 0.7;
    constexpr int64_t longest = 5;
    const auto share = static_cast<size_t>(settings.beam / settings.beam_groups);
    struct Prefix {
      Tokens tokens;
      double log_probability;
    };
    std::vector<std::vector<Prefix>> groups(static_cast<size_t>(settings.beam_groups), {{{}, 0}});
    std::vector<std::vector<Hypothesis>> finished(groups.size()), cut(groups.size());
    const auto score = [&](double p, size_t length) {
      return p / std::pow((5 + static_cast<double>(length)) / 6, 0.6);
    };
    const auto better = [](const auto& a, const auto& b) { return a.score > b.score; };
    for (int64_t length = 0; length <= longest; ++length) {
      std::map<int64_t, int> chosen;
      for (size_t g = 0; g < groups.size(); ++g) {
        struct Candidate {
          Prefix prefix;
          double value;
          size_t from;
        };
        std::vector<Candidate> candidates;
        for (size_t from = 0; from < groups[g].size(); ++from) {
          for (int64_t token = 0; token < table.vocabulary(); ++token) {
            auto next = groups[g][from];
            next.log_probability += static_cast<double>(table.row(next.tokens)[static_cast<size_t>(token)]);
            next.tokens.push_back(token);
            candidates.push_back({next, next.log_probability - settings.diversity * chosen[token], from});
          }
        }
        std::stable_sort(candidates.begin(), candidates.end(),
                         [](const auto& a, const auto& b) { return a.value > b.value; });
        std::vector<Prefix> next;
        std::set<size_t> ended;
        for (size_t rank = 0; rank < candidates.size(); ++rank) {
          auto [prefix, value, from] = candidates[rank];
          if (prefix.tokens.back() == end) {
            if (rank >= share) continue;
            prefix.tokens.pop_back();
            ended.insert(from);
            finished[g].push_back(
                {prefix.tokens, prefix.log_probability, score(prefix.log_probability, prefix.tokens.size() + 1), true});
          } else if (next.size() < share && length < longest) {
            next.push_back(prefix);
          }
        }
        if (length == longest) {
          for (size_t from = 0; from < groups[g].size(); ++from) {
            const auto& [tokens, p] = groups[g][from];
            if (!ended.contains(from)) cut[g].push_back({tokens, p, score(p, tokens.size()), false});
          }
        }
        groups[g] = next;
        // A group that nothing better can follow chooses no more.
        std::stable_sort(finished[g].begin(), finished[g].end(), better);
        if (!next.empty() && finished[g].size() >= share) {
          const double p = next.front().log_probability, worst = finished[g][share - 1].score;
          if (worst >= score(p, static_cast<size_t>(length) + 2) && worst >= score(p, longest + 1)) groups[g].clear();
        }
        for (const auto& prefix : groups[g]) ++chosen[prefix.tokens.back()];
      }
    }
    std::vector<Hypothesis> expected;
    for (size_t g = 0; g < groups.size(); ++g) {
      std::stable_sort(finished[g].begin(), finished[g].end(), better);
      std::stable_sort(cut[g].begin(), cut[g].end(), better);
      finished[g].insert(finished[g].end(), cut[g].begin(), cut[g].end());
      if (finished[g].size() > share) finished[g].resize(share);
      for (const auto& hypothesis : finished[g]) {
        if (std::none_of(expected.begin(), expected.end(), [&](const auto& other) {
              return other.tokens == hypothesis.tokens && other.finished == hypothesis.finished;
            })) {
          expected.push_back(hypothesis);
        }
      }
    }
    std::stable_sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) {
      return a.finished != b.finished ? a.finished : a.score > b.score;
    });
    const auto found = search(table, request_of(longest, settings));
    INFO(seed);
    REQUIRE(found.size() == std::min(expected.size(), size_t{6}));
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].tokens == expected[i].tokens);
      CHECK(found[i].finished == expected[i].finished);
      CHECK(found[i].log_probability == Approx(expected[i].log_probability).epsilon(1e-12));
      CHECK(found[i].score == Approx(expected[i].score).epsilon(1e-12));
    }
    // The first group is plain search with its share.
    const auto plain = search(table, request_of(longest, {.beam = static_cast<int64_t>(share)})).front();
    const auto& all = settings.diversity == 0 ? std::vector<Hypothesis>{found.front()} : found;
    CHECK(
        std::any_of(all.begin(), all.end(), [&](const auto& hypothesis) { return hypothesis.tokens == plain.tokens; }));
  }
}

TEST_CASE("many groups take hardly longer than the beam that they share") {
  constexpr int64_t vocabulary = 200;
  std::vector<Continuations::Candidate> all;
  for (int64_t token = 0; token < vocabulary; ++token) all.push_back({-7 + static_cast<double>(token) / 100, token});
  const auto seconds = [&](int64_t groups) {
    auto request = request_of(4, {.beam = 2000});
    request.settings.beam_groups = groups;
    request.end = SentenceSearch::no_end;  // all are as long
    const CpuClock clock;
    search(
        vocabulary, [&](const Tokens&) { return all; }, request);
    return clock.seconds();
  };
  CHECK(seconds(1000) < 5 * seconds(1));
}

TEST_CASE("certain tokens only ever become more, and begin the first hypothesis") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomTable table(seed + 7000, 6, 3);
    DecodingSettings settings{.beam = seed % 3 == 0 ? 1 : 4, .n_best = 1};
    if (seed % 5 == 4) settings.beam_groups = 2;
    if (settings.beam == 1) settings.beam_groups = 1;
    if (seed % 7 == 6) settings = {.n_best = 3, .search = Search::sampling};
    const auto request = request_of(8, settings);
    SentenceSearch one(request);
    std::vector<Tokens> prefixes = {{}};
    Tokens told;
    bool done = false;
    size_t steps = 0, early = 0;
    while (!done) {
      Continuations all{table.vocabulary(), {}, {}};
      std::vector<float> logits;
      for (size_t row = 0; row < prefixes.size(); ++row) {
        const auto& values = table.row(prefixes[row]);
        const auto order = descending(values.size(), [&](size_t i) { return values[i]; });
        for (const size_t token : order) {
          all.tokens.push_back(static_cast<int64_t>(token));
          all.log_probabilities.push_back(values[token]);
        }
        logits.assign(values.begin(), values.end());
        if (one.wants_whole_rows()) one.take_row(row, {logits, 0});
        CHECK(std::equal(values.begin(), values.end(), logits.begin(),
                         [](double a, float b) { return static_cast<float>(a) == b; }));
      }
      done = one.advance(all, 0);
      std::vector<Tokens> next;
      for (const auto& live : one.live()) {
        next.push_back(prefixes[static_cast<size_t>(live.parent)]);
        next.back().push_back(live.token);
      }
      prefixes = next;
      ++steps;
      const auto certain = one.certain();
      REQUIRE(certain.size() >= told.size());
      CHECK(std::equal(told.begin(), told.end(), certain.begin()));
      if (!done && settings.hypotheses() == 1) CHECK(certain.size() == steps);
      if (!done && !certain.empty()) ++early;
      told = certain;
    }
    const auto result = one.take_result();
    CHECK(std::equal(told.begin(), told.end(), result.front().tokens.begin()));
    if (settings.hypotheses() == 1) CHECK(early + 1 >= result.front().tokens.size());
  }
}

TEST_CASE("settings and wishes that contradict each other are refused by name") {
  const auto problem = [](DecodingSettings settings) { return error_of([&] { settings.validated(); }); };
  DecodingSettings settings;
  settings.temperature = 0.5;
  CHECK_THAT(problem(settings), StartsWith("decoding.temperature"));
  settings = {.n_best = 50, .search = Search::sampling};
  CHECK(problem(settings).empty());
  settings.search = Search::beam;
  CHECK_THAT(problem(settings), StartsWith("decoding.n_best"));
  settings = {.search = Search::sampling};
  settings.beam_groups = 2;
  CHECK_THAT(problem(settings), StartsWith("decoding.beam_groups"));
  settings = {};
  settings.beam_groups = 3;
  CHECK_THAT(problem(settings), StartsWith("decoding.beam_groups"));
  settings = {};
  settings.min_length = 5;
  settings.max_length = 4;
  CHECK_THAT(problem(settings), StartsWith("decoding.min_length"));

  // What is of the one kind of search alone does not hold for the other.
  settings = {.n_best = 3, .search = Search::sampling, .temperature = 0.5, .top_k = 9, .top_p = 0.9, .min_p = 0.1};
  settings.seed = 7;
  CHECK(problem(settings).empty());
  CHECK(problem(settings.searched_by(Search::beam)).empty());
  CHECK(settings.searched_by(Search::beam).n_best == 3);
  settings = {.coverage_penalty = 0.2};
  settings.beam_groups = 2;
  CHECK(problem(settings).empty());
  CHECK(problem(settings.searched_by(Search::sampling)).empty());
  CHECK(settings.searched_by(Search::sampling).search == Search::sampling);

  const auto refusal = [](DecodingRequest request) { return error_of([&] { request.check(40); }); };
  DecodingRequest request{.source = {5, 2}};
  CHECK(refusal(request).empty());
  request.control.required = {{5, 6}, {}};
  CHECK_THAT(refusal(request), StartsWith("required: a phrase is empty"));
  for (const int64_t token : {int64_t{40}, int64_t{-1}, Vocabulary::padding, Vocabulary::begin, Vocabulary::end}) {
    request.control.required = {{5, token}};
    CHECK_THAT(refusal(request), StartsWith("required: "));
  }
  request.control.required = {{5, 6}};
  request.control.other_spellings = {{0, {7}}, {0, {8, 9}}};
  CHECK(refusal(request).empty());
  for (const auto& other : {OtherSpelling{0, {7, 8, 9}}, {1, {7}}, {0, {}}, {0, {40}}}) {
    request.control.other_spellings = {other};
    CHECK_THAT(refusal(request), StartsWith("required: "));
  }
  request.control.other_spellings.clear();
  request.control.required = {{5}};
  request.settings.search = Search::sampling;
  CHECK_THAT(refusal(request), StartsWith("decoding.search"));
  request.settings = {};
  request.settings.beam_groups = 2;
  CHECK_THAT(refusal(request), StartsWith("decoding.beam_groups"));
  request = {.source = {5, 2}};
  request.control.bias = {{5, std::nan("")}};
  CHECK_THAT(refusal(request), StartsWith("bias"));
}

}  // namespace transformer::test
