#pragma once

#include <cstdint>

#include "transformer/kernels/bf16.h"

// The loops that training on a CPU spends its time in beside matrix products, once for each instruction set. This
// header is included by files that are compiled for processors other than the one at hand, so it holds declarations
// only: an inline function here could be kept in a newer instruction set's version and then run on an older machine.

namespace transformer {

/// Which elements are dropped follows from the seed and an element's row and column alone: no mask is stored, the
/// backward pass draws the same, and threads may share rows out as they like.
struct RowDropout {
  uint64_t seed;       // of a sub-layer's pass
  uint32_t threshold;  // rate * 2^31; 0: nothing is dropped
  float scale;         // 1 / (1 - rate)
};

/// Rows `first` .. `first + count` of a matrix of `width` columns, its rows side by side.
struct Rows {
  int64_t first, count, width;  // in rows, rows and elements
};

/// One head of one sentence. Elements of a row lie side by side, rows a stride (in elements) apart.
struct AttentionHead {
  int64_t queries, keys, d_k, d_v;                                // T, S, and the head's widths
  int64_t query_stride, key_stride, value_stride, result_stride;  // in elements, from row to row
  float scale;                                                    // of the dot products
  bool causal;                                                    // query t sees keys up to t
  const bool* allowed;                                            // [keys], true = may attend; null: all
  RowDropout dropout;                                             // on the weights
  int64_t first_row;                                              // of this head's queries, for dropout
};

/// A row of logits judged against a target.
struct RowLoss {
  double negative_log_likelihood;  // of the target
  double mean;                     // over the vocabulary, of -log p
};

/// Loops over matrices that products are made of, whose elements are T, and over those around them, which are float32.
/// Pointers are to a matrix's first row, whatever `rows.first`. Sums over rows, [width], are added to what is there.
template <class T>
struct TypedTrainingKernels {
  /// sum = x + dropout(y), normalised = (sum - mean) / deviation * gain + bias; `moments` [rows, 2]: mean and
  /// 1 / deviation. `sum` may be y.
  void (*add_and_normalise)(const float* x, const T* y, Rows rows, const RowDropout& dropout, const float* gain,
                            const float* bias, float epsilon, float* sum, float* normalised, float* moments);
  /// Its gradients from that of `normalised`: of x, and of y; `y_gradient_sum`: of y's rows.
  void (*add_and_normalise_backward)(const float* upstream, const float* sum, const float* moments, const float* gain,
                                     Rows rows, const RowDropout& dropout, float* x_gradient, T* y_gradient,
                                     float* gain_gradient, float* bias_gradient, float* y_gradient_sum);
  /// normalised = (x - mean) / deviation * gain + bias; `moments` as above.
  void (*normalise)(const float* x, Rows rows, const float* gain, const float* bias, float epsilon, T* normalised,
                    float* moments);
  /// x's gradient from that of `normalised`, added to `past`, what reaches x past the normalisation.
  void (*normalise_backward)(const T* upstream, const float* x, const float* moments, const float* gain, Rows rows,
                             const float* past, float* x_gradient, float* gain_gradient, float* bias_gradient);
  /// sum = x + dropout(y); may be y.
  void (*add)(const float* x, const T* y, Rows rows, const RowDropout& dropout, float* sum);
  /// y's gradient from that of `sum`, which is x's; `y_gradient_sum`: of its rows.
  void (*add_backward)(const float* upstream, Rows rows, const RowDropout& dropout, T* y_gradient,
                       float* y_gradient_sum);
  /// x = dropout(max(0, x)).
  void (*relu)(T* x, Rows rows, const RowDropout& dropout);
  /// gradient = gradient * scale where `activated` is not 0, else 0; `sum`: of the rows.
  void (*relu_backward)(T* gradient, const T* activated, Rows rows, float scale, float* sum);
  /// sum += the rows.
  void (*add_rows)(const T* x, Rows rows, float* sum);
  /// x += y.
  void (*accumulate)(float* x, const T* y, int64_t count);

  /// softmax(scale * query keys^T) values, zeros for a query that may attend to nothing. `scratch` holds
  /// attention_scratch floats.
  void (*attend)(const T* query, const T* key, const T* value, const AttentionHead& head, T* result, float* scratch);
  /// Its gradients, where query, key and value lie in theirs.
  void (*attend_backward)(const T* query, const T* key, const T* value, const AttentionHead& head, const T* upstream,
                          T* query_gradient, T* key_gradient, T* value_gradient, float* scratch);

  /// The loss of logits [count] against `target`, and in their place, where wanted, the gradient of
  /// (1 - smoothing) nll + smoothing mean.
  RowLoss (*smoothed_loss)(T* logits, int64_t count, int64_t target, double smoothing, bool gradient);
};

/// The kernels of one instruction set.
struct TrainingKernels {
  const char* name;                      // of the instruction set: "avx2"
  TypedTrainingKernels<float> in_float;  // elements of products are float32
  TypedTrainingKernels<Bf16> in_bf16;    // elements of products are bf16, as under autocast
  /// result = dropout(scale * row + position).
  void (*embed)(const float* embedding, const float* position, int64_t width, float scale, const RowDropout& dropout,
                int64_t row, float* result);
  /// gradient += scale * dropout(upstream).
  void (*embed_backward)(const float* upstream, int64_t width, float scale, const RowDropout& dropout, int64_t row,
                         float* gradient);
};

/// Floats of scratch that a head needs, forward or backward.
int64_t attention_scratch(int64_t queries, int64_t keys, int64_t d_k, int64_t d_v);

}  // namespace transformer
