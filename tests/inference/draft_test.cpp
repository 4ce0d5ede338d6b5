#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "error_of.h"
#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/draft_pace.h"
#include "transformer/inference/engine.h"
#include "transformer/inference/output_prefix.h"
#include "transformer/inference/translator.h"

using namespace transformer;
using namespace transformer::test;
using Ids = std::vector<int64_t>;
using Models = std::shared_ptr<const InferenceModel>;

namespace {

Models packed(const ModelSettings& settings, uint64_t seed, Precision precision = Precision::float32) {
  const auto model = tiny_transformer(settings, seed);
  return std::make_shared<InferenceModel>(settings, stored_weights(weights_of(*model)), precision, "");
}

ModelSettings smaller() {
  auto settings = tiny_settings(pieces);
  settings.d_model = 8;
  settings.d_ff = 8;
  settings.d_k = settings.d_v = 4;
  settings.encoder_layers = settings.decoder_layers = 1;
  return settings;
}

DecodingSettings greedy(int64_t proposals = 8) {
  DecodingSettings settings;
  settings.beam = 1;
  settings.proposals = proposals;
  return settings;
}

std::vector<DecodingRequest> requests_of(size_t count, unsigned seed, const DecodingSettings& settings,
                                         size_t longest = 12) {
  std::vector<DecodingRequest> requests;
  for (auto& source : random_sentences(count, seed, pieces, longest)) {
    source.push_back(Vocabulary::end);
    requests.push_back({std::move(source), static_cast<int64_t>(10 + requests.size() % 40), settings});
    if (requests.size() % 4 == 0) requests.back().end = SentenceSearch::no_end;  // other drafts end at once
  }
  return requests;
}

std::vector<std::vector<Hypothesis>> plain(const Models& model, const std::vector<DecodingRequest>& requests) {
  Engine engine(model, {.batch_sentences = 7});
  return decode_all(engine, requests);
}

/// Decodes with a draft in batches of several sizes, and compares. Returns what became of the last one's proposals.
Engine::Drafted check_draft(const Models& model, const Models& draft, const std::vector<DecodingRequest>& requests) {
  const auto expected = plain(model, requests);
  Engine::Drafted drafted;
  for (const Engine::Options& options :
       {Engine::Options{.batch_sentences = 16, .draft = draft},
        Engine::Options{
            .threads = 2, .batch_sentences = 3, .cache_bytes = 20'000, .draft = draft, .adapt_proposals = false},
        Engine::Options{.batch_sentences = 1, .draft = draft, .adapt_proposals = false}}) {
    Engine engine(model, options);
    check_same(decode_all(engine, requests), expected);
    drafted = engine.drafted();
  }
  return drafted;
}

}  // namespace

TEST_CASE("with a draft of any quality and size, outputs and scores are those without, to the last bit") {
  const auto precision = GENERATE(Precision::float32, Precision::bf16, Precision::int8);
  const auto model = packed(tiny_settings(pieces), 4, precision);
  const auto requests = requests_of(40, 7, greedy(GENERATE(1, 3, 8)));
  const auto itself = check_draft(model, model, requests);
  // It says at once what the model says later.
  CHECK(itself.proposed > 100);
  CHECK(itself.accepted == itself.proposed);
  const auto other = check_draft(model, packed(tiny_settings(pieces), 5, precision), requests);
  CHECK(other.proposed > 0);
  CHECK(other.accepted < other.proposed);
  const auto small = check_draft(model, packed(smaller(), 6), requests);
  CHECK(small.proposed > 0);
  CHECK(small.steps > itself.steps);
}

TEST_CASE("a draft changes nothing in any variation of the model") {
  using S = ModelSettings;
  const std::vector<std::function<void(S&)>> variations = {
      [](S& s) { s.attention_window = 4; },
      [](S& s) { s.decoder_self_attention = S::DecoderSelfAttention::ssru; },
      [](S& s) { s.normalization = S::Normalization::pre; },
      [](S& s) { s.positions = S::Positions::learned, s.max_positions = 64; },
      [](S& s) { s.compatibility = S::Compatibility::additive; },
      [](S& s) { s.feed_forward = S::FeedForward::attention_over_parameters; },
  };
  for (size_t i = 0; i < variations.size(); ++i) {
    CAPTURE(i);
    auto settings = tiny_settings(pieces);
    variations[i](settings);
    const auto model = packed(settings, 4);
    const auto requests = requests_of(20, 3, greedy());
    const auto itself = check_draft(model, model, requests);
    CHECK(itself.accepted == itself.proposed);
    check_draft(model, packed(settings, 9), requests);
  }
}

TEST_CASE("long outputs behind a window are guessed and taken back") {
  auto settings = tiny_settings(pieces);
  settings.attention_window = 6;
  settings.decoder_self_attention =
      GENERATE(ModelSettings::DecoderSelfAttention::attention, ModelSettings::DecoderSelfAttention::ssru);
  const auto model = packed(settings, 4);
  std::vector<DecodingRequest> requests;
  for (const int64_t piece : {5, 6, 7}) {
    requests.push_back({{piece, 9, 2}, 200, greedy(64), nullptr, SentenceSearch::no_end});
  }
  for (const uint64_t seed : {4, 5}) {
    auto narrow = settings;
    narrow.attention_window = 2;
    check_draft(model, packed(narrow, seed), requests);
    check_draft(model, packed(settings, seed), requests);
  }
}

TEST_CASE("what settings and wishes ask for is asked of what is guessed, too") {
  const auto model = packed(tiny_settings(pieces), 4), other = packed(smaller(), 6);
  std::mt19937 random(3);
  auto requests = requests_of(60, 5, greedy());
  for (auto& request : requests) {
    auto& settings = request.settings;
    settings.proposals = static_cast<int64_t>(random() % 9);
    settings.min_length = static_cast<int64_t>(random() % 6);
    settings.max_length = random() % 3 == 0 ? settings.min_length + static_cast<int64_t>(random() % 4) : 0;
    settings.no_repeat_ngram = static_cast<int64_t>(random() % 4);
    if (random() % 3 == 0) settings.repetition_penalty = 1.3;
    settings.write_unknown = random() % 2 == 0;
    if (random() % 3 == 0) request.control.bias = {{7, 2.0}, {Vocabulary::end, -1.0}};
    if (random() % 4 == 0) request.control.required = {{7, 8}, {9}};
    if (random() % 2 == 0 && request.control.required.empty()) {
      settings.search = DecodingSettings::Search::sampling;
      settings.temperature = random() % 2 == 0 ? 1 : 0.4;
      settings.top_k = static_cast<int64_t>(random() % 2 * 5);
      settings.seed = static_cast<int64_t>(random() % 5);
    }
    if (random() % 5 == 0) request.max_length = static_cast<int64_t>(random() % 3);
  }
  const auto itself = check_draft(model, model, requests);
  // The draft is searched by each sentence's own rules, and drawn from with the same random numbers.
  CHECK(itself.proposed > 100);
  CHECK(itself.accepted == itself.proposed);
  check_draft(model, other, requests);
}

TEST_CASE("a beginning that is asked for is written before anything is guessed") {
  const auto model = packed(tiny_settings(pieces), 4);
  auto requests = requests_of(20, 5, greedy());
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].constraint = begins_with(Ids(i % 4, static_cast<int64_t>(5 + i)));
  }
  const auto drafted = check_draft(model, model, requests);
  CHECK(drafted.proposed > 0);
  CHECK(drafted.accepted == drafted.proposed);
}

