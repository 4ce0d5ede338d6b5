#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transformer/inference/beam_search.h"
#include "transformer/inference/decoding_request.h"
#include "transformer/inference/ensemble.h"

namespace transformer {

/// What became of one: its hypotheses, best first, or why there are none.
struct DecodingResult {
  std::vector<Hypothesis> hypotheses;  // best first; none where there is an error
  std::exception_ptr error;            // null where there are hypotheses
};

/// Decodes with packed weights for any number of callers at once. Long-lived workers each advance a batch of sentences,
/// whoever asked for them and however each is to be searched; where one is done the next takes its place. The result of
/// a sentence is that of `beam_search`, whatever it shares a batch with and however many workers there are.
///
/// A process that fork() makes has no threads of its parent's: the first call there starts workers anew, over the same
/// weights. What its parent submitted is the parent's alone.
class Engine {
 public:
  /// How many workers there are, and what they hold.
  struct Options {
    int64_t threads = 1;           // workers; they share the weights
    int64_t batch_sentences = 32;  // that a worker decodes at once, at most
    /// For the keys and values of all workers' sentences; 0: half of the memory that there is. Where it runs out, a
    /// sentence that came late is put back and decoded anew later: nothing but time is lost. One sentence a worker is
    /// always decoded, whatever it takes. What workers keep for sentences to come (InferenceBatch::kept_bytes) is not
    /// counted.
    int64_t cache_bytes = 0;
    /// A small model of the same vocabularies, which proposes what the model then checks several tokens at a time
    /// (DraftBatch), for sentences with one hypothesis and no coverage penalty whose settings want proposals; null:
    /// none. Results stay the same to the last bit.
    std::shared_ptr<const InferenceModel> draft = nullptr;
    /// Proposals are as many as pay (DraftPace); false: as many as settings want, for tests and measurements.
    bool adapt_proposals = true;
  };

  /// One worker, and otherwise the defaults.
  explicit Engine(std::shared_ptr<const InferenceModel> model) : Engine(std::move(model), Options()) {}
  /// Starts the workers. Throws std::invalid_argument for less than one worker or sentence.
  Engine(std::shared_ptr<const InferenceModel> model, const Options& options);
  /// Several models decode together. Throws what Ensemble::validated does, and Error for a draft of several models, or
  /// one of other vocabularies or with fewer positions than the model.
  Engine(const Ensemble& ensemble, const Options& options);
  /// Ends what is under way as `cancel` does, and waits for the workers; not where a job's `done` or `progress` was the
  /// last to own it, which go on a worker.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// As they were given, with the `cache_bytes` that were found where these are 0.
  const Options& options() const;

  /// What became of proposals since the engine began.
  struct Drafted {
    int64_t steps = 0;     // sentences taken further that might have had proposals
    int64_t proposed = 0;  // tokens
    int64_t accepted = 0;  // of these: each is a token more for its step
  };
  /// Sums over all workers.
  Drafted drafted() const;

  /// Told of each sentence as it is done, by its index among the requests that were submitted together; on a worker's
  /// thread, one call at a time for a job. It must not throw, and should return soon.
  using Done = std::function<void(size_t index, DecodingResult result)>;
  /// Told of the tokens that have become certain since it was told last (SentenceSearch::certain), in the same way: the
  /// first hypothesis begins with all of them. What is left comes with Done.
  using Progress = std::function<void(size_t index, std::span<const int64_t> tokens)>;
  class Job;

  /// Queues sentences behind those that wait already, the longest first. Returns at once. Settings must be validated.
  /// Throws what InferenceModel::check and DecodingRequest::check throw of any of them.
  std::shared_ptr<Job> submit(std::vector<DecodingRequest> requests, Done done, Progress progress = {});
  /// Waits until each of a job's sentences is done or cancelled.
  void wait(const Job& job);
  /// None of a job's sentences is decoded any further. Neither `done` nor `progress` is called again once this
  /// returns.
  void cancel(Job& job);

 private:
  struct Implementation;
  /// That of this process.
  Implementation& here() const;

  mutable std::unique_ptr<Implementation> implementation_;
  mutable std::atomic<int> process_;  // that started the workers
  mutable std::mutex starting_;       // them anew
};

}  // namespace transformer
