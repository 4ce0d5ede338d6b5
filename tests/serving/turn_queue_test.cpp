#include "transformer/serving/turn_queue.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "catch.h"
#include "few_threads.h"
#include "serving/status_of.h"
#include "transformer/base/error.h"

using namespace transformer;
using transformer::test::status_of;
using transformer::test::with_few_threads;

namespace {

/// Whose first turn waits until it may go.
struct Held {
  std::promise<void> begun, may_go;
  TurnQueue::Turn turn() {
    return {1, [this] {
              begun.set_value();
              may_go.get_future().wait();
            }};
  }
};

}  // namespace

TEST_CASE("one turn is done at a time, clients take theirs, and the pool's other threads stay free") {
  std::string done;  // by one thread at a time
  std::atomic<int> at_once = 0, most = 0;
  const auto turn = [&](char name) -> TurnQueue::Turn {
    return {1, [&, name] {
              most = std::max<int>(most, ++at_once);
              done += name;
              --at_once;
            }};
  };
  Held held;
  {
    std::unique_ptr<TurnQueue> queue;
    TaskPool pool(3);
    queue = std::make_unique<TurnQueue>(pool, 100, 100);
    queue->post("first", "model", {held.turn()});
    held.begun.get_future().wait();
    queue->post("much", "model", {turn('a'), turn('b'), turn('c'), turn('d')});
    queue->post("much", "model", {turn('A'), turn('B')});
    queue->post("little", "model", {turn('1')});
    // The first of them waits, and still the pool does what is posted there.
    std::promise<void> other;
    pool.post([&] { other.set_value(); });
    other.get_future().wait();
    held.may_go.set_value();
  }
  CHECK(most == 1);
  CHECK(done == "a1AbBcd");
}

TEST_CASE("of several threads one client has all but one, and lines that were let in come whatever waits") {
  std::atomic<int> of_much = 0, most = 0;
  std::atomic<bool> are_two = false;
  std::promise<void> may_go, begun, little, end;
  const auto gone = may_go.get_future().share();
  const auto turn = [&]() -> TurnQueue::Turn {
    return {1, [&] {
              const int now = ++of_much;
              if (now > most) most = now;
              if (now == 2 && !are_two.exchange(true)) begun.set_value();
              gone.wait();
              --of_much;
            }};
  };
  std::unique_ptr<TurnQueue> queue;
  TaskPool pool(1, 3);
  queue = std::make_unique<TurnQueue>(pool, 10, 5, 3);
  queue->post("much", "model", {turn(), turn(), turn(), turn(), turn()});
  begun.get_future().wait();
  queue->check("much", 2);
  CHECK(status_of([&] { queue->check("much", 3); }) == 429);
  CHECK(status_of([&] { queue->check("little", 6); }) == 413);
  queue->post_admitted("much", "model", {turn(), turn(), turn(), turn()});
  CHECK(queue->waiting("model") == 7);
  queue->post("little", "model", {{1, [&] { little.set_value(); }}});
  little.get_future().wait();  // while two threads are taken
  may_go.set_value();
  queue->post_admitted("much", "model", {{1, [&] { end.set_value(); }}});
  end.get_future().wait();
  CHECK(most == 2);
}

TEST_CASE("no more lines wait for their turn than may, and what is cancelled waits no more") {
  std::atomic<int> done = 0;
  const auto turns = [&](size_t lines) {
    return std::vector<TurnQueue::Turn>{{lines, [&] { ++done; }}, {1, [&] { ++done; }}};
  };
  Held held;
  {
    std::unique_ptr<TurnQueue> queue;
    TaskPool pool(1);
    queue = std::make_unique<TurnQueue>(pool, 20, 15);
    queue->post("one", "a", {held.turn()});
    held.begun.get_future().wait();
    CHECK(queue->waiting("a") == 0);
    CHECK(status_of([&] { queue->post("one", "a", turns(15)); }) == 413);
    const auto first = queue->post("one", "a", turns(9));
    CHECK(status_of([&] { queue->post("one", "a", turns(5)); }) == 429);   // its own wait
    CHECK(status_of([&] { queue->post("two", "a", turns(10)); }) == 429);  // others' wait
    queue->post("two", "b", turns(9));
    CHECK(queue->waiting("a") == 10);
    CHECK(queue->waiting("b") == 10);
    CHECK(queue->waiting("c") == 0);
    queue->cancel(first);
    queue->cancel(first);
    CHECK(queue->waiting("a") == 0);
    queue->post("one", "a", turns(4));
    CHECK(queue->waiting("a") == 5);
    held.may_go.set_value();
  }
  CHECK(done == 4);
}

TEST_CASE("a pool whose threads cannot all be started says so, and waits for none of them") {
  CHECK(with_few_threads([] {
    try {
      TaskPool pool(500);
    } catch (const Failure& error) {
      return std::string_view(error.what()).find("of 502 could be started") != std::string_view::npos;
    }
    return false;
  }));
}
