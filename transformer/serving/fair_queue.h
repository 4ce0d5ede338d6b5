#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace transformer {

/// What an item counts for, where each counts alike.
struct One {
  template <class Item>
  size_t operator()(const Item&) const {  ///< One.
    return 1;
  }
};

/// What waits for a server's workers, given out in turns: to clients, and to each client's requests in their turn, so
/// that nobody who asks for little waits for somebody who asks for much. A request's items keep their order. Each
/// counts for as much as `Size` says.
template <class Item, class Size = One>
class FairQueue {
 public:
  /// `request` must be none that waits already.
  void push(const std::string& client, uint64_t request, std::vector<Item> items) {
    if (items.empty()) return;
    auto [found, is_new] = clients_.try_emplace(client);
    if (is_new) found->second.turn = turns_.insert(turns_.end(), client);
    const size_t size = size_of_all(items);
    found->second.size += size;
    size_ += size;
    found->second.requests.push_back(
        {request, {std::make_move_iterator(items.begin()), std::make_move_iterator(items.end())}});
  }

  /// The next item; there must be one.
  Item pop() {
    return *pop_first([](const Item&) { return true; });
  }
  /// The next item of those that `may` go now; none: all have to wait. It takes its client's turn, and its request's;
  /// what it overtakes keeps its own.
  template <class May>
  std::optional<Item> pop_first(const May& may) {
    for (const auto& name : turns_) {
      const auto found = clients_.find(name);
      auto& requests = found->second.requests;
      const auto request =
          std::find_if(requests.begin(), requests.end(), [&](const Request& one) { return may(one.items.front()); });
      if (request != requests.end()) return pop(found, request);
    }
    return {};
  }

  /// Forgets what waits of a request; returns what its items count for.
  size_t erase(const std::string& client_name, uint64_t request) {
    const auto found = clients_.find(client_name);
    if (found == clients_.end()) return 0;
    auto& client = found->second;
    const auto one = std::find_if(client.requests.begin(), client.requests.end(),
                                  [&](const Request& waiting) { return waiting.id == request; });
    if (one == client.requests.end()) return 0;
    const size_t size = size_of_all(one->items);
    client.requests.erase(one);
    client.size -= size;
    size_ -= size;
    if (client.requests.empty()) {
      turns_.erase(client.turn);
      clients_.erase(found);
    }
    return size;
  }

  /// What the items of all clients count for.
  size_t size() const { return size_; }
  /// Whether nothing waits.
  bool empty() const { return clients_.empty(); }
  /// The same of one client; 0 of one who is not known.
  size_t size_of(const std::string& client) const {
    const auto found = clients_.find(client);
    return found == clients_.end() ? 0 : found->second.size;
  }

 private:
  template <class Items>
  static size_t size_of_all(const Items& items) {
    size_t size = 0;
    for (const auto& item : items) size += Size()(item);
    return size;
  }

  struct Request {
    uint64_t id;
    std::deque<Item> items;
  };
  struct Client {
    std::deque<Request> requests;  // whose turn it is first
    size_t size = 0;
    std::list<std::string>::iterator turn;
  };

  using Clients = std::unordered_map<std::string, Client>;

  Item pop(typename Clients::iterator found, typename std::deque<Request>::iterator place) {
    auto& client = found->second;
    auto request = std::move(*place);
    client.requests.erase(place);
    Item item = std::move(request.items.front());
    request.items.pop_front();
    if (!request.items.empty()) client.requests.push_back(std::move(request));
    const size_t size = Size()(item);
    client.size -= size;
    size_ -= size;
    if (client.requests.empty()) {
      turns_.erase(client.turn);
      clients_.erase(found);
    } else {
      turns_.splice(turns_.end(), turns_, client.turn);
    }
    return item;
  }

  Clients clients_;
  std::list<std::string> turns_;  // of clients that wait
  size_t size_ = 0;
};

}  // namespace transformer
