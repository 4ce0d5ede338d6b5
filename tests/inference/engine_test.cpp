#include "transformer/inference/engine.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>

#include "error_of.h"
#include "few_threads.h"
#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/shortlist.h"

namespace transformer::test {

namespace {

using Ids = std::vector<int64_t>;

Ids with_end(Ids source) {
  source.push_back(Vocabulary::end);
  return source;
}

/// Requests of every kind of search, over sentences of 1 to `longest` pieces.
std::vector<DecodingRequest> mixed_requests(size_t count, unsigned seed, size_t longest = 12) {
  std::mt19937 random(seed);
  std::vector<DecodingRequest> requests;
  for (auto& source : random_sentences(count, seed, pieces, longest)) {
    DecodingSettings settings;
    settings.beam = 1 + static_cast<int64_t>(random() % 6);
    settings.n_best = 1 + static_cast<int64_t>(random() % static_cast<size_t>(settings.beam));
    settings.alpha = static_cast<double>(random() % 3) / 2;
    settings.stop = random() % 2 == 0 ? DecodingSettings::Stop::exact : DecodingSettings::Stop::beam_finished;
    settings.no_repeat_ngram = static_cast<int64_t>(random() % 4);
    settings.min_length = static_cast<int64_t>(random() % 4);
    if (random() % 3 == 0) settings.repetition_penalty = 1.3;
    if (settings.beam % 2 == 0 && random() % 2 == 0) settings.beam_groups = 2;
    const auto longest_output = static_cast<int64_t>(source.size() + random() % 20);
    DecodingRequest request{with_end(std::move(source)), longest_output, settings};
    if (random() % 5 == 0) {
      request.settings.search = DecodingSettings::Search::sampling;
      request.settings.beam_groups = 1;
      request.settings.top_k = static_cast<int64_t>(random() % 2 * 5);
    } else if (settings.beam_groups == 1 && random() % 3 == 0) {
      request.control.required = {{7, 8}, {9}};
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Hypothesis> alone(const std::shared_ptr<const InferenceModel>& model, const DecodingRequest& request) {
  Engine engine(model);
  return decode_all(engine, {request}).front();
}

}  // namespace

TEST_CASE("searches of every kind share batches, and each finds what it finds alone") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  const auto requests = mixed_requests(60, 7);
  std::vector<std::vector<Hypothesis>> expected;
  for (const auto& request : requests) expected.push_back(alone(model, request));
  // The last budget holds the keys and values of hardly a sentence: all but one a worker are put back and begun anew.
  for (const Engine::Options& options : {Engine::Options{}, Engine::Options{.threads = 3, .batch_sentences = 5},
                                         Engine::Options{.threads = 2, .batch_sentences = 64, .cache_bytes = 100},
                                         Engine::Options{.threads = 1, .batch_sentences = 8, .cache_bytes = 200'000}}) {
    Engine engine(model, options);
    CAPTURE(options.threads, options.batch_sentences, options.cache_bytes);
    const auto found = decode_all(engine, requests);
    REQUIRE(found.size() == expected.size());
    check_same(found, expected);
  }
}

TEST_CASE("any number of callers submit to one engine at once") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  Engine engine(model, {.threads = 2, .batch_sentences = 8});
  constexpr int callers = 8;
  std::vector<std::vector<std::vector<Hypothesis>>> found(callers);
  {
    std::vector<std::jthread> threads;
    for (int caller = 0; caller < callers; ++caller) {
      threads.emplace_back([&, caller] { found[caller] = decode_all(engine, mixed_requests(12, 100 + caller)); });
    }
  }
  for (int caller = 0; caller < callers; ++caller) {
    const auto requests = mixed_requests(12, 100 + caller);
    REQUIRE(found[caller].size() == requests.size());
    for (size_t i = 0; i < requests.size(); ++i) check_same(found[caller][i], alone(model, requests[i]));
  }
}

TEST_CASE("each sentence is told of once, and nothing more after a job is cancelled") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  Engine engine(model, {.threads = 2, .batch_sentences = 4});
  const auto requests = mixed_requests(200, 3);
  std::vector<int> told(requests.size());
  const auto whole = engine.submit(requests, [&](size_t index, const DecodingResult& result) {
    ++told[index];
    CHECK(!result.hypotheses.empty());
  });
  std::atomic<int> of_cancelled = 0;
  const auto cancelled = engine.submit(requests, [&](size_t, const DecodingResult&) { ++of_cancelled; });
  engine.cancel(*cancelled);
  const int at_once = of_cancelled;
  engine.wait(*cancelled);
  engine.wait(*whole);
  CHECK(of_cancelled == at_once);
  CHECK(of_cancelled < static_cast<int>(requests.size()));
  CHECK(told == std::vector<int>(requests.size(), 1));

  // From within, as by one who has heard enough.
  std::shared_ptr<Engine::Job> job;
  std::mutex mutex;
  std::atomic<int> heard = 0;
  {
    const std::lock_guard lock(mutex);
    job = engine.submit(requests, [&](size_t, const DecodingResult&) {
      const std::lock_guard inner(mutex);
      if (++heard == 3) engine.cancel(*job);
    });
  }
  engine.wait(*job);
  CHECK(heard == 3);
  // Others are served as before.
  check_same(decode_all(engine, {requests[0]})[0], alone(model, requests[0]));
}

TEST_CASE("several long sentences are taken up one after the other, while others go on") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  std::mt19937 random(7);
  std::vector<DecodingRequest> requests;
  for (size_t i = 0; i < 4; ++i) {
    Ids source(3000 - 10 * i);  // the longest is taken first
    for (auto& piece : source) piece = 4 + static_cast<int64_t>(random() % (pieces - 4));
    requests.push_back(
        {.source = with_end(std::move(source)), .max_length = 12, .settings = {.beam = 1, .min_length = 10}});
  }
  std::vector<std::vector<Hypothesis>> expected;
  for (const auto& request : requests) expected.push_back(alone(model, request));

  Engine engine(model, {.threads = 1, .batch_sentences = 32});
  std::vector<size_t> told(4);
  size_t first_had = 0;  // tokens, when the last had its first
  std::vector<std::vector<Hypothesis>> found(4);
  const auto job = engine.submit(
      requests, [&](size_t index, DecodingResult result) { found[index] = std::move(result.hypotheses); },
      [&](size_t index, std::span<const int64_t> tokens) {
        told[index] += tokens.size();
        if (index == 3 && first_had == 0) first_had = told[0];
      });
  engine.wait(*job);
  for (size_t i = 0; i < 4; ++i) check_same(found[i], expected[i]);
  CHECK(first_had >= 2);
}

TEST_CASE("an engine that ends leaves what waits, and none waits for it") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  std::atomic<int> told = 0;
  {
    Engine engine(model, {.threads = 2, .batch_sentences = 2});
    engine.submit(mixed_requests(500, 3, 30), [&](size_t, const DecodingResult&) { ++told; });
  }
  const int before = told;
  CHECK(before < 500);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(told == before);
  Engine idle(model);
  CHECK(decode_all(idle, {}).empty());
}

TEST_CASE("what cannot be decoded is refused when it is submitted, and harms nobody in the batch") {
  auto settings = tiny_settings(pieces);
  settings.positions = ModelSettings::Positions::learned;
  settings.max_positions = 20;
  const auto model = packed_model(tiny_transformer(settings, 4));
  Engine engine(model, {.threads = 1, .batch_sentences = 8});
  const auto refusal = [&](DecodingRequest request) {
    return error_of([&] { engine.submit({std::move(request)}, [](size_t, const DecodingResult&) {}); });
  };
  CHECK_THAT(refusal({{}, 3}), Contains("empty"));
  CHECK_THAT(refusal({{5, 40, 2}, 3}), Contains("word piece 40"));
  CHECK_THAT(refusal({Ids(21, 5), 3}), Contains("max_positions"));
  CHECK_THAT(refusal({{5, 2}, 20}), Contains("max_positions"));
  CHECK_THAT(refusal({{5, 2}, std::numeric_limits<int64_t>::max()}), Contains("max_positions"));
  CHECK_THAT(refusal({{5, 2}, -1}), Contains("max_length: is -1"));
  CHECK(refusal({{5, 2}, 19}).empty());
  CHECK_THROWS_AS(Engine(model, {.threads = 0}), std::invalid_argument);
}

namespace {

/// Asks for 5 and, from the second time on, for what it is given.
struct Asking : OutputConstraint {
  explicit Asking(std::vector<Ids> given) : asked(std::move(given)) {}
  Ids allowed() const override { return {5, Vocabulary::end}; }
  std::shared_ptr<const OutputConstraint> after(int64_t) const override { return std::make_shared<Asking>(asked); }
  std::optional<Ids> asked_for() const override {
    return asked[std::min(static_cast<size_t>(times++), asked.size() - 1)];
  }
  std::vector<Ids> asked;
  mutable std::atomic<int> times = 0;
};

}  // namespace

TEST_CASE("a shortlist that does not go with a sentence harms that sentence alone") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  Engine engine(model, {.threads = 1, .batch_sentences = 8});
  const auto list = [](int64_t sources, int64_t targets) {
    return std::make_shared<const Shortlist>(std::vector<int32_t>{5},
                                             std::vector<std::vector<int32_t>>(static_cast<size_t>(sources)), targets);
  };
  const auto refusal = [&](std::shared_ptr<const Shortlist> shortlist, Ids asked) {
    DecodingRequest request{{30, Vocabulary::end}, 3};
    request.shortlist = std::move(shortlist);
    request.constraint = std::make_shared<Asking>(std::vector<Ids>{std::move(asked)});
    return error_of([&] { engine.submit({std::move(request)}, [](size_t, const DecodingResult&) {}); });
  };
  CHECK(refusal(list(pieces, pieces), {5}).empty());
  const DecodingRequest none{{30, Vocabulary::end}, 3, {.beam = 0, .n_best = 0}};
  CHECK_THAT(error_of([&] { engine.submit({none}, [](size_t, const DecodingResult&) {}); }), Contains("0 hypotheses"));
  CHECK_THAT(refusal(list(20, pieces), {5}), StartsWith("shortlist: ") && Contains("piece 30"));
  CHECK_THAT(refusal(list(pieces, pieces + 1), {5}), StartsWith("shortlist: "));
  for (const int64_t token : {int64_t{-1}, Vocabulary::padding, Vocabulary::begin, pieces}) {
    CHECK_THAT(refusal(list(pieces, pieces), {5, token}),
               StartsWith("constraint: ") && Contains(fmt::format("token {} ", token)));
  }

