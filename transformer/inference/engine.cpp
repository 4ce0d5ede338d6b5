#include "transformer/inference/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "transformer/base/memory.h"
#include "transformer/inference/ensemble_batch.h"
#include "transformer/inference/inference_batch.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

class Engine::Job {
 public:
  Job(std::vector<DecodingRequest> requests, Done done, Progress progress)
      : requests_(std::move(requests)),
        done_(std::move(done)),
        progress_(std::move(progress)),
        told_(progress_ ? requests_.size() : 0),
        left_(requests_.size()) {}

  const DecodingRequest& request(size_t index) const { return requests_[index]; }
  bool cancelled() const { return cancelled_; }

  /// Tells whoever wants to know how far a sentence is. One that was put back and begins anew is told of from where it
  /// was.
  void tell(size_t index, const SentenceSearch& search) {
    if (!progress_) return;
    const auto certain = search.certain();
    auto& told = told_[index];
    if (certain.size() <= told) return;
    const auto tokens = std::span(certain).subspan(std::exchange(told, certain.size()));
    const std::lock_guard telling(telling_);
    if (!cancelled_) progress_(index, tokens);
  }

 private:
  friend class Engine;
  std::vector<DecodingRequest> requests_;
  Done done_;
  Progress progress_;
  std::vector<size_t> told_;  // tokens of each sentence, where there is `progress_`; of the worker that has it
  std::atomic<bool> cancelled_ = false;
  std::recursive_mutex telling_;  // while `done_` or `progress_` is called
  size_t left_;                   // sentences that are neither done nor cancelled; guarded by the engine's mutex
};

namespace {

struct Waiting {
  std::shared_ptr<Engine::Job> job;
  size_t index;
};

}  // namespace

struct Engine::Implementation {
  Implementation(const Ensemble& given, const Options& wanted);

  class Worker;

  /// The sentence is done: tells of it, unless its job was cancelled meanwhile.
  void finish(Job& job, size_t index, DecodingResult result) {
    {
      const std::lock_guard telling(job.telling_);
      if (!job.cancelled_) job.done_(index, std::move(result));
    }
    const std::lock_guard lock(mutex);
    if (--job.left_ == 0) all_done.notify_all();
  }

  const Ensemble ensemble;
  Options options;

  std::atomic<int64_t> cache_used = 0;  // by all workers' sentences

  std::mutex mutex;  // of what follows
  std::condition_variable something_waits, all_done;
  std::deque<Waiting> waiting;
  size_t active = 0;  // sentences that workers are at
  bool stopped = false;

  std::vector<std::jthread> workers;  // last: they must end before what they use goes
};

class Engine::Implementation::Worker {
 public:
  explicit Worker(Implementation& engine) : engine_(engine), batch_(engine.ensemble) {}

  void run() {
    while (take_waiting()) {
      try {
        drop_cancelled();
        if (!active_.empty()) step();
        make_room();
      } catch (...) {
        // Nothing says whose fault it is, so that all who are in the batch are told.
        fail(std::current_exception());
      }
    }
  }

 private:
  struct Active {
    std::shared_ptr<Job> job;
    size_t index;
    int64_t place;  // in the batch
    SentenceSearch search;
  };

