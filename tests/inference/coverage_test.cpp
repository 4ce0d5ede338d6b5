#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>

#include "error_of.h"
#include "inference/table_model.h"
#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/inference/attention_maps.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/engine.h"
#include "transformer/inference/inference_batch.h"
#include "transformer/inference/output_prefix.h"
#include "transformer/inference/translator.h"

namespace transformer::test {

namespace {

using Penalty = DecodingSettings::LengthPenalty;
using Stop = DecodingSettings::Stop;

struct Covered {
  Tokens tokens;
  double log_probability, score;
  bool finished = true;
};

/// Equation 14's second term of what a sentence's positions have received.
double coverage_by_formula(const std::vector<double>& received, double beta) {
  double sum = 0;
  for (const double each : received) sum += std::log(each < 1e-10 ? 1e-10 : each > 1 ? 1 : each);
  return beta * sum;
}

double score_by_formula(double log_probability, size_t length, const std::vector<double>& received,
                        const DecodingSettings& settings) {
  const auto tokens = static_cast<double>(std::max<size_t>(length, 1));
  const double penalty = settings.length_penalty == Penalty::gnmt
                             ? std::pow(5 + tokens, settings.alpha) / std::pow(6, settings.alpha)
                             : std::pow(tokens, settings.alpha);
  return log_probability / penalty + coverage_by_formula(received, settings.coverage_penalty);
}

void sort_by_score(std::vector<Covered>& all) {
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
}

/// How the position behind each prefix attends to a source of `positions`: drawn from the seed, the whole history and
/// nothing else, some of it 0.
struct AttentionTable {
  uint64_t seed;
  size_t positions;

  std::vector<float> row(const Tokens& prefix) const {
    uint64_t hash = seed * 0x9E3779B97F4A7C15u + 7;
    for (const int64_t token : prefix) hash = (hash ^ static_cast<uint64_t>(token + 1)) * 0xD6E8FEB86659FD93u;
    std::mt19937_64 random(hash);
    std::normal_distribution<double> normal(0, 3);
    std::vector<double> weights(positions);
    double sum = 0;
    for (double& weight : weights) {
      weight = std::exp(normal(random));
      if (weight < 0.3) weight = 0;
      sum += weight;
    }
    std::vector<float> row;
    for (const double weight : weights) row.push_back(static_cast<float>(sum > 0 ? weight / sum : 0));
    return row;
  }

  /// What the source's positions receive of an output of `tokens`, and of its end where it is finished.
  std::vector<double> received(const Tokens& tokens, bool finished) const {
    std::vector<double> sums(positions);
    for (size_t length = 0; length < tokens.size() + (finished ? 1 : 0); ++length) {
      const auto weights = row({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length)});
      for (size_t i = 0; i < positions; ++i) sums[i] += static_cast<double>(weights[i]);
    }
    return sums;
  }
};

/// The step function of tables of tokens and of attention, a pair a sentence.
class AttendedSteps {
 public:
  AttendedSteps(const std::vector<RandomTable*>& tables, std::vector<AttentionTable> attention)
      : steps_(tables), attention_(std::move(attention)) {}

  StepFunction function() {
    return [this, inner = steps_.function()](std::span<const int64_t> tokens, std::span<const int64_t> parents,
                                             int64_t width) {
      std::vector<std::pair<size_t, Tokens>> rows;
      for (size_t i = 0; i < tokens.size(); ++i) {
        const auto parent = static_cast<size_t>(parents[i]);
        rows.push_back(rows_.empty() ? std::pair{parent, Tokens{}} : rows_.at(parent));
        if (!rows_.empty()) rows.back().second.push_back(tokens[i]);
      }
      rows_ = rows;
      auto found = inner(tokens, parents, width);
      for (const auto& [sentence, prefix] : rows) found.attention.push_back(attention_[sentence].row(prefix));
      return found;
    };
  }