  // One that changes its mind is found out with others in the batch.
  auto requests = mixed_requests(3, 3);
  requests[1] = {{5, Vocabulary::end}, 3};
  requests[1].shortlist = list(pieces, pieces);
  requests[1].constraint = std::make_shared<Asking>(std::vector<Ids>{{5}, {1000}});
  std::vector<DecodingResult> results(requests.size());
  const auto job =
      engine.submit(requests, [&](size_t index, DecodingResult result) { results[index] = std::move(result); });
  engine.wait(*job);
  CHECK(results[1].error);
  for (const size_t innocent : {0, 2}) {
    REQUIRE_FALSE(results[innocent].error);
    check_same(results[innocent].hypotheses, alone(model, requests[innocent]));
  }
}

TEST_CASE("a sentence that cannot be begun is told of once, and harms none of those that are taken up with it") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  Engine engine(model, {.threads = 1, .batch_sentences = 8});
  auto requests = mixed_requests(2, 3);
  requests[0].source = {5, 6, 7, Vocabulary::end};  // the longer one, and so the first
  requests[1] = {{5, Vocabulary::end}, 3};
  requests[1].shortlist =
      std::make_shared<const Shortlist>(std::vector<int32_t>{5}, std::vector<std::vector<int32_t>>(pieces), pieces);
  requests[1].constraint = std::make_shared<Asking>(std::vector<Ids>{{5}, {1000}});
  std::vector<int> told(2);
  std::vector<bool> failed(2);
  const auto job = engine.submit(requests, [&](size_t index, const DecodingResult& result) {
    ++told[index];
    failed[index] = result.error != nullptr;
  });
  engine.wait(*job);
  // Whatever else the worker says of them, it has said before it takes another up.
  check_same(decode_all(engine, {requests[0]})[0], alone(model, requests[0]));
  CHECK(told == std::vector<int>{1, 1});
  CHECK(failed == std::vector<bool>{false, true});
}

