// Attention of short sentences on a GPU: at most LENGTH queries and keys, a multiple of 16, of heads that are HEAD wide. A
// block has a head of a sentence, and a warp 16 rows of its scores at a time. Compiled and tested as gpu_kernels.cu is.

#include "gpu_numbers.cuh"

using namespace transformer::gpu;

#ifdef __CUDA_ARCH__
// c + a b of a [16, 16], b [16, 8] and c [16, 8], which a warp has in parts: with g = lane / 4 and t = lane % 4,
// a: pairs [g, 2t], [g + 8, 2t], [g, 2t + 8], [g + 8, 2t + 8]; b: pairs [2t, g] (over rows) and [2t + 8, g]; c: [g, 2t],
// [g, 2t + 1], [g + 8, 2t], [g + 8, 2t + 1].
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to bfloat16, the first in the lower half.
__device__ inline unsigned pair_of(float first, float second) {
  unsigned result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  return result;
}
#endif

constexpr int steps = HEAD / 16, tiles = HEAD / 8;
constexpr int row_size = HEAD + 8;  // of a matrix in shared memory: neighbouring rows begin in other banks

using Eight = Piece<Bf16, 8>;

// What a lane is.
struct Place {
  int warp, g, t;
};
__device__ inline Place place() {
  const int lane = threadIdx.x % 32;
  return {static_cast<int>(threadIdx.x / 32), lane / 4, lane % 4};
}

__device__ inline int padded(int rows) {
  return (rows + 15) / 16 * 16;
}

// Rows that are a row_stride apart, and zeros behind them, to the next multiple of 16.
__device__ inline void load(const Bf16* from, long long row_stride, int rows, Bf16 (*to)[row_size]) {
  const int count = padded(rows) * (HEAD / 8);
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const int row = i / (HEAD / 8), part = i % (HEAD / 8);
    Eight eight{};
    if (row < rows) eight = reinterpret_cast<const Eight*>(from + row * row_stride)[part];
    *reinterpret_cast<Eight*>(&to[row][part * 8]) = eight;
  }
}

__device__ inline unsigned pair_at(const Bf16* row, int column) {
  return *reinterpret_cast<const unsigned*>(row + column);
}

// Of two rows.
__device__ inline unsigned pair_over(const Bf16 (*matrix)[row_size], int row, int column) {
  return static_cast<unsigned>(matrix[row][column]) | static_cast<unsigned>(matrix[row + 1][column]) << 16;
}

// A lane's part of 16 rows as the left factor, of all their columns; zeros beyond `rows`.
struct Left {
  unsigned at[steps][4];
};
__device__ inline Left left_rows(const Bf16* from, long long row_stride, int first, int rows, const Place& p) {
  Left left;
  const int upper = first + p.g, lower = upper + 8;
  UNROLL
  for (int s = 0; s < steps; ++s) {
    const int column = 16 * s + 2 * p.t;
    left.at[s][0] = upper < rows ? pair_at(from + upper * row_stride, column) : 0;
    left.at[s][1] = lower < rows ? pair_at(from + lower * row_stride, column) : 0;
    left.at[s][2] = upper < rows ? pair_at(from + upper * row_stride, column + 8) : 0;
    left.at[s][3] = lower < rows ? pair_at(from + lower * row_stride, column + 8) : 0;
  }
  return left;
}

// left times rows `first` .. `first + 7` of a matrix, each of them a column: [16, 8].
__device__ inline void times_rows(float (&c)[4], const Left& left, const Bf16 (*matrix)[row_size], int first,
                                  const Place& p) {
  UNROLL
  for (int e = 0; e < 4; ++e) c[e] = 0;
  UNROLL
  for (int s = 0; s < steps; ++s) {
    const Bf16* row = matrix[first + p.g];
    multiply_add(c, left.at[s], pair_at(row, 16 * s + 2 * p.t), pair_at(row, 16 * s + 2 * p.t + 8));
  }
}

// c + a times rows `first` .. `first + 15` of a matrix: [16, HEAD].
__device__ inline void add_product(float (&c)[tiles][4], const unsigned (&a)[4], const Bf16 (*matrix)[row_size],
                                   int first, const Place& p) {
  UNROLL
  for (int n = 0; n < tiles; ++n) {
    multiply_add(c[n], a, pair_over(matrix, first + 2 * p.t, 8 * n + p.g),
                 pair_over(matrix, first + 2 * p.t + 8, 8 * n + p.g));
  }
}

// 16 rows of results, each of which counts where it is one of `rows`.
__device__ inline void store(const float (&c)[tiles][4], float upper_factor, float lower_factor, Bf16* to,
                             long long row_stride, int first, int rows, const Place& p) {
  const int upper = first + p.g, lower = upper + 8;
  UNROLL
  for (int n = 0; n < tiles; ++n) {
    const int column = 8 * n + 2 * p.t;
    if (upper < rows) {
      *reinterpret_cast<unsigned*>(to + upper * row_stride + column) =
          pair_of(c[n][0] * upper_factor, c[n][1] * upper_factor);
    }
    if (lower < rows) {
      *reinterpret_cast<unsigned*>(to + lower * row_stride + column) =
          pair_of(c[n][2] * lower_factor, c[n][3] * lower_factor);
    }
  }
}

