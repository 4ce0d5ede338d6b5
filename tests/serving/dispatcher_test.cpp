#include "transformer/serving/dispatcher.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "serving/status_of.h"
#include "transformer/inference/beam_search.h"
#include "transformer/inference/translator.h"

using namespace transformer;
using transformer::test::status_of;

namespace {

const Translator& shipped_model() {
  static const Translator translator(TRANSFORMER_SOURCE_DIR "/data/model-en-de");
  return translator;
}

/// An engine of the dispatcher's own, which ends with it.
std::shared_ptr<Engine> engine() {
  return std::make_shared<Engine>(shipped_model().packed());
}

std::vector<DecodingRequest> requests(size_t count, const std::string& text = "The weather is nice today.") {
  const auto source = shipped_model().encode({text}).front();
  return std::vector<DecodingRequest>(count, shipped_model().request(source, shipped_model().settings()));
}

/// Counts sentences, and keeps the promise when all are done.
struct Waiter {
  explicit Waiter(size_t wanted) : left(wanted) {}
  Engine::Done done() {
    return [this](size_t, DecodingResult result) {
      if (result.error || result.hypotheses.empty()) failed = true;
      if (--left == 0) all.set_value();
    };
  }
  std::atomic<size_t> left;
  std::atomic<bool> failed = false;
  std::promise<void> all;
};

}  // namespace

TEST_CASE("sentences of several clients are all done, each once") {
  Waiter one(300), two(1);
  Dispatcher dispatcher(engine(), {});
  dispatcher.submit("one", requests(300), one.done());
  dispatcher.submit("two", requests(1), two.done());
  two.all.get_future().wait();
  CHECK(one.left > 0);  // who asks for little does not wait for who asks for much
  one.all.get_future().wait();
  CHECK_FALSE(one.failed);
  CHECK_FALSE(two.failed);
  while (dispatcher.running() > 0) std::this_thread::yield();
  CHECK(dispatcher.waiting() == 0);
}

TEST_CASE("who comes behind long sentences does not wait for all of them") {
  Waiter one(12);
  const auto& translator = shipped_model();
  Dispatcher dispatcher(std::make_shared<Engine>(translator.packed(), Engine::Options{.threads = 1}), {});
  std::vector<DecodingRequest> long_ones = requests(12);
  for (auto& request : long_ones) {
    request.source.insert(request.source.begin(), 1370, request.source.front());
    request.max_length = 1;
  }
  const auto ticket = dispatcher.submit("one", std::move(long_ones), one.done());
  CHECK(dispatcher.running() <= 3);
  std::promise<size_t> left;  // of the long ones, as the short one is done
  dispatcher.submit("two", requests(1),
                    [&](size_t, const DecodingResult& result) { left.set_value(result.error ? 0 : one.left.load()); });
  CHECK(left.get_future().get() > 0);
  dispatcher.cancel(*ticket);
}

TEST_CASE("a sentence as long as can be, and others behind it, hold up nobody with a short one") {
  Waiter one(3);
  const auto& translator = shipped_model();
  Dispatcher dispatcher(std::make_shared<Engine>(translator.packed(), Engine::Options{.threads = 1}), {});
  std::vector<DecodingRequest> long_ones = requests(3);
  for (auto& request : long_ones) {
    request.source.insert(request.source.begin(), 4300, request.source.front());
    request.max_length = 20000;
    request.end = SentenceSearch::no_end;
  }
  const auto ticket = dispatcher.submit("one", std::move(long_ones), one.done());
  CHECK(dispatcher.running() == 1);
  Waiter two(40);
  dispatcher.submit("two", requests(40), two.done());
  two.all.get_future().wait();
  CHECK_FALSE(two.failed);
  CHECK(one.left == 3);
  CHECK(dispatcher.waiting() == 2);
  dispatcher.cancel(*ticket);
}

TEST_CASE("a cancelled request is forgotten, wherever its sentences are") {
  Waiter cancelled(200), other(5);
  Dispatcher dispatcher(engine(), {});
  const auto ticket = dispatcher.submit("one", requests(200), cancelled.done());
  dispatcher.submit("one", requests(5), other.done());
  dispatcher.cancel(*ticket);
  dispatcher.cancel(*ticket);
  other.all.get_future().wait();
  CHECK(cancelled.left > 100);
  while (dispatcher.running() > 0) std::this_thread::yield();
  CHECK(dispatcher.waiting() == 0);
}