namespace {

/// Lets 5 come, and goes wrong at the token `when` in the way `how`.
struct Misbehaving : OutputConstraint {
  enum class How { throws, allows_none, allows_what_is_no_token, has_no_state, does_not_know_whether_it_is_free };
  Misbehaving(How kind, int token) : how(kind), when(token) {}
  Ids allowed() const override {
    if (when > 0 || how == How::has_no_state || how == How::does_not_know_whether_it_is_free) return {5};
    if (how == How::throws) throw std::domain_error("my constraint failed");
    return how == How::allows_none ? Ids{} : Ids{5, 1000};
  }
  bool free() const override {
    if (when == 0 && how == How::does_not_know_whether_it_is_free) throw std::domain_error("who knows");
    return false;
  }
  std::shared_ptr<const OutputConstraint> after(int64_t) const override {
    if (when == 0 && how == How::has_no_state) return nullptr;
    return std::make_shared<Misbehaving>(how, when - 1);
  }
  How how;
  int when;
};

}  // namespace

TEST_CASE("a sentence whose constraint misbehaves fails alone") {
  using How = Misbehaving::How;
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  const auto how = GENERATE(How::throws, How::allows_none, How::allows_what_is_no_token, How::has_no_state,
                            How::does_not_know_whether_it_is_free);
  const auto when = GENERATE(0, 3);
  const bool together = GENERATE(false, true);
  const bool whole = GENERATE(false, true);
  CAPTURE(static_cast<int>(how), when, together, whole);
  const Ensemble ensemble{.models = std::vector(together ? 2 : 1, model)};
  Engine engine(ensemble, {.threads = 1, .batch_sentences = 8, .draft = together ? nullptr : model});
  auto requests = mixed_requests(6, 3);
  for (const size_t wrong : {1, 4}) {
    requests[wrong] = {{5, 9, Vocabulary::end}, 8};
    if (wrong == 4) requests[wrong].settings.beam = requests[wrong].settings.n_best = 1;
    requests[wrong].constraint = std::make_shared<Misbehaving>(how, when);
    if (whole) requests[wrong].settings.repetition_penalty = 1.1;
  }
  std::vector<DecodingResult> results(requests.size());
  std::vector<Ids> written(requests.size());
  const auto job = engine.submit(
      requests, [&](size_t index, DecodingResult result) { results[index] = std::move(result); },
      [&](size_t index, std::span<const int64_t> tokens) {
        written[index].insert(written[index].end(), tokens.begin(), tokens.end());
      });
  engine.wait(*job);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i == 1 || i == 4) {
      CHECK(results[i].error);
      continue;
    }
    REQUIRE_FALSE(results[i].error);
    Engine others(ensemble, {});
    const auto expected = decode_all(others, {requests[i]}).front();
    check_same(results[i].hypotheses, expected);
    REQUIRE(written[i].size() <= expected.front().tokens.size());
    CHECK(std::equal(written[i].begin(), written[i].end(), expected.front().tokens.begin()));
  }
}