// Where a block's head of a sentence begins.
struct Head {
  const Bf16 *query, *key, *value;
  long long query_offset, key_offset, result_offset, result_row;
  const bool* allowed;
  long long number;
};
__device__ inline Head head_of(const AttentionForward& f) {
  const long long sentence = blockIdx.x / f.heads, head = blockIdx.x % f.heads;
  Head h;
  h.query_offset = sentence * f.query_sentence + head * HEAD;
  h.key_offset = sentence * f.key_sentence + head * HEAD;
  h.query = f.query + h.query_offset;
  h.key = f.key + h.key_offset;
  h.value = f.value + h.key_offset;
  h.result_row = static_cast<long long>(f.heads) * HEAD;
  h.result_offset = sentence * f.queries * h.result_row + head * HEAD;
  h.allowed = f.allowed ? f.allowed + sentence * f.keys : nullptr;
  h.number = blockIdx.x;
  return h;
}

__device__ inline bool visible(const AttentionForward& f, const Head& h, int query, int key) {
  return key < f.keys && query < f.queries && (!h.allowed || h.allowed[key]) && (!f.causal || key <= query);
}

// Of the four lanes that share a row.
__device__ inline float largest_of_row(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ inline float sum_of_row(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

KERNEL void __launch_bounds__(128) attention_forward(AttentionForward f) {
  alignas(16) __shared__ Bf16 keys[LENGTH][row_size];
  alignas(16) __shared__ Bf16 values[LENGTH][row_size];
  const auto p = place();
  const auto h = head_of(f);
  load(h.key, f.key_row, f.keys, keys);
  load(h.value, f.key_row, f.keys, values);
  __syncthreads();
  const int end = padded(f.keys);
  for (int first = 16 * p.warp; first < f.queries; first += blockDim.x / 32 * 16) {
    const auto query = left_rows(h.query, f.query_row, first, f.queries, p);
    float scores[LENGTH / 8][4], most[2] = {-infinity(), -infinity()}, sum[2] = {0, 0}, seen[2] = {0, 0};
    UNROLL
    for (int n = 0; n < LENGTH / 8; ++n) {
      if (8 * n < end) times_rows(scores[n], query, keys, 8 * n, p);
      UNROLL
      for (int e = 0; e < 4; ++e) {
        const bool counts = 8 * n < end && visible(f, h, first + p.g + e / 2 * 8, 8 * n + 2 * p.t + e % 2);
        scores[n][e] = counts ? scores[n][e] * (f.scale * log2_e) : -infinity();
        most[e / 2] = fmaxf(most[e / 2], scores[n][e]);
        if (counts) seen[e / 2] = 1;
      }
    }
    UNROLL
    for (int half = 0; half < 2; ++half) {
      most[half] = largest_of_row(most[half]);
      seen[half] = largest_of_row(seen[half]);
      if (seen[half] == 0) most[half] = 0;  // all is 0, and no NaN
    }
    UNROLL
    for (int n = 0; n < LENGTH / 8; ++n) {
      UNROLL
      for (int e = 0; e < 4; ++e) {
        scores[n][e] = exp2f(scores[n][e] - most[e / 2]);
        sum[e / 2] += scores[n][e];
      }
    }
    float result[tiles][4] = {}, factor[2];
    UNROLL
    for (int half = 0; half < 2; ++half) {
      sum[half] = sum_of_row(sum[half]);
      factor[half] = seen[half] == 0 ? 0.0f : 1.0f / sum[half];
      const int row = first + p.g + 8 * half;
      if (p.t == 0 && row < f.queries) {
        f.normaliser[h.number * f.queries + row] = seen[half] == 0 ? 0.0f : most[half] + log2f(sum[half]);
      }
    }
    UNROLL
    for (int j = 0; j < LENGTH / 16; ++j) {
      if (16 * j >= end) continue;
      const unsigned weights[4] = {pair_of(scores[2 * j][0], scores[2 * j][1]), pair_of(scores[2 * j][2], scores[2 * j][3]),
                                   pair_of(scores[2 * j + 1][0], scores[2 * j + 1][1]),
                                   pair_of(scores[2 * j + 1][2], scores[2 * j + 1][3])};
      add_product(result, weights, values, 16 * j, p);
    }
    store(result, factor[0], factor[1], f.result + h.result_offset, h.result_row, first, f.queries, p);
  }
}

KERNEL void __launch_bounds__(128) attention_backward(AttentionBackward b) {
  // Keys and values, then queries and the result's gradient.
  alignas(16) __shared__ Bf16 one[LENGTH][row_size];
  alignas(16) __shared__ Bf16 other[LENGTH][row_size];
  __shared__ float normaliser[LENGTH], dots[LENGTH];  // of each query; dots: of a result with its gradient
  const auto& f = b.forward;
  const auto p = place();
  const auto h = head_of(f);
  const Bf16 *given = b.given + h.result_offset, *result = f.result + h.result_offset;
  const float power = f.scale * log2_e;
  const int key_end = padded(f.keys), query_end = padded(f.queries);

  constexpr int parts = HEAD / 8;  // lanes that share a row
  for (int i = threadIdx.x; i < query_end * parts; i += blockDim.x) {
    const int row = i / parts, part = i % parts;
    float dot = 0;
    if (row < f.queries) {
      const auto x = reinterpret_cast<const Eight*>(given + row * h.result_row)[part];
      const auto y = reinterpret_cast<const Eight*>(result + row * h.result_row)[part];
      UNROLL
      for (int j = 0; j < 8; ++j) dot += widened(x.at[j]) * widened(y.at[j]);
    }
    UNROLL
    for (int distance = parts / 2; distance > 0; distance /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, distance);
    if (part == 0) {
      dots[row] = dot;
      normaliser[row] = row < f.queries ? f.normaliser[h.number * f.queries + row] : 0.0f;
    }
  }
  load(h.key, f.key_row, f.keys, one);
  load(h.value, f.key_row, f.keys, other);
  __syncthreads();
  for (int first = 16 * p.warp; first < f.queries; first += blockDim.x / 32 * 16) {
    const auto query = left_rows(h.query, f.query_row, first, f.queries, p);
    const auto gradient = left_rows(given, h.result_row, first, f.queries, p);
    float of_query[tiles][4] = {};
    const int last = f.causal && first + 16 < key_end ? first + 16 : key_end;
    for (int key = 0; key < last; key += 16) {
      unsigned of_scores[4];
      UNROLL
      for (int n = 0; n < 2; ++n) {
        float score[4], of_weight[4];
        times_rows(score, query, one, key + 8 * n, p);
        times_rows(of_weight, gradient, other, key + 8 * n, p);
        UNROLL
        for (int e = 0; e < 4; ++e) {
          const int row = first + p.g + e / 2 * 8;
          const bool counts = visible(f, h, row, key + 8 * n + 2 * p.t + e % 2);
          const float weight = exp2f(score[e] * power - normaliser[row]);
          score[e] = counts ? weight * (of_weight[e] - dots[row]) * f.scale : 0.0f;
        }
        of_scores[2 * n] = pair_of(score[0], score[1]);
        of_scores[2 * n + 1] = pair_of(score[2], score[3]);
      }
      add_product(of_query, of_scores, one, key, p);
    }
    store(of_query, 1, 1, b.query + h.query_offset, f.query_row, first, f.queries, p);
  }

  __syncthreads();
  load(h.query, f.query_row, f.queries, one);
  load(given, h.result_row, f.queries, other);
  __syncthreads();
  for (int first = 16 * p.warp; first < f.keys; first += blockDim.x / 32 * 16) {
    const auto key = left_rows(h.key, f.key_row, first, f.keys, p);
    const auto value = left_rows(h.value, f.key_row, first, f.keys, p);
    float of_key[tiles][4] = {}, of_value[tiles][4] = {};
    for (int query = f.causal ? first : 0; query < query_end; query += 16) {
      unsigned weights[4], of_scores[4];
      UNROLL
      for (int n = 0; n < 2; ++n) {
        float score[4], of_weight[4];
        times_rows(score, key, one, query + 8 * n, p);
        times_rows(of_weight, value, other, query + 8 * n, p);
        UNROLL
        for (int e = 0; e < 4; ++e) {
          const int column = query + 8 * n + 2 * p.t + e % 2;
          const bool counts = visible(f, h, column, first + p.g + e / 2 * 8);
          const float weight = counts ? exp2f(score[e] * power - normaliser[column]) : 0.0f;
          score[e] = weight;
          of_weight[e] = counts ? weight * (of_weight[e] - dots[column]) * f.scale : 0.0f;
        }
        weights[2 * n] = pair_of(score[0], score[1]);
        weights[2 * n + 1] = pair_of(score[2], score[3]);
        of_scores[2 * n] = pair_of(of_weight[0], of_weight[1]);
        of_scores[2 * n + 1] = pair_of(of_weight[2], of_weight[3]);
      }
      add_product(of_value, weights, other, query, p);
      add_product(of_key, of_scores, one, query, p);
    }
    store(of_key, 1, 1, b.key + h.key_offset, f.key_row, first, f.keys, p);
    store(of_value, 1, 1, b.value + h.key_offset, f.key_row, first, f.keys, p);
  }
}
