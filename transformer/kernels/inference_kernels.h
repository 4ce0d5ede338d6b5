#pragma once

#include <cstdint>

// The loops that inference spends its time in, once for each instruction set. This header is included by files that
// are compiled for processors other than the one at hand, so it holds declarations only: an inline function here could
// be kept in a newer instruction set's version and then run on an older machine.

namespace transformer {

/// What becomes of a panel's sums: + bias, then max(0, .) where wanted, then stored.
struct PanelOutput {
  const float* bias;  // of the panel's columns; null: none
  bool relu;          // after the bias
  float* values;      // of the first row's first column
  int64_t stride;     // from row to row
};

/// int8's scales: the product of integers times the row's scale times the column's.
struct PanelScales {
  const float* rows;     // one for each row of activations
  const float* columns;  // one for each output column
  const int32_t* sums;   // of the panel's weights over the depth, a column each
};

/// The best tokens of one row and what its softmax is divided by, gathered while the logits pass by.
struct Selection {
  float maximum;    // of all logits so far
  double sum;       // of exp(logit - maximum)
  int32_t width;    // wanted
  int32_t count;    // found
  float threshold;  // what a logit has to exceed to be taken up; -infinity until there are enough
  float* logits;    // [width], descending; equal ones by token
  int32_t* tokens;  // [width]
  float* maxima =
      nullptr;  // where the largest logit of what is taken up at a time goes, one behind the other; null: nowhere
};

/// Queries of several rows over the same positions. Keys and values lie in a record for each position: `offset`
/// elements after records[i] the keys [heads d_k], then the values [heads d_v].
struct AttentionInput {
  /// More are attended to in several goes.
  static constexpr int64_t rows_at_once = 4;
  const float* queries;             // [rows, heads d_k]
  int64_t rows, stride;             // stride: from query to query
  const void* const* records;       // [count], of the positions
  int64_t offset, count;            // in elements; positions
  int64_t heads, d_k, d_v;          // H, and the widths of a head
  float scale;                      // of the dot products
  const float* additive = nullptr;  // v [heads, d_k]: scores are v·tanh(query + key) instead; null: dot products
};

/// A set of kernels for one instruction set. A packed matrix is a row of panels of `columns` output columns; within a
/// panel, 4 bytes of a column (1 float, 2 bf16, 4 int8 along the depth) lie beside the next column's. Every row of a
/// product is computed in the same order however many rows there are, so that a batch never changes a result.
struct Kernels {
  const char* name;  // of the instruction set: "avx2"
  int64_t columns;   // of a panel

  /// One panel for `rows` rows of activations that lie `a_stride` bytes apart, over a depth of 4 bytes * groups.
  void (*product_float)(const void* a, int64_t a_stride, int64_t rows, int64_t groups, const void* panel,
                        const PanelOutput& output);
  /// The same of bf16 in pairs along the depth.
  void (*product_bf16)(const void* a, int64_t a_stride, int64_t rows, int64_t groups, const void* panel,
                       const PanelOutput& output);
  /// Activations as unsigned bytes, 128 standing for 0.
  void (*product_int8)(const void* a, int64_t a_stride, int64_t rows, int64_t groups, const void* panel,
                       const PanelScales& scales, const PanelOutput& output);

  /// x [count] to bf16, nearest even.
  void (*to_bf16)(const float* x, int64_t count, uint16_t* rounded);
  /// x [count] to bytes around 128, the same by every set; returns the scale that restores them. Not a number where x
  /// holds one that is not finite.
  float (*to_int8)(const float* x, int64_t count, uint8_t* quantised);

  /// normalised = LayerNorm(x + y); may be x.
  void (*add_and_normalise)(const float* x, const float* y, int64_t count, const float* gain, const float* bias,
                            float epsilon, float* normalised);

  /// x [count] = GELU(x) = x Φ(x).
  void (*gelu)(float* x, int64_t count);
  /// x [count] = silu(x).
  void (*swish)(float* x, int64_t count);
  /// x [count] = silu(gate) * x, silu(g) = g / (1 + exp(-g)).
  void (*swiglu)(const float* gate, float* x, int64_t count);
  /// A step of a recurrent unit of `count` numbers, projected [2 count]: with f = 1 / (1 + exp(-projected[i])), state =
  /// f * before + (1 - f) * projected[count + i], and output = max(0, state).
  void (*recur)(const float* projected, const float* before, int64_t count, float* state, float* output);

  /// attended [rows, heads d_v], `stride` apart = softmax(scale * queries keys^T) values for every head, or of additive
  /// scores, of records in float32 or bf16. `scores` [rows_at_once, heads, count] is scratch, and holds the weights
  /// afterwards where there is a single row. A row's result does not depend on the others.
  void (*attend_float)(const AttentionInput& input, float* scores, float* attended, int64_t stride);
  /// The same of records in bf16.
  void (*attend_bf16)(const AttentionInput& input, float* scores, float* attended, int64_t stride);

  /// Takes up `count` logits of the tokens from `first` on; tokens below `allowed` count in the sum alone.
  void (*select)(const float* logits, int64_t count, int32_t first, int32_t allowed, Selection& selection);

  /// Takes up `count` values of the tokens from `first` on as they are: `sum` is of themselves, and shows what is not a
  /// number; `maximum` is not kept.
  void (*best)(const float* values, int64_t count, int32_t first, Selection& selection);
  /// The largest of x [count], but for what is not a number; -infinity where there is none.
  float (*largest)(const float* x, int64_t count);
  /// results [count] = exp((x [count] - shift) * scale), where `shift` is no less than any x but for rounding and
  /// `scale` > 0; may be x. Returns their sum. What is below exp(-87) counts as 0.
  float (*exponentials)(const float* x, int64_t count, float shift, float scale, float* results);

  /// sums [count] += exp(logits [count] - shift), where `shift` is no less than any logit but for rounding. What is
  /// below exp(-87) counts as 0.
  void (*add_probabilities)(const float* logits, int64_t count, float shift, float* sums);
};

}  // namespace transformer