TEST_CASE("who is told may be the last that holds the engine") {
  auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  const std::weak_ptr<const InferenceModel> watched = model;
  auto engine = std::make_shared<Engine>(std::move(model), Engine::Options{.threads = 3});
  std::promise<void> told;
  {
    auto& submitted = *engine;
    submitted.submit({DecodingRequest{{5, Vocabulary::end}, 3}},
                     [owner = std::move(engine), &told](size_t, const DecodingResult& result) {
                       if (!result.error) told.set_value();
                     });
  }
  using namespace std::chrono_literals;
  CHECK(told.get_future().wait_for(60s) == std::future_status::ready);
  for (int tries = 0; tries < 6000 && !watched.expired(); ++tries) std::this_thread::sleep_for(10ms);
  CHECK(watched.expired());  // its workers have ended
}

TEST_CASE("a sentence whose scores are not numbers fails alone") {
  // Whatever the target reads after its first token: an embedding that is not finite reaches the sentences that write
  // it.
  auto transformer = tiny_transformer(tiny_settings(pieces), 4);
  const auto healthy = packed_model(transformer);
  {
    torch::NoGradGuard no_grad;
    // Finite, but its products are not.
    for (auto& parameter : transformer->named_parameters()) {
      if (parameter.key() == "source_embedding.weight") parameter.value()[7].fill_(3e38);
    }
  }
  const auto damaged = packed_model(transformer);
  Engine engine(damaged, {.threads = 1, .batch_sentences = 8});
  std::vector<DecodingRequest> requests;
  for (const int64_t piece : {5, 6, 7, 8, 9}) requests.push_back({{piece, 11, 2}, 5});
  std::vector<DecodingResult> results(requests.size());
  const auto job =
      engine.submit(requests, [&](size_t index, DecodingResult result) { results[index] = std::move(result); });
  engine.wait(*job);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].source[0] == 7) {
      REQUIRE(results[i].error);
      CHECK_THROWS_AS(std::rethrow_exception(results[i].error), Failure);
    } else {
      REQUIRE_FALSE(results[i].error);
      check_same(results[i].hypotheses, alone(healthy, requests[i]));
    }
  }
}

TEST_CASE("an engine whose threads cannot all be started says so, and waits for none of them") {
  const auto model = packed_model(tiny_transformer(tiny_settings(pieces), 4));
  CHECK(with_few_threads([&] {
    try {
      Engine engine(model, {.threads = 500, .batch_sentences = 2});
    } catch (const Failure& error) {
      return std::string_view(error.what()).find("of 500 could be started") != std::string_view::npos;
    }
    return false;
  }));
}

}  // namespace transformer::test
