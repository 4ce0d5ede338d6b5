#include "transformer/inference/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "inference/table_model.h"
#include "support.h"
#include "transformer/base/error.h"

namespace transformer::test {

namespace {

using Penalty = DecodingSettings::LengthPenalty;
using Stop = DecodingSettings::Stop;
constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

std::vector<Hypothesis> search(RandomTable& table, int64_t max_length, const DecodingSettings& options) {
  TableSteps steps({&table});
  return beam_search(steps.function(), Tokens{max_length}, begin, end, options).at(0);
}

double penalty_by_formula(Penalty kind, double length, double alpha) {
  return kind == Penalty::gnmt ? std::pow(5 + length, alpha) / std::pow(6, alpha) : std::pow(length, alpha);
}

/// Every sequence of up to `max_length` tokens and an end, best first.
std::vector<Hypothesis> exhaustive(RandomTable& table, int64_t max_length, const DecodingSettings& options) {
  std::vector<Hypothesis> all;
  const auto visit = [&](auto&& self, Tokens& prefix, double log_probability) -> void {
    const auto row = table.row(prefix);
    const double finished = log_probability + row[end];
    const auto length = static_cast<double>(prefix.size() + 1);
    all.push_back(
        {prefix, finished, finished / penalty_by_formula(options.length_penalty, length, options.alpha), true});
    if (static_cast<int64_t>(prefix.size()) == max_length) return;
    for (int64_t token = 0; token < table.vocabulary(); ++token) {
      if (token == end) continue;
      prefix.push_back(token);
      self(self, prefix, log_probability + row[token]);
      prefix.pop_back();
    }
  };
  Tokens prefix;
  visit(visit, prefix, 0);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  return all;
}

/// Beam search by the letter of its description, on whole prefixes, never stopping early.
std::vector<Hypothesis> plain_beam_search(RandomTable& table, int64_t max_length, const DecodingSettings& options) {
  struct Prefix {
    Tokens tokens;
    double log_probability;
  };
  std::vector<Prefix> live = {{{}, 0}};
  std::vector<Hypothesis> finished, cut;
  const auto score = [&](double log_probability, size_t length) {
    return log_probability /
           penalty_by_formula(options.length_penalty, static_cast<double>(std::max<size_t>(length, 1)), options.alpha);
  };
  for (int64_t length = 0; length <= max_length; ++length) {
    std::vector<Prefix> candidates;
    for (const auto& prefix : live) {
      for (int64_t token = 0; token < table.vocabulary(); ++token) {
        candidates.push_back(prefix);
        candidates.back().tokens.push_back(token);
        candidates.back().log_probability += table.row(prefix.tokens)[token];
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
    std::vector<Prefix> next;
    std::vector<Tokens> ended;
    for (size_t rank = 0; rank < candidates.size(); ++rank) {
      auto candidate = candidates[rank];
      if (candidate.tokens.back() == end) {
        if (static_cast<int64_t>(rank) >= options.beam) continue;
        candidate.tokens.pop_back();
        ended.push_back(candidate.tokens);
        finished.push_back({candidate.tokens, candidate.log_probability,
                            score(candidate.log_probability, candidate.tokens.size() + 1), true});
      } else if (static_cast<int64_t>(next.size()) < options.beam) {
        next.push_back(candidate);
      }
    }
    if (length == max_length) {
      for (const auto& prefix : live) {
        if (std::find(ended.begin(), ended.end(), prefix.tokens) != ended.end()) continue;
        cut.push_back(
            {prefix.tokens, prefix.log_probability, score(prefix.log_probability, prefix.tokens.size()), false});
      }
    }
    live = next;
  }
  const auto better = [](const auto& a, const auto& b) { return a.score > b.score; };
  std::stable_sort(finished.begin(), finished.end(), better);
  std::stable_sort(cut.begin(), cut.end(), better);
  finished.insert(finished.end(), cut.begin(), cut.end());
  if (static_cast<int64_t>(finished.size()) > options.n_best) finished.resize(options.n_best);
  return finished;
}

void check_equal(const std::vector<Hypothesis>& found, const std::vector<Hypothesis>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("hypothesis " << i);
    CHECK(found[i].tokens == expected[i].tokens);
    CHECK(found[i].finished == expected[i].finished);
    CHECK(found[i].log_probability == Approx(expected[i].log_probability).epsilon(1e-12));
    CHECK(found[i].score == Approx(expected[i].score).epsilon(1e-12));
  }
}

/// A step function of fixed rows, whatever the prefix: distributions by position.
StepFunction fixed_rows(std::vector<std::vector<double>> positions) {
  auto step_number = std::make_shared<size_t>(0);
  return [=](std::span<const int64_t> tokens, std::span<const int64_t>, int64_t width) {
    const auto& row = positions[std::min(*step_number, positions.size() - 1)];
    ++*step_number;
    Tokens order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b]; });
    Continuations best;
    best.width = std::min<int64_t>(width, static_cast<int64_t>(row.size()));
    for (size_t i = 0; i < tokens.size(); ++i) {
      for (int64_t k = 0; k < best.width; ++k) {
        best.tokens.push_back(order[k]);
        best.log_probabilities.push_back(row[order[k]]);
      }
    }
    return best;
  };
}

