#include "transformer/serving/fair_queue.h"

#include <string>

#include "catch.h"

using namespace transformer;

namespace {

std::string drained(FairQueue<char>& queue) {
  std::string order;
  while (!queue.empty()) order += queue.pop();
  return order;
}

}  // namespace

TEST_CASE("clients take turns, and so do each one's requests") {
  FairQueue<char> queue;
  queue.push("much", 1, {'a', 'b', 'c', 'd'});
  queue.push("much", 2, {'A', 'B'});
  queue.push("little", 3, {'1', '2'});
  CHECK(queue.size() == 8);
  CHECK(queue.size_of("much") == 6);
  CHECK(queue.size_of("nobody") == 0);
  CHECK(queue.pop() == 'a');
  queue.push("late", 4, {'x'});
  CHECK(drained(queue) == "1Ax2bBcd");
  CHECK(queue.empty());
  // A request of nothing has no turn.
  queue.push("much", 5, {});
  CHECK(queue.empty());
  queue.push("little", 6, {'z'});
  CHECK(drained(queue) == "z");
}

TEST_CASE("what may not go yet is overtaken, and keeps its turn") {
  FairQueue<char> queue;
  queue.push("one", 1, {'A', 'a'});
  queue.push("one", 2, {'b', 'c'});
  queue.push("two", 3, {'X'});
  queue.push("three", 4, {'y'});
  const auto is_small = [](char item) { return item >= 'a'; };
  CHECK(queue.pop_first(is_small) == 'b');  // of the client whose turn it is, another request
  CHECK(queue.pop_first(is_small) == 'y');
  CHECK(queue.pop_first(is_small) == 'c');
  CHECK_FALSE(queue.pop_first(is_small));  // an item does not overtake its own request's
  CHECK(queue.size() == 3);
  CHECK(drained(queue) == "XAa");
}

TEST_CASE("what waits of a request can be forgotten") {
  FairQueue<char> queue;
  queue.push("one", 1, {'a', 'b'});
  queue.push("one", 2, {'c'});
  queue.push("two", 3, {'x', 'y'});
  CHECK(queue.pop() == 'a');
  CHECK(queue.erase("one", 1) == 1);
  CHECK(queue.erase("one", 1) == 0);
  CHECK(queue.erase("nobody", 1) == 0);
  CHECK(queue.size() == 3);
  CHECK(queue.erase("one", 2) == 1);
  CHECK(queue.size_of("one") == 0);
  CHECK(drained(queue) == "xy");
  queue.push("one", 4, {'a'});
  queue.push("one", 5, {'b', 'c', 'd'});
  CHECK(queue.erase("one", 5) == 3);
  CHECK(queue.size_of("one") == 1);
  CHECK(drained(queue) == "a");
}

TEST_CASE("items of a queue may count for more than one") {
  struct Digit {
    size_t operator()(char item) const { return static_cast<size_t>(item - '0'); }
  };
  FairQueue<char, Digit> queue;
  queue.push("one", 1, {'2', '3'});
  queue.push("one", 2, {'4'});
  queue.push("two", 3, {'5'});
  CHECK(queue.size() == 14);
  CHECK(queue.pop() == '2');
  CHECK(queue.size_of("one") == 7);
  CHECK(queue.erase("one", 1) == 3);
  CHECK(queue.size() == 9);
  CHECK(queue.size_of("one") == 4);
}