TEST_CASE("what a draft has missed is read some at a time, and nothing is guessed otherwise") {
  auto settings = tiny_settings(pieces);
  settings.attention_window = GENERATE(0, 6);
  const auto model = packed(settings, 4);
  std::vector<DecodingRequest> requests;
  for (const int64_t length : {100, 1, 30, 70, 65}) {
    Ids beginning;
    for (int64_t i = 0; i < length; ++i) beginning.push_back(5 + (i * 7 + length) % (pieces - 5));
    requests.push_back({{5 + length % 30, 9, 2}, length + 20, greedy(), begins_with(std::move(beginning))});
  }
  const auto drafted = check_draft(model, model, requests);
  CHECK(drafted.proposed > 0);
  CHECK(drafted.accepted == drafted.proposed);
}

TEST_CASE("sentences with a draft and with several hypotheses share batches, and progress tells every token once") {
  const auto model = packed(tiny_settings(pieces), 4);
  auto requests = requests_of(60, 11, greedy());
  for (size_t i = 0; i < requests.size(); i += 3) requests[i].settings.beam = 1 + static_cast<int64_t>(i % 5);
  const auto expected = plain(model, requests);
  Engine engine(
      model, {.threads = 2, .batch_sentences = 8, .draft = packed(tiny_settings(pieces), 4), .adapt_proposals = false});
  std::vector<Ids> told(requests.size());
  std::vector<std::vector<Hypothesis>> found(requests.size());
  const auto job = engine.submit(
      requests, [&](size_t index, DecodingResult result) { found[index] = std::move(result.hypotheses); },
      [&](size_t index, std::span<const int64_t> tokens) {
        told[index].insert(told[index].end(), tokens.begin(), tokens.end());
      });
  // Another's job is cancelled beside it.
  const auto cancelled = engine.submit(requests, [](size_t, const DecodingResult&) {});
  engine.cancel(*cancelled);
  engine.wait(*job);
  check_same(found, expected);
  size_t all = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto& tokens = found[i].front().tokens;
    REQUIRE(told[i].size() <= tokens.size());
    CHECK(std::equal(told[i].begin(), told[i].end(), tokens.begin()));
    all += told[i].size();
  }
  CHECK(all > 2 * requests.size());
}

TEST_CASE("a draft whose weights are damaged proposes nothing and harms nobody") {
  const auto settings = tiny_settings(pieces);
  const auto broken = tiny_transformer(settings, 4);
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : broken->named_parameters()) {
      if (parameter.key() == "source_embedding.weight") parameter.value()[7].fill_(3e38);  // its products are infinite
    }
  }
  check_draft(packed(settings, 4), packed_model(broken), requests_of(40, 7, greedy()));
}

