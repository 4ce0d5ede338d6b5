#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace transformer {

/// The sizes that `training.micro_batch: auto` chooses from, largest first: `batch_tokens` shared out over the
/// processes in one pass each, in two, three .. passes, down to the size of the longest sentence pair (`longest`
/// tokens a side). Never empty; without duplicates.
std::vector<int64_t> micro_batch_sizes(int64_t batch_tokens, int64_t processes, int64_t longest);

/// Finds out which micro-batches fit into memory.
///
/// On a GPU a pass of each size is tried, with a tenth more tokens than asked about. On a CPU, where the system
/// promises memory that it does not have and kills who takes it, the tensors of two small passes are counted, and four
/// fifths of what is available may be used: memory grows in proportion to tokens.
class MemoryProbe {
 public:
  /// What is probed, and for whom.
  struct Options {
    c10::Device device = c10::kCPU;  // that passes run on
    int processes_here = 1;          // that share a CPU's memory and do the same
    int64_t reserved_bytes = 0;      // that training will need besides
    int64_t smallest_tokens = 64;    // of a pass worth measuring
    /// Makes a pass, forward and backward, of about so many tokens, as costly as they get.
    std::function<void(int64_t tokens)> pass;
  };
  /// Nothing is tried before the first question.
  explicit MemoryProbe(Options options);

  /// Whether a pass of so many tokens fits. What `pass` throws but for want of memory passes through.
  bool fits(int64_t tokens);

 private:
  bool try_pass(int64_t tokens) const;
  void measure();

  Options options_;
  bool measured_ = false;
  bool warm_ = false;           // on a GPU: whether a first pass was tried
  bool out_of_memory_ = false;  // when measuring: only less than that can fit
  double bytes_a_token_ = 0;
  double fixed_bytes_ = 0;  // of a pass, however few tokens it has
  double allowed_bytes_ = 0;
};

}  // namespace transformer
