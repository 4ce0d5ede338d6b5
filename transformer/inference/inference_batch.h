#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "transformer/inference/beam_search.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/output_constraint.h"

namespace transformer {

class Shortlist;

/// Who attends to what.
enum class AttentionKind {
  encoder,  // the source to itself
  decoder,  // the output to itself
  cross     // the output to the source
};

/// The attention of one query of a sentence: in the encoder or the decoder of itself, or across, of the decoder over
/// the source.
struct WatchedAttention {
  AttentionKind kind;              // which of the three
  int64_t layer;                   // from 0
  int64_t place;                   // of the sentence in the batch
  int64_t query;                   // its position
  int64_t keys;                    // positions that there are to attend to
  std::span<const float> weights;  // [H, keys], 0 outside the window; valid during the call
};

/// Sentences that are being decoded together, of different lengths and at different positions, any of which may leave
/// or come at any step. Nothing is computed for padding, and what a sentence gets does not depend on the others, bit
/// for bit.
///
/// Keys and values stay where they were written, until a window has left them behind, and so do recurrent units' states
/// until the next. A hypothesis is a list of pointers to its ancestors' keys and values, so that following other
/// parents moves pointers alone.
class InferenceBatch {
 public:
  /// The model must outlive the batch.
  explicit InferenceBatch(const InferenceModel& model);
  ~InferenceBatch();
  InferenceBatch(InferenceBatch&&) noexcept;
  InferenceBatch& operator=(InferenceBatch&&) noexcept;

  /// A sentence to be decoded.
  struct Source {
    std::span<const int64_t> pieces;                               // and the end
    int64_t beam = 1;                                              // hypotheses at most, 1 or more
    std::shared_ptr<const OutputConstraint> constraint = nullptr;  // what the output may be; null: anything
    std::vector<int32_t> candidates = {};  // what it is written in, ascending, each once; empty: all
  };
  /// Encodes sources and projects their keys and values. Returns each one's place in the batch: 0, 1, ... where none
  /// has left it. Throws std::invalid_argument for no hypothesis and for candidates in another order, and
  /// std::out_of_range for those that no output holds, before any is added.
  std::vector<int64_t> add(std::span<const Source> sources);
  /// The sentence is done; its place goes to another.
  void remove(int64_t place);
  /// All are.
  void clear();

  /// A hypothesis to be continued.
  struct Row {
    int64_t place;       // of its sentence
    int64_t parent;      // among the sentence's rows of the step before; 0 in its first
    int64_t token;       // the newest
    bool whole = false;  // all that may follow is wanted: see `step`
    /// A guess of what continues the row before, and read in the same step, a position further. The sentence has one
    /// hypothesis then, and is `free`; its parent means nothing.
    bool follows = false;
    bool attention = false;  // to its source is wanted, too, of all rows of the sentence or of none
  };
  /// What sentences' constraints threw, by their places.
  using Failures = std::map<int64_t, std::exception_ptr>;
  /// Told of all that may follow a row, by its index.
  using WholeRow = std::function<void(size_t row, const RowScores& scores)>;
  /// Advances rows by one token and returns each one's best `width` continuations (fewer where the vocabulary is
  /// smaller), to the last bit the same whichever rows share the step. A sentence's rows are neighbours. Padding and
  /// begin are never proposed, nor what a constraint rules out. With a shortlist, probabilities are shared out among
  /// its candidates alone. Of rows that are wanted whole, `told` is called instead, in order, and their continuations
  /// mean nothing; what it is told of stays until the next step, of a shortlist until the next row. Attention, where it
  /// is wanted, is the last layer's, the mean of its heads.
  /// Where a constraint throws, so does this; with `failures`, it is put there, and what is found for its sentence, of
  /// which nothing else is asked any more, means nothing.
  Continuations step(std::span<const Row> rows, int64_t width, const WholeRow& told = {}, Failures* failures = nullptr);
  /// The most that `take_back` forgets.
  static constexpr int64_t most_taken_back = DecodingSettings::most_proposals;
  /// Forgets the last positions of a sentence with one hypothesis, as if they had never been read: most_taken_back at
  /// most, counted from the furthest that was ever read where a window or recurrent units leave positions behind, and
  /// not all. Throws std::logic_error where they are not there to be forgotten.
  void take_back(int64_t place, int64_t positions);
  /// Whether no constraint of the sentence's has any say from here on.
  bool free(int64_t place) const;
  /// An output that is known, of a sentence that was added and has not been stepped.
  struct Target {
    int64_t place;                  // of its sentence
    std::span<const int64_t> read;  // by the decoder: the begin and pieces; not empty
    std::span<const int64_t> next;  // the tokens that follow, one for each that is read; or none, for `watch` alone
  };
  /// log p of every token that follows, given those before it: to the last bit what steps over the same tokens give,
  /// but computed for all positions at once, as the encoder does. The sentences stay as they were. `entropies`, where
  /// given, gets as many numbers: the entropy, in nats, of the distribution over the whole vocabulary at each position.
  /// Throws Failure where the model gives what is no finite number, as of weights whose products overflow.
  std::vector<std::vector<double>> score(std::span<const Target> targets,
                                         std::vector<std::vector<double>>* entropies = nullptr);

  /// From now on `watcher` is told of every attention that `add` and `score` compute. It slows both down.
  void watch(std::function<void(const WatchedAttention&)> watcher);

  /// Bytes that the sentences' keys and values take.
  int64_t cache_bytes() const;
  /// Bytes of sentences that are gone, kept for others: 8 MiB at most, or a quarter of what is in use.
  int64_t kept_bytes() const;
  /// Gives back what is kept.
  void release();
  /// What a sentence of so many pieces will take, with an output as long.
  static int64_t expected_bytes(const InferenceModel& model, int64_t pieces, int64_t beam);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace transformer