constexpr double some_alphas[] = {-1.0, 0.0, 0.6, 1.0, 2.0};

}  // namespace

TEST_CASE("length penalties follow their formulas") {
  CHECK(length_penalty(Penalty::gnmt, 1, 0.6) == Approx(1));
  CHECK(length_penalty(Penalty::gnmt, 13, 0.6) == Approx(std::pow(3, 0.6)));
  CHECK(length_penalty(Penalty::power, 13, 0.5) == Approx(std::sqrt(13)));
  CHECK(length_penalty(Penalty::power, 7, 0) == 1);
  CHECK(length_penalty(Penalty::gnmt, 7, -1) == Approx(0.5));
}

TEST_CASE("a beam as wide as the space finds exactly the n best of all sequences") {
  for (const auto penalty : {Penalty::gnmt, Penalty::power}) {
    for (const double alpha : some_alphas) {
      for (uint64_t seed = 0; seed < 12; ++seed) {
        const auto vocabulary = static_cast<int64_t>(2 + seed % 3);
        const auto max_length = static_cast<int64_t>(seed % 5);
        RandomTable table(seed, vocabulary);
        DecodingSettings options{.beam = 400, .alpha = alpha, .length_penalty = penalty, .n_best = 7};
        auto expected = exhaustive(table, max_length, options);
        // Where fewer sequences exist than are wanted, nothing was cut, so nothing can fill up.
        if (expected.size() > 7) expected.resize(7);
        INFO("alpha " << alpha << " seed " << seed << " penalty " << static_cast<int>(penalty));
        check_equal(search(table, max_length, options), expected);
      }
    }
  }
}

TEST_CASE("a narrow beam finds what beam search by the letter finds, and exact stopping changes nothing") {
  int64_t spared = 0;
  for (const auto penalty : {Penalty::gnmt, Penalty::power}) {
    for (const double alpha : some_alphas) {
      for (uint64_t seed = 0; seed < 25; ++seed) {
        const auto beam = static_cast<int64_t>(2 + seed % 4);
        RandomTable table(seed + 100, 5, 3);
        const DecodingSettings options{
            .beam = beam, .alpha = alpha, .length_penalty = penalty, .n_best = 1 + static_cast<int64_t>(seed) % beam};
        constexpr int64_t max_length = 12;
        TableSteps steps({&table});
        const auto found = beam_search(steps.function(), Tokens{max_length}, begin, end, options).at(0);
        INFO("alpha " << alpha << " seed " << seed << " beam " << beam << " penalty " << static_cast<int>(penalty));
        check_equal(found, plain_beam_search(table, max_length, options));
        spared += max_length + 1 - steps.steps;
        CHECK(steps.most_rows <= static_cast<size_t>(beam));
      }
    }
  }
  CHECK(spared > 500);  // it does stop early
}

