#include "transformer/inference/continuous_search.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "transformer/inference/inference_batch.h"

namespace transformer {

namespace {

/// What the workers share: which sentences wait, and where results go.
struct Work {
  const InferenceModel& model;
  std::span<const std::vector<int64_t>> sources;
  std::span<const int64_t> max_lengths;
  std::span<const std::shared_ptr<const OutputConstraint>> constraints;
  const DecodingSettings& settings;
  int64_t end;
  size_t batch;        // sentences of a worker
  double cache_bytes;  // of a worker
  std::vector<size_t> order;

  std::mutex mutex;  // of what follows
  size_t next = 0;   // in `order`
  std::exception_ptr error;
  std::atomic<bool> stopped = false;
  std::vector<std::vector<Hypothesis>> results;  // each written by one worker
};

/// Decodes sentences of its own until none waits.
class Worker {
 public:
  explicit Worker(Work& work) : work_(work), batch_(work.model, work.settings.beam) {}

  void run() {
    while (!work_.stopped) {
      // Sentences are encoded several at a time, where that can be had without starving the batch.
      if (active_.size() + std::max<size_t>(1, work_.batch / 8) <= work_.batch) take_waiting();
      if (active_.empty()) return;
      step();
    }
  }

 private:
  struct Active {
    size_t sentence;
    int64_t place;  // in the batch
    double bytes;   // of keys and values, at most
    SentenceSearch search;
  };

  void take_waiting() {
    std::vector<size_t> taken;
    std::vector<double> bytes;
    {
      const std::lock_guard lock(work_.mutex);
      while (work_.next < work_.order.size() && active_.size() + taken.size() < work_.batch) {
        const size_t sentence = work_.order[work_.next];
        const double needed = bytes_of(sentence);
        if (active_.size() + taken.size() > 0 && bytes_ + needed > work_.cache_bytes) break;
        bytes_ += needed;
        bytes.push_back(needed);
        taken.push_back(sentence);
        ++work_.next;
      }
    }
    if (taken.empty()) return;
    std::vector<std::vector<int64_t>> sources;
    std::vector<std::shared_ptr<const OutputConstraint>> constraints;
    for (const size_t sentence : taken) {
      sources.push_back(work_.sources[sentence]);
      if (!work_.constraints.empty()) constraints.push_back(work_.constraints[sentence]);
    }
    const auto places = batch_.add(sources, constraints);
    for (size_t i = 0; i < taken.size(); ++i) {
      active_.push_back(
          {taken[i], places[i], bytes[i], SentenceSearch(work_.max_lengths[taken[i]], work_.settings, work_.end)});
      rows_.push_back({places[i], 0, Vocabulary::begin});
    }
  }

  void step() {
    const auto continuations = batch_.step(rows_, SentenceSearch::width(work_.settings));
    rows_.clear();
    int64_t first_row = 0;
    std::erase_if(active_, [&](Active& active) {
      const auto rows = static_cast<int64_t>(active.search.live().size());
      const bool done = active.search.advance(continuations, first_row);
      first_row += rows;
      if (done) {
        work_.results[active.sentence] = active.search.take_result();
        batch_.remove(active.place);
        bytes_ -= active.bytes;
      } else {
        for (const auto& live : active.search.live()) rows_.push_back({active.place, live.parent, live.token});
      }
      return done;
    });
  }

  double bytes_of(size_t sentence) const {
    const auto longest = static_cast<double>(work_.max_lengths[sentence] + 1);
    const auto tokens =
        static_cast<double>(work_.settings.beam) * longest + static_cast<double>(work_.sources[sentence].size());
    return tokens * static_cast<double>(InferenceBatch::bytes_per_token(work_.model.settings()));
  }

  Work& work_;
  InferenceBatch batch_;
  std::vector<Active> active_;
  std::vector<InferenceBatch::Row> rows_;  // of the next step, in the order of `active_`
  double bytes_ = 0;
};

/// A worker's thread: the first that fails stops all.
void run_worker(Work& work) {
  try {
    Worker(work).run();
  } catch (...) {
    const std::lock_guard lock(work.mutex);
    if (!work.error) work.error = std::current_exception();
    work.stopped = true;
  }
}

}  // namespace

std::vector<std::vector<Hypothesis>> continuous_search(const InferenceModel& model,
                                                       std::span<const std::vector<int64_t>> sources,
                                                       std::span<const int64_t> max_lengths,
                                                       const DecodingSettings& given,
                                                       const ContinuousSearchOptions& options) {
  const auto settings = given.validated();
  const auto workers = std::clamp<size_t>(static_cast<size_t>(options.threads), 1, std::max<size_t>(sources.size(), 1));
  Work work{.model = model,
            .sources = sources,
            .max_lengths = max_lengths,
            .constraints = options.constraints,
            .settings = settings,
            .end = options.end,
            .batch = std::min(static_cast<size_t>(settings.batch_sentences), (sources.size() + workers - 1) / workers),
            .cache_bytes = options.cache_bytes / static_cast<double>(workers),
            .order = std::vector<size_t>(sources.size()),
            .mutex = {},
            .next = 0,
            .error = nullptr,
            .stopped = false,
            .results = {}};
  work.results.resize(sources.size());
  // The longest first: what is left for the end, when threads run out of work, is short.
  std::iota(work.order.begin(), work.order.end(), size_t{0});
  std::stable_sort(work.order.begin(), work.order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });

  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < workers; ++i) threads.emplace_back([&work] { run_worker(work); });
    run_worker(work);
  }
  if (work.error) std::rethrow_exception(work.error);
  return std::move(work.results);
}

}  // namespace transformer