TEST_CASE("a draft that does not go with the model is refused") {
  const auto model = packed(tiny_settings(pieces), 4);
  const auto refusal = [&](const Models& draft, const Models& of) {
    return error_of([&] { Engine(of, {.draft = draft}); });
  };
  CHECK_THAT(refusal(packed(tiny_settings(pieces + 1), 4), model), Contains("draft") && Contains("vocabulary"));
  auto settings = tiny_settings(pieces);
  settings.positions = ModelSettings::Positions::learned;
  settings.max_positions = 20;
  const auto learned = packed(settings, 4);
  CHECK_THAT(refusal(learned, model), Contains("20 positions"));
  CHECK(refusal(learned, learned).empty());
  CHECK(refusal(model, learned).empty());
  CHECK_THAT(error_of([&] { Engine(Ensemble{.models = {model, model}}, {.draft = model}); }), Contains("one model"));
}

TEST_CASE("settings upon settings leave a translator all that it was given") {
  const TemporaryDirectory directory;
  write_tiny_model(directory.path(), {.beam = 1});
  Translator translator(directory.path());
  translator.set_draft(directory.path(), Translator::OtherSearches::decoded_without_it);
  const auto other = translator.with({.beam = 1, .alpha = 1}).with({.beam = 3}).with({.beam = 4});
  CHECK(other.settings().beam == 4);
  CHECK(other.engine() == translator.engine());
  CHECK(other.translate({"ba do"})[0].size() == 1);
  translator.set_draft(directory.path());
  CHECK_THAT(error_of([&] { (void)translator.with({.beam = 1}).with({.beam = 3}); }), StartsWith("decoding.beam"));
}

TEST_CASE("as much is proposed as pays") {
  // A pass of the model takes `fixed` and `row` for each; one of the draft `draft`.
  struct Machine {
    double fixed, row, draft, right;
  };
  const auto rate = [](const Machine& m, int64_t sentences, int64_t proposals) {
    double tokens = 0;
    for (int64_t i = 0; i <= proposals; ++i) tokens += std::pow(m.right, i);
    const auto count = static_cast<double>(proposals);
    return tokens / (m.fixed + m.row * static_cast<double>(sentences) * (1 + count) + m.draft * count);
  };
  constexpr int64_t most = 12;
  for (const auto& machine : {Machine{10, 0.5, 1, 0.8}, Machine{10, 0.5, 1, 0.3}, Machine{10, 0.1, 0.2, 0.95},
                              Machine{1, 10, 5, 0.9}, Machine{10, 1, 20, 0.7}}) {
    for (const int64_t sentences : {1, 4, 32}) {
      CAPTURE(machine.fixed, machine.row, machine.draft, machine.right, sentences);
      DraftPace pace;
      std::mt19937 random(1);
      std::bernoulli_distribution agrees(machine.right);
      double chosen = 0;
      int64_t counted = 0;
      for (int step = 0; step < 2000; ++step) {
        const int64_t limit = pace.proposals(sentences, 0, most, 0.5);
        REQUIRE((limit >= 0 && limit <= most));
        int64_t count = 0;
        double chance = 1;
        for (bool another = limit > 0; another; another = count < limit && pace.worth_another(chance)) {
          pace.draft().observe(sentences, machine.draft);
          if (!pace.worth_row(chance * pace.chance(0.5))) break;
          chance *= pace.chance(0.5);
          ++count;
        }
        const int64_t rows = sentences * (1 + count);
        pace.model().observe(rows, machine.fixed + machine.row * static_cast<double>(rows));
        for (int64_t i = 0; count > 0 && i < sentences; ++i) {
          int64_t right = 0;
          while (right < count && agrees(random)) ++right;
          pace.observe(std::vector<double>(static_cast<size_t>(count), 0.5), right);
        }
        if (step < 200) continue;
        chosen += rate(machine, sentences, count);
        ++counted;
      }
      double best = 0;
      for (int64_t count = 0; count <= most; ++count) best = std::max(best, rate(machine, sentences, count));
      CHECK(chosen / static_cast<double>(counted) > 0.95 * best);
    }
  }
}

TEST_CASE("what a draft is unsure of is proposed less, as often as it was wrong of it before") {
  DraftPace pace;
  // Sure of every third and always right; else right one time in five.
  for (int step = 0; step < 3000; ++step) {
    const int64_t limit = pace.proposals(1, 0, 8, 0.5);
    pace.model().observe(1 + limit, 10 + 0.5 * static_cast<double>(1 + limit));
    pace.draft().observe(1, 1);
    if (limit == 0) continue;
    const bool sure = step % 3 == 0;
    pace.observe(std::vector{sure ? 0.99 : 0.1}, sure || step % 5 == 0 ? 1 : 0);
  }
  CHECK(pace.chance(0.97) > 0.95);
  CHECK(pace.chance(0.15) < 0.3);
  CHECK(pace.worth_another(pace.chance(0.97)));
  CHECK_FALSE(pace.worth_another(pace.chance(0.15) * pace.chance(0.15)));
}