TEST_CASE("no beam finds better than exhaustive search, and scores are those of the table") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RandomTable table(seed + 500, 4);
    for (const int64_t beam : {1, 2, 3, 8}) {
      const DecodingSettings options{.beam = beam, .alpha = 0.6, .n_best = beam};
      const auto all = exhaustive(table, 4, options);
      for (const auto& hypothesis : search(table, 4, options)) {
        if (!hypothesis.finished) continue;
        CHECK(hypothesis.score <= all.front().score + 1e-12);
        double log_probability = 0;
        Tokens prefix;
        for (const int64_t token : hypothesis.tokens) {
          log_probability += table.row(prefix)[token];
          prefix.push_back(token);
        }
        log_probability += table.row(prefix)[end];
        CHECK(hypothesis.log_probability == Approx(log_probability).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("every hypothesis knows the log-probability of each of its tokens, its end's last") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    RandomTable table(seed, 5, 1.0);
    for (const auto& hypothesis : search(table, 4, {.beam = 6, .alpha = seed % 2 ? 0.6 : -3.0, .n_best = 6})) {
      Tokens prefix;
      std::vector<double> expected;
      for (const int64_t token : hypothesis.tokens) {
        expected.push_back(table.row(prefix)[token]);
        prefix.push_back(token);
      }
      if (hypothesis.finished) expected.push_back(table.row(prefix)[end]);
      REQUIRE(hypothesis.token_log_probabilities.size() == expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        CHECK(hypothesis.token_log_probabilities[i] == Approx(expected[i]).margin(1e-12));
      }
    }
  }
  RandomTable endless(3, 5);
  const auto cut = search(endless, 0, {.beam = 1});
  CHECK(cut.front().token_log_probabilities.size() == (cut.front().finished ? 1 : 0));
}

TEST_CASE("beam 1 is the loop of best tokens, under either stopping rule") {
  for (const auto stop : {Stop::exact, Stop::beam_finished}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      RandomTable table(seed + 900, 6);
      constexpr int64_t max_length = 6;
      Hypothesis expected{{}, 0, 0, false};
      while (true) {
        const auto& row = table.row(expected.tokens);
        const auto best = std::max_element(row.begin(), row.end()) - row.begin();
        if (best == end || static_cast<int64_t>(expected.tokens.size()) == max_length) {
          expected.finished = best == end;
          if (expected.finished) expected.log_probability += row[best];
          break;
        }
        expected.log_probability += row[best];
        expected.tokens.push_back(best);
      }
      const auto length = static_cast<double>(expected.tokens.size() + (expected.finished ? 1 : 0));
      expected.score = expected.log_probability / penalty_by_formula(Penalty::gnmt, length, 1.5);
      check_equal(search(table, max_length, {.beam = 1, .alpha = 1.5, .stop = stop}), {expected});
    }
  }
}

TEST_CASE("beam_finished stops with as many finished hypotheses as the beam is wide") {
  // Token 1 and the end share the probability at every step, so each step finishes one hypothesis.
  const std::vector<double> row = {std::log(0.4), std::log(0.6), minus_infinity};
  const DecodingSettings options{.beam = 2, .alpha = 0, .stop = Stop::beam_finished, .n_best = 2};
  const auto found = beam_search(fixed_rows({row}), Tokens{50}, begin, end, options).at(0);
  REQUIRE(found.size() == 2);
  CHECK(found[0].tokens.empty());
  CHECK(found[1].tokens == Tokens{1});
  CHECK(found[1].log_probability == Approx(std::log(0.6 * 0.4)));

  // A large alpha makes the longest best: exact goes on to it, beam_finished does not.
  const DecodingSettings longest{.beam = 2, .alpha = 2, .length_penalty = Penalty::power};
  CHECK(beam_search(fixed_rows({row}), Tokens{9}, begin, end, longest).at(0).at(0).tokens == Tokens(9, 1));
  auto hasty = longest;
  hasty.stop = Stop::beam_finished;
  CHECK(beam_search(fixed_rows({row}), Tokens{9}, begin, end, hasty).at(0).at(0).tokens == Tokens{1});
}

TEST_CASE("an end token finishes a hypothesis only among the best candidates") {
  // The end is third of three; the beam holds two.
  const std::vector<double> first = {std::log(0.1), std::log(0.5), std::log(0.4)};
  const std::vector<double> then = {std::log(0.98), std::log(0.01), std::log(0.01)};
  const DecodingSettings options{.beam = 2, .alpha = 0, .n_best = 2};
  const auto found = beam_search(fixed_rows({first, then}), Tokens{5}, begin, end, options).at(0);
  REQUIRE(found.size() == 2);
  CHECK(found[0].tokens == Tokens{1});
  CHECK(found[1].tokens == Tokens{2});
}

TEST_CASE("batch composition and order change nothing, and sentences that are done leave") {
  std::vector<RandomTable> tables;
  Tokens max_lengths;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    tables.emplace_back(seed + 2000, 5);
    max_lengths.push_back(static_cast<int64_t>(seed % 7));
  }
  const DecodingSettings options{.beam = 3, .n_best = 2};
  std::vector<std::vector<Hypothesis>> alone;
  for (size_t i = 0; i < tables.size(); ++i) alone.push_back(search(tables[i], max_lengths[i], options));

  std::vector<size_t> order(tables.size());
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < 5; ++round) {
    std::vector<RandomTable*> ordered;
    Tokens lengths;
    for (const size_t i : order) {
      ordered.push_back(&tables[i]);
      lengths.push_back(max_lengths[i]);
    }
    TableSteps steps(ordered);
    const auto found = beam_search(steps.function(), lengths, begin, end, options);
    REQUIRE(found.size() == tables.size());
    for (size_t place = 0; place < order.size(); ++place) check_equal(found[place], alone[order[place]]);
    CHECK(steps.row_counts.back() < 3 * tables.size() / 2);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(round)));
  }
}