 private:
  TableSteps steps_;
  std::vector<AttentionTable> attention_;
  std::vector<std::pair<size_t, Tokens>> rows_;
};

std::vector<Hypothesis> search(RandomTable& table, const AttentionTable& attention, const DecodingRequest& request) {
  AttendedSteps steps({&table}, {attention});
  return beam_search(steps.function(), std::vector<DecodingRequest>{request}, begin).at(0);
}

DecodingRequest plain_request(int64_t max_length, const DecodingSettings& settings) {
  return {.source = {7, 5, 2}, .max_length = max_length, .settings = settings.validated(), .end = end};
}

/// Every output of at most so many tokens, best first.
std::vector<Covered> exhaustive(RandomTable& table, const AttentionTable& attention, int64_t max_length,
                                const DecodingSettings& settings) {
  std::vector<Covered> all;
  const auto visit = [&](auto&& self, Tokens& prefix, double log_probability) -> void {
    const auto row = table.row(prefix);
    const double ended = log_probability + row[end];
    all.push_back(
        {prefix, ended, score_by_formula(ended, prefix.size() + 1, attention.received(prefix, true), settings)});
    if (std::ssize(prefix) == max_length) return;
    for (int64_t token = 0; token < table.vocabulary(); ++token) {
      if (token == end) continue;
      prefix.push_back(token);
      self(self, prefix, log_probability + row[static_cast<size_t>(token)]);
      prefix.pop_back();
    }
  };
  Tokens prefix;
  visit(visit, prefix, 0);
  sort_by_score(all);
  return all;
}

/// Beam search that never stops early, and ranks what has ended at the very end.
std::vector<Covered> plain_beam_search(RandomTable& table, const AttentionTable& attention, int64_t max_length,
                                       const DecodingSettings& settings) {
  struct Prefix {
    Tokens tokens;
    double log_probability;
  };
  std::vector<Prefix> live = {{{}, 0}};
  std::vector<Covered> finished, cut;
  for (int64_t length = 0; length <= max_length; ++length) {
    std::vector<Prefix> candidates;
    for (const auto& prefix : live) {
      const auto row = table.row(prefix.tokens);
      for (size_t token = 0; token < row.size(); ++token) {
        candidates.push_back({prefix.tokens, prefix.log_probability + row[token]});
        candidates.back().tokens.push_back(static_cast<int64_t>(token));
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
    std::vector<Prefix> next;
    for (size_t rank = 0; rank < candidates.size(); ++rank) {
      auto& [tokens, log_probability] = candidates[rank];
      if (tokens.back() != end) {
        if (std::ssize(next) < settings.beam) next.push_back(candidates[rank]);
      } else if (static_cast<int64_t>(rank) < settings.beam) {
        tokens.pop_back();
        finished.push_back(
            {tokens, log_probability,
             score_by_formula(log_probability, tokens.size() + 1, attention.received(tokens, true), settings)});
      }
    }
    if (length == max_length) {
      for (const auto& [tokens, log_probability] : live) {
        const auto& given = tokens;
        if (std::any_of(finished.begin(), finished.end(), [&](const auto& one) { return one.tokens == given; })) {
          continue;
        }
        cut.push_back({tokens, log_probability,
                       score_by_formula(log_probability, tokens.size(), attention.received(tokens, false), settings),
                       false});
      }
    }
    live = std::move(next);
  }
  sort_by_score(finished);
  sort_by_score(cut);
  finished.insert(finished.end(), cut.begin(), cut.end());
  return finished;
}

/// Requests of many kinds of search, every other with a coverage penalty.
std::vector<DecodingRequest> covered_requests(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<DecodingRequest> requests;
  for (auto& source : random_sentences(count, seed, pieces)) {
    source.push_back(Vocabulary::end);
    DecodingSettings settings;
    settings.beam = 1 + static_cast<int64_t>(random() % 6);
    settings.n_best = 1 + static_cast<int64_t>(random() % static_cast<size_t>(settings.beam));
    settings.alpha = static_cast<double>(random() % 3) / 2;
    settings.stop = random() % 2 == 0 ? Stop::exact : Stop::beam_finished;
    settings.no_repeat_ngram = static_cast<int64_t>(random() % 3);
    const auto longest = static_cast<int64_t>(source.size() + random() % 8);
    DecodingRequest request{source, longest, settings};
    const auto kind = random() % 4;
    if (kind == 0 && settings.beam % 2 == 0) request.settings.beam_groups = 2;
    if (kind == 1) request.control.required = {{7, 8}, {9}};
    if (kind == 2) request.constraint = begins_with_told(11, nullptr);
    if (requests.size() % 2 == 0) request.settings.coverage_penalty = 0.1 * static_cast<double>(1 + random() % 9);
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Every output of at most `longest` tokens of an ensemble, by its members' modules.
std::vector<Covered> by_modules(const std::vector<std::pair<Transformer, double>>& members, const Tokens& source,
                                int64_t longest, const DecodingSettings& settings) {
  torch::NoGradGuard no_grad;
  std::vector<Covered> all;
  std::vector<Tokens> outputs = {{}};
  for (int64_t length = 0; length <= longest; ++length) {
    const auto count = std::ssize(outputs);
    std::vector<int64_t> ids;
    for (const auto& output : outputs) {
      ids.push_back(Vocabulary::begin);
      ids.insert(ids.end(), output.begin(), output.end());
    }
    const auto target = torch::tensor(ids).view({count, length + 1});
    const auto read = torch::tensor(source).unsqueeze(0).expand({count, -1}).contiguous();
    torch::Tensor probabilities, received;
    for (auto [model, weight] : members) {
      const auto own = weight * model->forward(read, target).softmax(-1);                             // [N, T, V]
      const auto attention = model->decode(target, model->encode(read), true).memory_weights.back();  // [N, H, T, S]
      const auto sums = weight * attention.mean(1).sum(1);                                            // [N, S]
      probabilities = probabilities.defined() ? probabilities + own : own;
      received = received.defined() ? received + sums : sums;
    }
    const auto logs = probabilities.log().to(torch::kDouble).contiguous();
    const auto sums = received.to(torch::kDouble).contiguous();
    std::vector<Tokens> longer;
    for (int64_t i = 0; i < count; ++i) {
      const auto& output = outputs[static_cast<size_t>(i)];
      double log_probability = logs[i][length][Vocabulary::end].item<double>();
      for (int64_t k = 0; k < length; ++k) {
        log_probability += logs[i][k][output[static_cast<size_t>(k)]].item<double>();
      }
      const auto* first = sums[i].const_data_ptr<double>();
      all.push_back(
          {output, log_probability,
           score_by_formula(log_probability, output.size() + 1, {first, first + std::ssize(source)}, settings)});
      for (int64_t token = Vocabulary::end + 1; token < probabilities.size(-1); ++token) {
        longer.push_back(output);
        longer.back().push_back(token);
      }
    }
    outputs = std::move(longer);
  }
  sort_by_score(all);
  return all;
}

/// The best of them are found.
void check_best(const std::vector<Hypothesis>& found, const std::vector<Covered>& expected) {
  std::map<Tokens, double> scores;
  for (const auto& each : expected) scores[each.tokens] = each.score;
  REQUIRE(!found.empty());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(i);
    CHECK(found[i].finished);
    CHECK(found[i].score == Approx(expected[i].score).epsilon(1e-4));
    CHECK(found[i].score == Approx(scores.at(found[i].tokens)).epsilon(1e-4));
  }
}

}  // namespace

TEST_CASE("the coverage penalty follows its formula, and is a number whatever was received") {
  CHECK(coverage_penalty(std::array{0.5F, 0.25F, 1.0F, 3.0F}, 0.4) == Approx(0.4 * (std::log(0.5) + std::log(0.25))));
  CHECK(coverage_penalty(std::array{1.0F, 7.5F}, 2) == 0);
  CHECK(coverage_penalty({}, 2) == 0);
  const double least = std::log(1e-10);
  CHECK(coverage_penalty(std::array{0.0F, 1e-30F}, 1) == Approx(2 * least));
  CHECK(coverage_penalty(std::array{std::nanf(""), -1.0F}, 1) == Approx(2 * least));
}

TEST_CASE("a beam as wide as the space finds the outputs that cover their source best") {
  int different = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO(seed);
    RandomTable table(seed + 9000, 4);
    const AttentionTable attention{seed, 1 + seed % 5};
    const DecodingSettings settings{.beam = 500,
                                    .alpha = seed % 3 == 0 ? 0.0 : 0.6,
                                    .length_penalty = seed % 2 == 0 ? Penalty::gnmt : Penalty::power,
                                    .coverage_penalty = std::array{0.05, 0.2, 1.0, 5.0}[seed % 4],
                                    .n_best = 6};
    const auto found = search(table, attention, plain_request(4, settings));
    const auto expected = exhaustive(table, attention, 4, settings);
    REQUIRE(found.size() == 6);
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].tokens == expected[i].tokens);
      CHECK(found[i].log_probability == Approx(expected[i].log_probability));
      CHECK(found[i].score == Approx(expected[i].score).epsilon(1e-6));
    }
    auto without = settings;
    without.coverage_penalty = 0;
    if (search(table, attention, plain_request(4, without)).front().tokens != found.front().tokens) ++different;
  }
  CHECK(different > 10);
}