  /// Takes up sentences where there is room. False: the engine ends.
  bool take_waiting() {
    std::vector<Waiting> taken;
    {
      std::unique_lock lock(engine_.mutex);
      if (active_.empty()) {
        engine_.something_waits.wait(lock, [&] { return engine_.stopped || !engine_.waiting.empty(); });
      }
      if (engine_.stopped) return false;
      const auto most = static_cast<size_t>(engine_.options.batch_sentences);
      // Sentences are encoded several at a time, where that can be had without starving the batch.
      if (active_.size() + std::max<size_t>(1, most / 8) > most && !active_.empty()) return true;
      // A few sentences are shared out among all workers.
      const auto threads = static_cast<size_t>(engine_.options.threads);
      const size_t share = (engine_.waiting.size() + engine_.active + threads - 1) / threads;
      const size_t wanted = std::min(most, std::max<size_t>(share, 1));
      int64_t bytes = 0;
      while (!engine_.waiting.empty() && active_.size() + taken.size() < wanted) {
        const auto& request = engine_.waiting.front().job->request(engine_.waiting.front().index);
        bytes += EnsembleBatch::expected_bytes(engine_.ensemble, static_cast<int64_t>(request.source.size()),
                                               request.settings.hypotheses());
        const bool fits = engine_.cache_used + bytes <= engine_.options.cache_bytes;
        if (!fits && active_.size() + taken.size() > 0) break;
        taken.push_back(std::move(engine_.waiting.front()));
        engine_.waiting.pop_front();
      }
      engine_.active += taken.size();
    }
    if (!taken.empty()) begin(taken);
    return true;
  }

  void begin(const std::vector<Waiting>& taken) {
    std::vector<InferenceBatch::Source> sources;
    for (const auto& [job, index] : taken) {
      const auto& request = job->request(index);
      sources.push_back({request.source, request.settings.hypotheses(), request.constraint, request.shortlist.get()});
    }
    try {
      const auto places = batch_.add(sources);
      for (size_t i = 0; i < taken.size(); ++i) {
        const auto& request = taken[i].job->request(taken[i].index);
        active_.push_back({taken[i].job, taken[i].index, places[i], SentenceSearch(request)});
      }
      list_rows();
      count_cache();
    } catch (...) {
      for (const auto& [job, index] : taken) leave(*job, index, {.hypotheses = {}, .error = std::current_exception()});
      fail(std::current_exception());  // what the batch was left in is not known
    }
  }

  void step() {
    int64_t width = 1;
    for (const auto& sentence : active_) {
      if (!sentence.search.wants_whole_rows()) width = std::max(width, sentence.search.width());
    }
    const auto continuations = batch_.step(rows_, width, [this](size_t row, const RowScores& scores) {
      const auto& [sentence, live] = whole_rows_[row];
      active_[sentence].search.take_row(live, scores);
    });
    int64_t first_row = 0;
    std::erase_if(active_, [&](Active& sentence) {
      const auto rows = static_cast<int64_t>(sentence.search.live().size());
      DecodingResult result;
      bool done = true;
      try {
        done = sentence.search.advance(continuations, first_row);
        if (!done) sentence.job->tell(sentence.index, sentence.search);
        if (done) result.hypotheses = sentence.search.take_result();
      } catch (...) {
        result.error = std::current_exception();
      }
      first_row += rows;
      if (done) {
        batch_.remove(sentence.place);
        leave(*sentence.job, sentence.index, std::move(result));
      }
      return done;
    });
    list_rows();
    count_cache();
  }

  void drop_cancelled() {
    const auto dropped = std::erase_if(active_, [&](const Active& sentence) {
      if (!sentence.job->cancelled()) return false;
      batch_.remove(sentence.place);
      leave(*sentence.job, sentence.index, {});
      return true;
    });
    if (dropped > 0) list_rows();
  }

  /// Puts sentences that came last back while keys and values take more than they may.
  void make_room() {
    bool any = false;
    while (engine_.cache_used > engine_.options.cache_bytes && active_.size() > 1) {
      const auto& last = active_.back();
      batch_.remove(last.place);
      {
        const std::lock_guard lock(engine_.mutex);
        engine_.waiting.push_front({last.job, last.index});
        --engine_.active;
      }
      active_.pop_back();
      batch_.release();
      count_cache();
      any = true;
    }
    if (any) list_rows();
  }