TEST_CASE("hypotheses cut at the maximum length only fill up") {
  // The end is improbable but possible: with a beam of 2 over three tokens it never is among the best two.
  const std::vector<double> endless = {std::log(0.001), std::log(0.6), std::log(0.399)};
  const auto cut =
      beam_search(fixed_rows({endless}), Tokens{3}, begin, end, {.beam = 2, .alpha = 0, .n_best = 2}).at(0);
  REQUIRE(cut.size() == 2);
  CHECK_FALSE(cut[0].finished);
  CHECK(cut[0].tokens == Tokens{1, 1, 1});
  CHECK(cut[0].log_probability == Approx(3 * std::log(0.6)));

  // One finishes at once, with a score far below that of the others, and still ranks first.
  const std::vector<double> opening = {std::log(0.3), std::log(0.7), minus_infinity};
  const std::vector<double> closed = {minus_infinity, std::log(0.999), std::log(0.001)};
  const auto mixed =
      beam_search(fixed_rows({opening, closed}), Tokens{3}, begin, end, {.beam = 2, .alpha = 0, .n_best = 2}).at(0);
  REQUIRE(mixed.size() == 2);
  CHECK(mixed[0].finished);
  CHECK(mixed[0].tokens.empty());
  CHECK_FALSE(mixed[1].finished);
  CHECK(mixed[1].score > mixed[0].score);
  CHECK(mixed[1].tokens == Tokens{1, 1, 1});
}

TEST_CASE("without an end token every output has the maximum length, and no step looks for an end") {
  for (const int64_t beam : {1, 3}) {
    for (const int64_t length : {0, 1, 4}) {
      const auto search = [&](int64_t ending) {
        RandomTable table(5, 6);
        std::vector<Tokens> live = {{}};
        int64_t steps = 0;
        const auto step = [&](std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width) {
          std::vector<Tokens> next;
          Continuations result{width, {}, {}};
          for (size_t row = 0; row < tokens.size(); ++row) {
            next.push_back(live[steps == 0 ? 0 : parents[row]]);
            if (steps > 0) next.back().push_back(tokens[row]);
            auto logits = table.row(next.back());
            logits[end] = minus_infinity;
            std::vector<int64_t> order(logits.size());
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
            for (int64_t i = 0; i < width; ++i) {
              result.tokens.push_back(order[i]);
              result.log_probabilities.push_back(logits[order[i]]);
            }
          }
          live = next;
          ++steps;
          return result;
        };
        auto found = beam_search(step, Tokens{length}, begin, ending, {.beam = beam, .n_best = beam}).front();
        return std::pair(std::move(found), steps);
      };
      const auto [expected, looked] = search(end);  // which is impossible at every step
      const auto [found, steps] = search(SentenceSearch::no_end);
      CHECK(looked == length + 1);
      CHECK(steps == std::max<int64_t>(length, 1));
      REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i].tokens == expected[i].tokens);
        CHECK(found[i].tokens.size() == static_cast<size_t>(length));
        CHECK(found[i].score == expected[i].score);
        CHECK_FALSE(found[i].finished);
      }
    }
  }
}

TEST_CASE("a maximum length of 0 leaves the empty output") {
  const std::vector<double> row = {std::log(0.1), std::log(0.9)};
  const auto found = beam_search(fixed_rows({row}), Tokens{0, 0}, begin, end, {.beam = 2});
  REQUIRE(found.size() == 2);
  CHECK(found[0].at(0).finished);
  CHECK(found[0].at(0).log_probability == Approx(std::log(0.1)));
  CHECK(beam_search(fixed_rows({row}), Tokens{}, begin, end, {}).empty());
}

TEST_CASE("impossible tokens are never expanded, and a dead end is still an answer") {
  const std::vector<double> only_one = {minus_infinity, 0.0, minus_infinity};
  const std::vector<double> nothing = {minus_infinity, minus_infinity, minus_infinity};
  const auto found = beam_search(fixed_rows({only_one, only_one, nothing}), Tokens{9}, begin, end, {.beam = 3}).at(0);
  REQUIRE(found.size() == 1);
  CHECK(found[0].tokens == Tokens{1, 1});
  CHECK_FALSE(found[0].finished);
}