TEST_CASE("a narrow beam ranks what it finds by coverage, too, and exact stopping changes nothing") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO(seed);
    RandomTable table(seed + 9100, 6);
    const AttentionTable attention{seed, 1 + seed % 6};
    DecodingSettings settings{.beam = 2 + static_cast<int64_t>(seed % 4), .coverage_penalty = seed % 2 == 0 ? 0.3 : 2};
    settings.n_best = settings.beam;
    const auto found = search(table, attention, plain_request(6, settings));
    const auto expected = plain_beam_search(table, attention, 6, settings);
    REQUIRE(found.size() == std::min(expected.size(), static_cast<size_t>(settings.n_best)));
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].tokens == expected[i].tokens);
      CHECK(found[i].finished == expected[i].finished);
      CHECK(found[i].score == Approx(expected[i].score).epsilon(1e-6));
    }
  }
}

TEST_CASE("whatever else is asked for, each hypothesis has the coverage of its own tokens") {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    INFO(seed);
    RandomTable table(seed + 9200, 6);
    const AttentionTable attention{seed, 3};
    DecodingSettings settings{.beam = 4, .coverage_penalty = 0.5, .n_best = 4};
    settings.min_length = static_cast<int64_t>(seed % 3);
    settings.no_repeat_ngram = seed % 5 == 0 ? 2 : 0;
    settings.stop = seed % 2 == 0 ? Stop::exact : Stop::beam_finished;
    if (seed % 4 == 1) settings.beam_groups = 2;
    if (seed % 7 == 3) settings.beam = settings.n_best = 1, settings.beam_groups = 1;
    auto request = plain_request(static_cast<int64_t>(seed % 8), settings);
    if (seed % 4 == 2) request.control.required = {{2, 3}, {4}};
    if (seed % 4 == 3) request.end = SentenceSearch::no_end;
    for (const auto& hypothesis : search(table, attention, request)) {
      const auto received = attention.received(hypothesis.tokens, hypothesis.finished);
      const size_t length = hypothesis.tokens.size() + (hypothesis.finished ? 1 : 0);
      CHECK(hypothesis.score ==
            Approx(score_by_formula(hypothesis.log_probability, length, received, settings)).epsilon(1e-6));
    }
  }
}

