#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transformer/inference/beam_search.h"
#include "transformer/inference/decoding_request.h"
#include "transformer/inference/draft_pace.h"
#include "transformer/inference/inference_batch.h"

namespace transformer {

class InferenceModel;

/// A small model that runs ahead of the searches for sentences' outputs and guesses what they will choose (Leviathan,
/// Kalman and Matias 2023; Chen et al. 2023): it is searched by each sentence's own rules, with the same random numbers
/// where these are sampled. For sentences with one hypothesis. What it keeps of them follows the tokens that it is
/// given: guesses that were wrong are forgotten, and what it has missed is read.
class DraftBatch {
 public:
  /// The model and `pace` must outlive the batch. `pace` is told what passes take, and says when to stop.
  DraftBatch(const InferenceModel& model, DraftPace& pace);

  /// Encodes the sources of requests, which are not asked for their constraints. Returns each one's place.
  std::vector<int64_t> add(std::span<const DecodingRequest* const> requests);
  /// The sentence is done; its place goes to another.
  void remove(int64_t place);
  /// All are.
  void clear();

  /// What is asked for one sentence, and the outcome.
  struct Guess {
    int64_t place;              // that `add` returned
    SentenceSearch search;      // as far as it is; it runs ahead
    std::vector<int64_t> read;  // what a step of the model would have read then: the begin and all tokens
    int64_t most;               // proposals, InferenceBatch::most_taken_back at most
    // The outcome: what comes next, as far as guessed, and no end; and how probable the draft finds each.
    std::vector<int64_t> proposals{};
    std::vector<double> probabilities{};  // of each proposal, by the draft
    double chance = 1;                    // that all of them are right
  };
  /// Guesses for all at once. A draft that gives a NaN proposes nothing from there on.
  void propose(std::span<Guess> guesses);

  /// Bytes that keys and values take.
  int64_t cache_bytes() const { return batch_.cache_bytes(); }
  /// Gives back what is kept of sentences that are gone.
  void release() { batch_.release(); }

 private:
  struct Unread {
    Guess* guess;
    std::vector<int64_t> tokens;
  };
  /// Reads all but the last of each one's tokens, some at a time.
  void read_ahead(std::span<Unread> unread);

  InferenceBatch batch_;
  DraftPace& pace_;
  std::vector<std::vector<int64_t>> read_;  // of the sentence in each place
};

}  // namespace transformer