TEST_CASE("a row of fewer continuations than asked for is filled with impossible ones") {
  std::vector<Continuations::Candidate> candidates = {{-2.0, 7}, {-1.0, 9}, {-0.5, 5}};
  candidates.pop_back();  // what lies behind the last is not one of them
  Continuations continuations{.width = 4, .tokens = {}, .log_probabilities = {}};
  continuations.add_row(std::move(candidates));
  CHECK(std::vector(continuations.tokens.begin(), continuations.tokens.begin() + 2) == Tokens{9, 7});
  CHECK(continuations.tokens.size() == 4);
  CHECK(continuations.log_probabilities == std::vector<double>{-1, -2, minus_infinity, minus_infinity});
  continuations.add_row({{-3.0, 4}, {-1.0, 2}, {-4.0, 6}, {-1.0, 1}, {-2.0, 3}});
  CHECK(std::vector(continuations.tokens.begin() + 4, continuations.tokens.end()) == Tokens{1, 2, 3, 4});
  Continuations endless{.width = std::numeric_limits<int64_t>::max(), .tokens = {}, .log_probabilities = {}};
  CHECK_THROWS_AS(endless.add_row({{-1.0, 1}}), std::invalid_argument);
}

TEST_CASE("ties go to the lower row and token") {
  const double third = std::log(1.0 / 3);
  const auto found =
      beam_search(fixed_rows({{third, third, third}}), Tokens{2}, begin, end, {.beam = 3, .alpha = 0, .n_best = 3})
          .at(0);
  REQUIRE(found.size() == 3);
  CHECK(found[0].tokens.empty());
  CHECK(found[1].tokens == Tokens{1});
  CHECK(found[2].tokens == Tokens{1, 1});
}

TEST_CASE("of two hypotheses with one score the one found first stays before the other") {
  const double half = std::log(0.5);
  for (const int64_t n_best : {1, 2}) {
    const auto found = beam_search(fixed_rows({{minus_infinity, half, half}, {0.0, minus_infinity, minus_infinity}}),
                                   Tokens{5}, begin, end, {.beam = 2, .n_best = n_best})
                           .at(0);
    REQUIRE(static_cast<int64_t>(found.size()) == n_best);
    CHECK(found[0].tokens == Tokens{1});
    if (n_best == 2) CHECK(found[1].tokens == Tokens{2});
  }
}

TEST_CASE("a NaN is a failure of the model") {
  for (const double broken : {std::nan(""), -minus_infinity}) {
    CHECK_THROWS_AS(beam_search(fixed_rows({{0.0, broken, -1.0}}), Tokens{3}, begin, end, {}), Failure);
  }
}

TEST_CASE("options out of range are named") {
  const auto message = [](const DecodingSettings& options) -> std::string {
    try {
      beam_search(fixed_rows({{0.0}}), Tokens{1}, begin, end, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK_THAT(message({.beam = 0}), StartsWith("decoding.beam: 0"));
  CHECK_THAT(message({.beam = -3}), StartsWith("decoding.beam: -3"));
  CHECK_THAT(message({.alpha = std::nan("")}), StartsWith("decoding.alpha: "));
  CHECK_THAT(message({.alpha = -minus_infinity}), StartsWith("decoding.alpha: "));
  CHECK_THAT(message({.max_extra_length = -1}), StartsWith("decoding.max_extra_length: "));
  CHECK_THAT(message({.n_best = 0}), StartsWith("decoding.n_best: "));
  CHECK_THAT(message({.beam = 2, .n_best = 3}), StartsWith("decoding.n_best: 3 best cannot come from a beam of 2"));
  CHECK_THAT(message({.batch_sentences = 0}), StartsWith("decoding.batch_sentences: "));
  CHECK(message({.beam = 1}) == "accepted");
  CHECK_THROWS_AS(beam_search(fixed_rows({{0.0}}), Tokens{-1}, begin, end, {}), Error);
}

TEST_CASE("a step function that breaks its promise is noticed") {
  const StepFunction short_answer = [](std::span<const int64_t>, std::span<const int64_t>, int64_t) {
    return Continuations{2, {0}, {0.0}};
  };
  CHECK_THROWS_AS(beam_search(short_answer, Tokens{1}, begin, end, {}), std::logic_error);
}

}  // namespace transformer::test