TEST_CASE("sentences with a coverage penalty and without share a search, and attention that nobody wants is not read") {
  RandomTable a(1, 5), b(2, 5);
  const AttentionTable short_one{3, 2}, long_one{4, 6};
  const auto covered = plain_request(5, {.beam = 3, .coverage_penalty = 0.7, .n_best = 3});
  const auto plain = plain_request(5, {.beam = 3, .n_best = 3});
  AttendedSteps steps({&a, &b}, {short_one, long_one});
  const auto found = beam_search(steps.function(), std::vector<DecodingRequest>{covered, plain}, begin);
  check_same(found.at(0), search(a, short_one, covered));
  TableSteps bare({&b});
  check_same(found.at(1), beam_search(bare.function(), std::vector<DecodingRequest>{plain}, begin).at(0));
  TableSteps silent({&a});
  CHECK_THROWS_AS(beam_search(silent.function(), std::vector<DecodingRequest>{covered}, begin), std::logic_error);
}

TEST_CASE("packed weights rank by the coverage that the modules' attention has, by trying every output") {
  auto settings = tiny_settings(8);
  const auto variant = GENERATE(0, 1, 2, 3);
  if (variant == 1) settings.decoder_layers = 1, settings.heads = 4;
  if (variant == 2) settings.attention_window = 2, settings.normalization = ModelSettings::Normalization::pre;
  if (variant == 3) settings.compatibility = ModelSettings::Compatibility::additive;
  auto model = tiny_transformer(settings, 4);
  const auto packed = packed_model(model);
  model->to(torch::kDouble);
  for (const auto& source : {Tokens{5, 2}, Tokens{7, 4, 4, 6, 5, 2}}) {
    const DecodingSettings decoding{.beam = 1000, .coverage_penalty = 0.8, .n_best = 8};
    Engine engine(packed);
    check_best(decode_all(engine, {{source, 3, decoding}}).front(), by_modules({{model, 1}}, source, 3, decoding));
  }
}

