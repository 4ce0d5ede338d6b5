#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transformer/text/corpus.h"
#include "transformer/text/subword_sampling.h"

namespace transformer {

/// Ids in rows of one length.
struct IdMatrix {
  int64_t rows = 0, columns = 0;  // B and its longest length in a batch
  std::vector<int64_t> ids;       // [rows, columns]

  /// Of no rows.
  IdMatrix() = default;
  /// All of them `id`.
  IdMatrix(int64_t rows_, int64_t columns_, int64_t id)
      : rows(rows_), columns(columns_), ids(static_cast<size_t>(rows_ * columns_), id) {}
  /// The ids of a row.
  std::span<const int64_t> row(int64_t index) const {
    return std::span(ids).subspan(static_cast<size_t>(index * columns), static_cast<size_t>(columns));
  }
  bool operator==(const IdMatrix&) const = default;
};

/// Sentence pairs of similar length, padded.
struct Batch {
  IdMatrix source;             // [B, S]: pieces, end, padding
  IdMatrix target_input;       // [B, T]: begin, pieces, padding
  IdMatrix target_output;      // [B, T]: pieces, end, padding
  int64_t source_tokens = 0;   // without padding, ends counted
  int64_t target_tokens = 0;   // the same of the target
  int64_t source_length = 0;   // S
  int64_t target_length = 0;   // T
  std::vector<int64_t> pairs;  // [B] indices into the corpus

  /// False for a batch of another share (Batches::Options::shares): its ids are absent, and its counts those of the
  /// corpus's own pieces.
  bool is_made() const { return !source.ids.empty(); }
};

/// The batches of one epoch over a corpus, each of approximately equal lengths and at most `batch_tokens` source and
/// `batch_tokens` target tokens, padding counted (§5.1). Order and composition depend only on the corpus, seed,
/// weights, batch_tokens, pool_pairs, sampling and epoch.
///
/// An epoch is planned pool by pool, so that memory does not grow with the corpus: its pairs are shared out over pools
/// at random (Mixture), and each pool is sorted into batches of its own. A thread of its own plans, and makes
/// them a few batches ahead.
class Batches {
 public:
  /// How batches are made.
  struct Options {
    int64_t batch_tokens = 25000;  // source and target tokens of a batch, each at most, padding counted
    uint64_t seed = 1;             // of order and composition
    bool shuffle = true;           // false: in order of length (in every pool), for validation
    /// How often an epoch uses each pair of the corpus's files (Mixture); empty: once.
    std::vector<double> weights = {};
    /// Pairs planned at a time, about: 40 MB. More gives fuller batches where lengths vary much.
    int64_t pool_pairs = 1'000'000;
    /// Of data-parallel ranks, which share the batches of a step out: number i of a step's `step` batches (0: as many
    /// as there are shares) is made where i % shares == share. Of the others only the counts come (Batch::is_made), as
    /// they are planned, which costs next to nothing. The first batch to come is number `taken`.
    int64_t share = 0, shares = 1, step = 0, taken = 0;
    /// Drawn anew for every batch of every epoch. Batches are planned by the corpus's own pieces, so those drawn, which
    /// are more, may exceed the budget. A share draws its own alone.
    SubwordSampling sampling = {};
  };
  /// `corpus` must outlive this. Starts at batch `first` of `epoch` (to resume in the middle of one), for which the
  /// pools before it are planned once more: about 0.15 s for a million pairs.
  /// Throws Error when a single pair is longer than the budget, or for weights that check_weights refuses;
  /// std::invalid_argument for sampling without vocabularies.
  Batches(const Corpus& corpus, const Options& options, int64_t epoch, int64_t first = 0);
  ~Batches();
  Batches(Batches&&) noexcept;

  bool next(Batch& batch);  // false at the end of the epoch

  /// Batches in the epoch. Plans what is left of it, once.
  int64_t size() const;
  /// Padding's share of all source and target positions of the epoch. Plans as size() does.
  double padding() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// One batch of the given pairs, in that order.
Batch make_batch(const Corpus& corpus, const std::vector<int64_t>& pairs);

}  // namespace transformer
