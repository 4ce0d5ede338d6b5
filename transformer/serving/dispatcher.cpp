#include "transformer/serving/dispatcher.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

namespace transformer {

namespace {

// A sentence of more word pieces is long. Of long ones a worker has at most those of several usual sentences for each
// place in its batch, and in a small batch those of a long one.
constexpr size_t most_pieces_of_place = 128, least_pieces_of_worker = 4096;

/// What a sentence of so many counts for among the long ones.
size_t long_pieces(size_t pieces) {
  return pieces > most_pieces_of_place ? pieces : 0;
}

}  // namespace

class Dispatcher::Ticket {
 private:
  friend class Dispatcher;
  struct Sentence {
    DecodingRequest request;
    size_t pieces;                     // of its source
    std::shared_ptr<Engine::Job> job;  // while the engine has it
    bool settled = false;              // done, or cancelled
  };

  std::string client;
  uint64_t id = 0;
  std::mutex mutex;  // of what follows
  std::vector<Sentence> sentences;
  size_t left = 0;    // that are not settled
  Engine::Done done;  // none: cancelled, or all are settled
  bool cancelled = false;
};

Dispatcher::Dispatcher(std::shared_ptr<Engine> engine, const Limits& limits, std::function<void(size_t)> started)
    : limits_(limits),
      batch_(static_cast<size_t>(engine->options().batch_sentences)),
      // Full batches, and for each worker as many more as it takes up together.
      most_running_(static_cast<size_t>(engine->options().threads) *
                    static_cast<size_t>(engine->options().batch_sentences +
                                        std::max<int64_t>(1, engine->options().batch_sentences / 8))),
      most_pieces_(static_cast<size_t>(engine->options().threads) *
                   std::max(least_pieces_of_worker, batch_ * most_pieces_of_place)),
      started_(std::move(started)),
      queue_(limits.waiting, limits.waiting_of_client),
      engine_(std::move(engine)) {
  if (limits_.batch_wait > 0) {
    releaser_ = std::jthread([this](const std::stop_token& stop) { release_held(stop); });
  }
}

std::shared_ptr<Dispatcher::Ticket> Dispatcher::submit(const std::string& client, std::vector<DecodingRequest> requests,
                                                       Engine::Done done) {
  const auto ticket = std::make_shared<Ticket>();
  ticket->client = client;
  ticket->done = std::move(done);
  ticket->left = requests.size();
  std::vector<Waiting> waiting;
  for (size_t i = 0; i < requests.size(); ++i) {
    const size_t pieces = requests[i].source.size();
    ticket->sentences.push_back({std::move(requests[i]), pieces, nullptr, false});
    waiting.push_back({ticket, i});
  }
  {
    const std::lock_guard lock(mutex_);
    const bool is_first = queue_.empty();
    ticket->id = ++tickets_;
    queue_.push(client, ticket->id, std::move(waiting));
    if (limits_.batch_wait > 0 && is_first) {
      begin_ =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits_.batch_wait));
      something_waits_.notify_one();
    }
  }
  pump();
  return ticket;
}

void Dispatcher::pump() {
  while (true) {
    std::optional<Waiting> next;
    size_t running = 0;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty() || running_ >= most_running_) return;
      if (held()) {
        // It may have been waiting for room before, and then nobody looks after it.
        something_waits_.notify_one();
        return;
      }
      // A long one waits for other long ones, and is overtaken by all that are not.
      next = queue_.pop_first([&](const Waiting& one) {
        return long_pieces_ < most_pieces_ || long_pieces(one.ticket->sentences[one.index].pieces) == 0;
      });
      if (!next) return;
      running = ++running_;
      long_pieces_ += long_pieces(next->ticket->sentences[next->index].pieces);
    }
    if (started_) started_(running);
    hand_over(*next);
  }
}

/// Whether what waits is still to wait for company. Called with the mutex.
bool Dispatcher::held() const {
  return limits_.batch_wait > 0 && !draining_ && running_ == 0 && queue_.size() < batch_ && Clock::now() < begin_;
}

void Dispatcher::release_held(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    something_waits_.wait(lock, stop, [&] { return !queue_.empty() && held(); });
    const auto until = begin_;
    // Whatever comes meanwhile needs no earlier look: it begins where it is pushed.
    something_waits_.wait_until(lock, stop, until, [] { return false; });
    lock.unlock();
    pump();
    lock.lock();
  }
}

void Dispatcher::hand_over(const Waiting& next) {
  const auto& [ticket, index] = next;
  std::exception_ptr refused;
  try {
    const std::lock_guard lock(ticket->mutex);
    auto& sentence = ticket->sentences[index];
    if (ticket->cancelled) {
      sentence.settled = true;
      count_settled(1, long_pieces(sentence.pieces));
      return;
    }
    std::vector<DecodingRequest> one;
    one.push_back(std::move(sentence.request));
    // The engine's callback needs the ticket's mutex, and so finds the job stored.
    sentence.job =
        engine_->submit(std::move(one), [this, ticket = ticket, index = index](size_t, DecodingResult result) {
          if (const auto done = settle(*ticket, index)) done(index, std::move(result));
          pump();
        });
  } catch (...) {
    refused = std::current_exception();
  }
  if (!refused) return;
  if (const auto done = settle(*ticket, index, /*decoded=*/0)) done(index, {.hypotheses = {}, .error = refused});
}

/// The sentence is done. Returns who is to be told, or nobody where it was cancelled.
Engine::Done Dispatcher::settle(Ticket& ticket, size_t index, size_t decoded) {
  std::shared_ptr<Engine::Job> job;  // goes after the locks
  Engine::Done done;
  {
    const std::lock_guard lock(ticket.mutex);
    auto& sentence = ticket.sentences[index];
    if (std::exchange(sentence.settled, true)) return {};
    job = std::move(sentence.job);
    done = ticket.done;
    if (--ticket.left == 0) ticket.done = nullptr;  // what it holds holds the ticket
  }
  count_settled(1, long_pieces(ticket.sentences[index].pieces), decoded);
  return done;
}

/// So many sentences are no longer the engine's, nor the pieces of the long ones among them; `done` were decoded.
void Dispatcher::count_settled(size_t sentences, size_t pieces, size_t done) {
  const std::lock_guard lock(mutex_);
  if (done > 0) queue_.count_done(done);
  running_ -= sentences;
  long_pieces_ -= pieces;
}

void Dispatcher::cancel(Ticket& ticket) {
  {
    const std::lock_guard lock(mutex_);
    queue_.erase(ticket.client, ticket.id);
  }
  std::vector<std::shared_ptr<Engine::Job>> jobs;
  Engine::Done done;  // what it holds goes after the lock
  size_t pieces = 0;
  {
    const std::lock_guard lock(ticket.mutex);
    ticket.cancelled = true;
    done = std::move(ticket.done);
    ticket.done = nullptr;
    for (auto& sentence : ticket.sentences) {
      if (!sentence.job || std::exchange(sentence.settled, true)) continue;
      jobs.push_back(std::move(sentence.job));
      pieces += long_pieces(sentence.pieces);
    }
  }
  for (const auto& job : jobs) engine_->cancel(*job);
  if (jobs.empty()) return;
  count_settled(jobs.size(), pieces);
  pump();
}

void Dispatcher::drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  pump();
}

size_t Dispatcher::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

size_t Dispatcher::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

}  // namespace transformer