  void list_rows() {
    rows_.clear();
    whole_rows_.clear();
    for (size_t i = 0; i < active_.size(); ++i) {
      const auto& sentence = active_[i];
      const bool whole = sentence.search.wants_whole_rows();
      const auto& all = sentence.search.live();
      for (size_t k = 0; k < all.size(); ++k) {
        const auto& live = all[k];
        if (whole) {
          whole_rows_.resize(rows_.size() + 1);
          whole_rows_.back() = {i, k};
        }
        rows_.push_back({sentence.place, live.parent, live.node < 0 ? Vocabulary::begin : live.token, whole});
      }
    }
  }

  void count_cache() {
    const int64_t now = batch_.cache_bytes();
    engine_.cache_used += now - counted_;
    counted_ = now;
  }

  void leave(Job& job, size_t index, DecodingResult result) {
    {
      const std::lock_guard lock(engine_.mutex);
      --engine_.active;
    }
    engine_.finish(job, index, std::move(result));
  }

  void fail(const std::exception_ptr& error) {
    for (const auto& sentence : active_) leave(*sentence.job, sentence.index, {.hypotheses = {}, .error = error});
    active_.clear();
    rows_.clear();
    batch_.clear();
    count_cache();
  }

  Implementation& engine_;
  EnsembleBatch batch_;
  std::vector<Active> active_;             // in the order of their coming
  std::vector<InferenceBatch::Row> rows_;  // of the next step, in the order of `active_`
  /// Of rows that are wanted whole: whose they are among `active_`, and which of its hypotheses.
  std::vector<std::pair<size_t, size_t>> whole_rows_;
  int64_t counted_ = 0;  // of the engine's `cache_used`
};

Engine::Implementation::Implementation(const Ensemble& given, const Options& wanted)
    : ensemble(given.validated()), options(wanted) {
  if (options.threads < 1 || options.batch_sentences < 1 || options.cache_bytes < 0) {
    throw std::invalid_argument("Engine: one worker and one sentence at least");
  }
  if (options.cache_bytes == 0) options.cache_bytes = available_bytes() / 2;
  for (int64_t i = 0; i < options.threads; ++i) workers.emplace_back([this] { Worker(*this).run(); });
}

Engine::Engine(std::shared_ptr<const InferenceModel> model, const Options& options)
    : Engine(Ensemble{.models = {std::move(model)}}, options) {}

Engine::Engine(const Ensemble& ensemble, const Options& options)
    : implementation_(std::make_unique<Implementation>(ensemble, options)) {}

Engine::~Engine() {
  const std::lock_guard lock(implementation_->mutex);
  implementation_->stopped = true;
  implementation_->something_waits.notify_all();
}

const Engine::Options& Engine::options() const {
  return implementation_->options;
}

std::shared_ptr<Engine::Job> Engine::submit(std::vector<DecodingRequest> requests, Done done, Progress progress) {
  // Here, where it harms nobody: sentences of others would share a batch with it.
  for (const auto& request : requests) {
    for (const auto& model : implementation_->ensemble.models) model->check(request.source, request.max_length);
    request.check(implementation_->ensemble.models.front()->projection().outputs());
  }
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // What is left for the end, when workers run out of sentences, is short.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].source.size() > requests[b].source.size(); });
  const auto job = std::make_shared<Job>(std::move(requests), std::move(done), std::move(progress));
  const std::lock_guard lock(implementation_->mutex);
  for (const size_t index : order) implementation_->waiting.push_back({job, index});
  implementation_->something_waits.notify_all();
  return job;
}

void Engine::wait(const Job& job) {
  std::unique_lock lock(implementation_->mutex);
  implementation_->all_done.wait(lock, [&] { return job.left_ == 0; });
}

void Engine::cancel(Job& job) {
  job.cancelled_ = true;
  {
    const std::lock_guard lock(implementation_->mutex);
    job.left_ -=
        std::erase_if(implementation_->waiting, [&](const Waiting& waiting) { return waiting.job.get() == &job; });
    if (job.left_ == 0) implementation_->all_done.notify_all();
  }
  const std::lock_guard telling(job.telling_);  // a call that is under way ends first
}

}  // namespace transformer