TEST_CASE("an ensemble's attention is the mean of its members', by their weights") {
  auto a = tiny_transformer(tiny_settings(8), 4), b = tiny_transformer(tiny_settings(8), 5);
  Engine engine(Ensemble{.models = {packed_model(a), packed_model(b)}, .weights = {3, 1}}, {});
  a->to(torch::kDouble);
  b->to(torch::kDouble);
  const Tokens source = {7, 4, 6, 2};
  const DecodingSettings decoding{.beam = 1000, .coverage_penalty = 0.8, .n_best = 8};
  check_best(decode_all(engine, {{source, 3, decoding}}).front(),
             by_modules({{a, 0.75}, {b, 0.25}}, source, 3, decoding));
}

TEST_CASE("coverage penalties in any batch are those alone, bit for bit, and those of a forced pass") {
  const auto transformer = tiny_transformer(tiny_settings(pieces), 4);
  const auto requests = covered_requests(40, 7);
  for (const auto precision : {Precision::float32, Precision::int8}) {
    const auto model = std::make_shared<const InferenceModel>(transformer->settings(),
                                                              stored_weights(weights_of(*transformer)), precision, "");
    std::vector<std::vector<Hypothesis>> expected;
    for (const auto& request : requests) {
      Engine engine(model);
      expected.push_back(decode_all(engine, {request}).front());
    }
    for (const Engine::Options& options :
         {Engine::Options{.threads = 3, .batch_sentences = 5}, Engine::Options{.threads = 1, .batch_sentences = 64},
          Engine::Options{.threads = 2, .batch_sentences = 64, .cache_bytes = 100}}) {
      Engine engine(model, options);
      CAPTURE(options.threads, options.batch_sentences, options.cache_bytes);
      const auto found = decode_all(engine, requests);
      check_same(found, expected);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto& request = requests[i];
      const Tokens source(request.source.begin(), request.source.end() - 1);
      for (const auto& hypothesis : expected[i]) {
        auto map = cross_attention(*model, {source}, {hypothesis.tokens}, 1).front();
        const size_t length = hypothesis.tokens.size() + (hypothesis.finished ? 1 : 0);
        std::vector<double> received(request.source.size());
        for (int64_t head = 0; head < map.heads; ++head) {
          for (size_t query = 0; query < length; ++query) {
            const auto row = map.row(0, head, static_cast<int64_t>(query));
            for (size_t k = 0; k < row.size(); ++k) {
              received[k] += static_cast<double>(row[k]) / static_cast<double>(map.heads);
            }
          }
        }
        CHECK(hypothesis.score ==
              Approx(score_by_formula(hypothesis.log_probability, length, received, request.settings)).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("a step tells attention of those rows alone that want it, and the rest is the same to the bit") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  const Tokens first = {5, 9, 30, 2}, second = {8, 2};
  const auto stepped = [&](bool wanted) {
    InferenceBatch batch(*model);
    const std::vector<InferenceBatch::Source> sources = {{.pieces = first, .beam = 5}, {.pieces = second, .beam = 5}};
    batch.add(sources);
    std::vector<InferenceBatch::Row> rows = {{0, 0, Vocabulary::begin}, {1, 0, Vocabulary::begin}};
    rows[1].attention = wanted;
    (void)batch.step(rows, 5);
    rows.clear();
    for (const int64_t place : {0, 1}) {
      for (int64_t token = 10; token < 15; ++token) {
        rows.push_back({.place = place, .parent = 0, .token = token, .attention = wanted && place == 1});
      }
    }
    return batch.step(rows, 5);
  };
  const auto plain = stepped(false), told = stepped(true);
  CHECK(plain.attention.empty());
  CHECK(told.tokens == plain.tokens);
  CHECK(told.log_probabilities == plain.log_probabilities);
  REQUIRE(told.attention.size() == 10);
  for (size_t row = 0; row < 10; ++row) {
    REQUIRE(told.attention[row].size() == (row < 5 ? 0 : second.size()));
    if (row < 5) continue;
    double sum = 0;
    for (const float weight : told.attention[row]) sum += static_cast<double>(weight);
    CHECK(sum == Approx(1));
  }
}

TEST_CASE("coverage penalties that have no place are refused by name") {
  const auto problem = [](const DecodingSettings& settings) { return error_of([&] { settings.validated(); }); };
  CHECK(problem({.coverage_penalty = 0.2}).empty());
  for (const double wrong : {-0.1, 2e3, std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK_THAT(problem({.coverage_penalty = wrong}), StartsWith("decoding.coverage_penalty"));
  }
  CHECK_THAT(problem({.coverage_penalty = 0.2, .search = DecodingSettings::Search::sampling}),
             StartsWith("decoding.coverage_penalty") && Contains("sampling"));

  const TemporaryDirectory directory;
  write_tiny_model(directory.path(), {.beam = 1});
  Translator translator(directory.path());
  translator.set_draft(directory.path());
  const DecodingSettings covered{.beam = 1, .coverage_penalty = 0.2};
  for (const auto& refused :
       {error_of([&] { translator.set(covered); }), error_of([&] { translator.with(covered); })}) {
    CHECK_THAT(refused, StartsWith("decoding.coverage_penalty") && Contains("draft"));
  }
  Translator undrafted(directory.path());
  undrafted.set(covered);
  CHECK_THAT(error_of([&] { undrafted.set_draft(directory.path()); }), StartsWith("decoding.coverage_penalty"));

  const auto modules = module_translator(load_transformer(directory.path()), translator.vocabularies(), covered);
  for (const auto& refused :
       {error_of([&] { modules.translate({"ba do"}); }), error_of([&] { (void)modules.with(covered); })}) {
    CHECK_THAT(refused, StartsWith("decoding.coverage_penalty") && Contains("CPU"));
  }

  // Where requests come with settings of their own, those with one go without proposals.
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  Engine plain(model), drafted(model, {.threads = 1, .draft = model});
  const std::vector<DecodingRequest> requests = {{{5, 9, 2}, 8, covered}};
  check_same(decode_all(drafted, requests).front(), decode_all(plain, requests).front());
  CHECK(drafted.drafted().steps == 0);
}

}  // namespace transformer::test