TEST_CASE("who waits for room, and then for company, is not forgotten when the others leave") {
  for (int time = 0; time < 5; ++time) {
    Waiter cancelled(200), other(1);
    Dispatcher dispatcher(engine(), {.batch_wait = 0.1});
    const auto ticket = dispatcher.submit("one", requests(200), cancelled.done());
    dispatcher.submit("two", requests(1), other.done());
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * time));
    dispatcher.cancel(*ticket);
    REQUIRE(other.all.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    CHECK_FALSE(other.failed);
  }
}

TEST_CASE("no more sentences wait than may") {
  Waiter two(1);
  Dispatcher dispatcher(engine(), {.waiting = 200, .waiting_of_client = 150});
  const auto ignore = [](size_t, DecodingResult) {};
  const auto first = dispatcher.submit("one", requests(150), ignore);
  CHECK(status_of([&] { dispatcher.submit("one", requests(151), ignore); }) == 413);
  CHECK(status_of([&] { dispatcher.submit("one", requests(140), ignore); }) == 429);  // its own wait
  CHECK(status_of([&] { dispatcher.submit("two", requests(145), ignore); }) == 429);  // others' wait
  dispatcher.submit("two", requests(1), two.done());
  two.all.get_future().wait();
  dispatcher.cancel(*first);
}

TEST_CASE("what an engine refuses is told to who asked for it") {
  auto wrong = requests(2);
  wrong[0].source = {999999, 2};
  std::atomic<int> failed = 0;
  std::atomic<size_t> left = 2;
  std::promise<void> all;
  Dispatcher dispatcher(engine(), {});
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> kept = held;
  const auto ticket = dispatcher.submit("one", std::move(wrong),
                                        [&, held = std::move(held)](size_t index, const DecodingResult& result) {
                                          if (result.error) failed += static_cast<int>(index) + 1;
                                          if (--left == 0) all.set_value();
                                        });
  all.get_future().wait();
  CHECK(failed == 1);
  // What is held for the call goes with the last one, whoever keeps the ticket.
  for (int i = 0; i < 1000 && !kept.expired(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(kept.expired());
}

TEST_CASE("sentences wait for company where that is wanted, and no longer than that") {
  const auto settled = [](const Dispatcher& dispatcher) {
    while (dispatcher.running() > 0) std::this_thread::yield();
  };
  SECTION("alone, until the time is over") {
    Waiter first(1), second(1);
    Dispatcher dispatcher(engine(), {.batch_wait = 0.5});
    const auto start = std::chrono::steady_clock::now();
    for (auto* waiter : {&first, &second}) {
      dispatcher.submit("one", requests(1), waiter->done());
      waiter->all.get_future().wait();
      settled(dispatcher);
    }
    CHECK(std::chrono::steady_clock::now() - start >= std::chrono::seconds(1));
  }
  SECTION("until a batch is full") {
    const auto size = static_cast<size_t>(engine()->options().batch_sentences);
    Waiter some(size - 1), last(1);
    Dispatcher dispatcher(engine(), {.batch_wait = 3600});
    dispatcher.submit("one", requests(size - 1), some.done());
    CHECK(dispatcher.waiting() == size - 1);
    CHECK(dispatcher.running() == 0);
    dispatcher.submit("two", requests(1), last.done());
    last.all.get_future().wait();
    some.all.get_future().wait();
    CHECK(dispatcher.waiting() == 0);
  }
  SECTION("but not where others are under way") {
    const auto size = static_cast<size_t>(engine()->options().batch_sentences);
    Waiter some(size), late(1);
    Dispatcher dispatcher(engine(), {.batch_wait = 3600});
    // The first that is done asks for another, while the rest is under way.
    std::atomic<bool> asked = false;
    const auto done = some.done();
    dispatcher.submit("one", requests(size), [&](size_t index, DecodingResult result) {
      if (!asked.exchange(true)) dispatcher.submit("two", requests(1), late.done());
      done(index, std::move(result));
    });
    some.all.get_future().wait();
    late.all.get_future().wait();
  }
  SECTION("and not where the end has begun") {
    Waiter held(2), late(1);
    Dispatcher dispatcher(engine(), {.batch_wait = 3600});
    dispatcher.submit("one", requests(2), held.done());
    CHECK(dispatcher.waiting() == 2);
    dispatcher.drain();
    REQUIRE(held.all.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    settled(dispatcher);
    dispatcher.submit("one", requests(1), late.done());
    REQUIRE(late.all.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  }
  SECTION("or are cancelled, or never begin") {
    Dispatcher dispatcher(engine(), {.batch_wait = 3600});
    const auto ignore = [](size_t, DecodingResult) {};
    const auto ticket = dispatcher.submit("one", requests(2), ignore);
    dispatcher.cancel(*ticket);
    CHECK(dispatcher.waiting() == 0);
    dispatcher.submit("one", requests(2), ignore);
    CHECK(dispatcher.waiting() == 2);
  }
}
