#pragma once

// What the kernels of gpu_kernels.cu and gpu_attention.cu take: the host and they both read this.

namespace transformer::gpu {

/// Its bits.
using Bf16 = unsigned short;

/// Of one sub-layer's pass: the same in the pass back.
struct Dropout {
  unsigned long long seed = 0;  // of the numbers that decide
  unsigned threshold = 0;       // rate * 2^16; 0: nothing is dropped
  float scale = 1;              // 1 / (1 - rate)
};

/// residual_forward: the sum stream + dropped(branch), where there is a branch, and the normalisation of the sum (of
/// the stream). What is null is left out.
struct ResidualForward {
  const float* stream = nullptr;  // [rows, WIDTH]
  const Bf16* branch = nullptr;   // [rows, WIDTH]
  Dropout dropout = {};           // of the branch
  const float* gain = nullptr;    // [WIDTH]; null: nothing is normalised, and `result` is the sum
  const float* bias = nullptr;    // [WIDTH], with gain
  float epsilon = 0;              // added to the variance
  float* result = nullptr;        // [rows, WIDTH]
  Bf16* rounded = nullptr;        // [rows, WIDTH], the result as products take it
  Bf16* normalised = nullptr;     // [rows, WIDTH], the result before gain and bias
  float* scale = nullptr;         // [rows], 1 / deviation
  long long rows = 0;             // how many
};

/// residual_backward: from the gradient of what residual_forward made those of stream and branch, and for each block
/// sums over its rows: of the branch's gradient, and of the gradients of gain and bias.
struct ResidualBackward {
  const float* given = nullptr;         // [rows, WIDTH]; null: given_rounded
  const Bf16* given_rounded = nullptr;  // [rows, WIDTH]
  const float* past = nullptr;          // [rows, WIDTH], added to the stream's; null: nothing
  const Bf16* normalised = nullptr;     // [rows, WIDTH]; null: nothing was, and the stream's gradient is what is given
  const float* scale = nullptr;         // [rows]
  const float* gain = nullptr;          // [WIDTH]
  Dropout dropout = {};                 // as on the way there
  float* stream = nullptr;              // [rows, WIDTH]; not where nothing was normalised
  Bf16* branch = nullptr;               // [rows, WIDTH]; null: there was none
  float* sums = nullptr;                // [blocks, 3, WIDTH]
  long long rows = 0;                   // how many
};

/// relu_backward: the gradient of what max(0, x) was made of, from `given`, that of the result, and for each of
/// `row_blocks` shares of the rows its sum over them.
struct ReluBackward {
  const Bf16* given;      // [rows, columns]
  const Bf16* activated;  // [rows, columns], max(0, x)
  Bf16* result;           // [rows, columns]
  float* sums;            // [row_blocks, columns]
  long long rows;         // how many
  int columns;            // a multiple of 8
  int row_blocks;         // shares of the rows
};

/// smoothed_loss_...: of rows of logits z with targets t, a block each, -log p[t] and the mean of -log p over the
/// vocabulary. A row then holds its gradient, where that is wanted: p - (1 - smoothing) onehot(t) - smoothing / V.
struct SmoothedLoss {
  Bf16* logits;              // [rows, V]
  const long long* targets;  // [rows]; -log p of one that is not in the vocabulary is NaN
  int vocabulary;            // V
  float smoothing;           // ε_ls
  int with_gradient;         // whether the row becomes its gradient
  float* losses;             // [rows, 2]
};

/// attention_forward: softmax(scale Q K^T) V of every head of every sentence, a block each. Rows of a head have HEAD
/// elements, side by side; heads lie side by side in a row of all.
struct AttentionForward {
  const Bf16* query;         // of the first sentence and head
  const Bf16* key;           // likewise
  const Bf16* value;         // likewise
  long long query_row;       // from a query to the next, in elements
  long long query_sentence;  // from a sentence's queries to the next one's
  long long key_row;         // the same of keys and values
  long long key_sentence;    // the same of keys and values
  const bool* allowed;       // [B, S]: keys that queries may attend to; null: all
  int heads;                 // H
  int queries;               // T, LENGTH at most
  int keys;                  // S, LENGTH at most
  int causal;                // whether no query attends to later keys
  float scale;               // of products
  Bf16* result;              // [B, T, H, HEAD]; 0 of queries that may attend to nothing
  float* normaliser;         // [B, H, T], log2 of a row's sum: what the way back needs
};

/// attention_backward: the gradients, laid out as their values.
struct AttentionBackward {
  AttentionForward forward;  // with its result
  const Bf16* given;         // the gradient of the result, [B, T, H, HEAD]
  Bf16* query;               // rows and sentences apart as those of `forward`
  Bf16* key;                 // likewise
  Bf16* value;               // likewise
};

}  // namespace transformer::gpu
