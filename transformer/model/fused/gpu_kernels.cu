// What training on a GPU does between matrix products, each in one pass over memory. Compiled when it is first needed
// (gpu_kernels.cpp), for rows of WIDTH elements, a multiple of 64; a test compiles it for the processor instead, so that
// it uses little of CUDA: no headers, shuffles and barriers of whole warps and blocks alone.
//
// Rows lie side by side. Streams between sub-layers are float; what goes into products and comes out of them is bfloat16.

#include "gpu_numbers.cuh"

using namespace transformer::gpu;

// A row is a warp's: piece i of lane l is number 32 * i + l.
constexpr int piece_size = WIDTH % 256 == 0 ? 8 : WIDTH % 128 == 0 ? 4 : 2;
constexpr int pieces = WIDTH / (32 * piece_size);
using FloatPiece = Piece<float, piece_size>;
using Bf16Piece = Piece<Bf16, piece_size>;
// A lane's part of a row.
struct Part {
  float at[pieces][piece_size];
};

template <class T>
__device__ inline void read(const T* row, int lane, Part& part) {
  const auto* from = reinterpret_cast<const Piece<T, piece_size>*>(row);
  UNROLL
  for (int i = 0; i < pieces; ++i) {
    const auto piece = from[32 * i + lane];
    UNROLL
    for (int j = 0; j < piece_size; ++j) part.at[i][j] = widened(piece.at[j]);
  }
}

__device__ inline void write(const Part& part, float* row, int lane) {
  UNROLL
  for (int i = 0; i < pieces; ++i) {
    FloatPiece piece;
    UNROLL
    for (int j = 0; j < piece_size; ++j) piece.at[j] = part.at[i][j];
    reinterpret_cast<FloatPiece*>(row)[32 * i + lane] = piece;
  }
}

__device__ inline void write(const Part& part, Bf16* row, int lane) {
  UNROLL
  for (int i = 0; i < pieces; ++i) {
    Bf16Piece piece;
    UNROLL
    for (int j = 0; j < piece_size; ++j) piece.at[j] = narrowed(part.at[i][j]);
    reinterpret_cast<Bf16Piece*>(row)[32 * i + lane] = piece;
  }
}

// Philox 4x32 with seven rounds: eight numbers of 16 bits for each piece of a matrix.
__device__ inline void random_bits(unsigned long long seed, unsigned long long index, unsigned (&words)[4]) {
  unsigned key0 = static_cast<unsigned>(seed), key1 = static_cast<unsigned>(seed >> 32);
  unsigned a = static_cast<unsigned>(index), b = static_cast<unsigned>(index >> 32), c = 0, d = 0;
  UNROLL
  for (int round = 0; round < 7; ++round) {
    const unsigned high0 = __umulhi(0xD2511F53u, a), low0 = 0xD2511F53u * a;
    const unsigned high1 = __umulhi(0xCD9E8D57u, c), low1 = 0xCD9E8D57u * c;
    a = high1 ^ b ^ key0;
    b = low1;
    c = high0 ^ d ^ key1;
    d = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  words[0] = a;
  words[1] = b;
  words[2] = c;
  words[3] = d;
}

// What elements of a lane's part of a row are multiplied by.
__device__ inline void scale_kept(const Dropout& dropout, long long row, int lane, Part& part) {
  if (dropout.threshold == 0) return;
  UNROLL
  for (int i = 0; i < pieces; ++i) {
    unsigned words[4];
    random_bits(dropout.seed, static_cast<unsigned long long>(row) * (32 * pieces) + 32 * i + lane, words);
    UNROLL
    for (int j = 0; j < piece_size; ++j) {
      const unsigned bits = words[j / 2] >> (16 * (j % 2)) & 0xffff;
      part.at[i][j] *= bits < dropout.threshold ? 0.0f : dropout.scale;
    }
  }
}

__device__ inline float sum_of_warp(float value) {
  UNROLL
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// body(element, its column) over a lane's part.
template <class Body>
__device__ inline void over(int lane, Body body) {
  UNROLL
  for (int i = 0; i < pieces; ++i) {
    UNROLL
    for (int j = 0; j < piece_size; ++j) body(i, j, (32 * i + lane) * piece_size + j);
  }
}

KERNEL void residual_forward(ResidualForward f) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (long long row = blockIdx.x * static_cast<long long>(warps) + threadIdx.x / 32; row < f.rows;
       row += static_cast<long long>(gridDim.x) * warps) {
    const long long first = row * WIDTH;
    Part x;
    read(f.stream + first, lane, x);
    if (f.branch) {
      Part branch;
      read(f.branch + first, lane, branch);
      scale_kept(f.dropout, row, lane, branch);
      over(lane, [&](int i, int j, int) { x.at[i][j] += branch.at[i][j]; });
    }
    if (!f.gain) {
      write(x, f.result + first, lane);
      continue;
    }
    float sum = 0;
    over(lane, [&](int i, int j, int) { sum += x.at[i][j]; });
    const float mean = sum_of_warp(sum) / WIDTH;
    float squares = 0;
    over(lane, [&](int i, int j, int) {
      x.at[i][j] -= mean;
      squares += x.at[i][j] * x.at[i][j];
    });
    const float scale = 1.0f / sqrtf(sum_of_warp(squares) / WIDTH + f.epsilon);
    over(lane, [&](int i, int j, int) { x.at[i][j] *= scale; });
    write(x, f.normalised + first, lane);
    if (lane == 0) f.scale[row] = scale;
    over(lane, [&](int i, int j, int column) { x.at[i][j] = x.at[i][j] * f.gain[column] + f.bias[column]; });
    if (f.result) write(x, f.result + first, lane);
    if (f.rounded) write(x, f.rounded + first, lane);
  }
}

KERNEL void __launch_bounds__(256) residual_backward(ResidualBackward b) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  Part of_branch, of_gain, of_bias;
  over(lane, [&](int i, int j, int) { of_branch.at[i][j] = of_gain.at[i][j] = of_bias.at[i][j] = 0; });
  for (long long row = blockIdx.x * static_cast<long long>(warps) + warp; row < b.rows;
       row += static_cast<long long>(gridDim.x) * warps) {
    const long long first = row * WIDTH;
    Part gradient;
    if (b.given) {
      read(b.given + first, lane, gradient);
    } else {
      read(b.given_rounded + first, lane, gradient);
    }
    if (b.normalised) {
      Part x;
      read(b.normalised + first, lane, x);
      float sum = 0, product = 0;
      over(lane, [&](int i, int j, int column) {
        of_gain.at[i][j] += gradient.at[i][j] * x.at[i][j];
        of_bias.at[i][j] += gradient.at[i][j];
        gradient.at[i][j] *= b.gain[column];
        sum += gradient.at[i][j];
        product += gradient.at[i][j] * x.at[i][j];
      });
      sum = sum_of_warp(sum) / WIDTH;
      product = sum_of_warp(product) / WIDTH;
      const float scale = b.scale[row];
      over(lane, [&](int i, int j, int) {
        gradient.at[i][j] = scale * (gradient.at[i][j] - sum - x.at[i][j] * product);
      });
      if (b.past) {
        Part past;
        read(b.past + first, lane, past);
        over(lane, [&](int i, int j, int) { past.at[i][j] += gradient.at[i][j]; });
        write(past, b.stream + first, lane);
      } else {
        write(gradient, b.stream + first, lane);
      }
    }
    if (b.branch) {
      scale_kept(b.dropout, row, lane, gradient);
      write(gradient, b.branch + first, lane);
      over(lane, [&](int i, int j, int) { of_branch.at[i][j] += gradient.at[i][j]; });
    }
  }
  // Warp by warp, so that sums repeat themselves to the bit.
  __shared__ float sums[3][WIDTH];
  for (int turn = 0; turn < warps; ++turn) {
    if (warp == turn) {
      over(lane, [&](int i, int j, int column) {
        sums[0][column] = of_branch.at[i][j] + (turn > 0 ? sums[0][column] : 0.0f);
        sums[1][column] = of_gain.at[i][j] + (turn > 0 ? sums[1][column] : 0.0f);
        sums[2][column] = of_bias.at[i][j] + (turn > 0 ? sums[2][column] : 0.0f);
      });
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 3 * WIDTH; i += blockDim.x) {
    b.sums[static_cast<long long>(blockIdx.x) * (3 * WIDTH) + i] = sums[i / WIDTH][i % WIDTH];
  }
}

// A thread has eight neighbouring columns, and four rows on their way at once.
KERNEL void relu_backward(ReluBackward r) {
  using Eight = Piece<Bf16, 8>;
  constexpr int at_once = 4;
  const int groups = r.columns / 8, column_blocks = (groups + blockDim.x - 1) / blockDim.x;
  const int group = blockIdx.x % column_blocks * blockDim.x + threadIdx.x, share = blockIdx.x / column_blocks;
  if (group >= groups) return;
  const auto *given = reinterpret_cast<const Eight*>(r.given), *activated = reinterpret_cast<const Eight*>(r.activated);
  float sums[8] = {};
  for (long long first = static_cast<long long>(share) * at_once; first < r.rows;
       first += static_cast<long long>(r.row_blocks) * at_once) {
    Eight gradient[at_once] = {}, value[at_once] = {};
    UNROLL
    for (int k = 0; k < at_once; ++k) {
      if (first + k < r.rows) {
        gradient[k] = given[(first + k) * groups + group];
        value[k] = activated[(first + k) * groups + group];
      }
    }
    UNROLL
    for (int k = 0; k < at_once; ++k) {
      UNROLL
      for (int j = 0; j < 8; ++j) {
        if (widened(value[k].at[j]) <= 0) gradient[k].at[j] = 0;
        sums[j] += widened(gradient[k].at[j]);
      }
      if (first + k < r.rows) reinterpret_cast<Eight*>(r.result)[(first + k) * groups + group] = gradient[k];
    }
  }
  Piece<float, 8> all;
  UNROLL
  for (int j = 0; j < 8; ++j) all.at[j] = sums[j];
  reinterpret_cast<Piece<float, 8>*>(r.sums)[static_cast<long long>(share) * groups + group] = all;
}

// Σ 2^(x - most), and the sum of x.
struct Exponentials {
  float most, sum, total;
};

__device__ inline Exponentials joined(const Exponentials& a, const Exponentials& b) {
  const float most = fmaxf(a.most, b.most);
  // Of nothing but -infinity all terms are 0 yet, whatever is subtracted.
  const float base = most == -infinity() ? 0.0f : most;
  return {most, a.sum * exp2f(a.most - base) + b.sum * exp2f(b.most - base), a.total + b.total};
}

template <int size>
__device__ inline void smoothed_loss(const SmoothedLoss& l) {
  const long long row = blockIdx.x;
  auto* logits = l.logits + row * l.vocabulary;
  auto* in_pieces = reinterpret_cast<Piece<Bf16, size>*>(logits);
  const int count = l.vocabulary / size;
  const long long target = l.targets[row];
  const bool known = target >= 0 && target < l.vocabulary;
  const float of_target = known ? widened(logits[target]) : not_a_number();

  Exponentials own{-infinity(), 0.0f, 0.0f};
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const auto piece = in_pieces[i];
    float values[size], most = own.most, total = 0;
    UNROLL
    for (int j = 0; j < size; ++j) {
      const float value = widened(piece.at[j]);
      total += value;
      values[j] = value * log2_e;
      most = fmaxf(most, values[j]);
    }
    const float base = most == -infinity() ? 0.0f : most;
    float sum = own.sum * exp2f(own.most - base);
    UNROLL
    for (int j = 0; j < size; ++j) sum += exp2f(values[j] - base);
    own = {most, sum, own.total + total};
  }
  UNROLL
  for (int distance = 16; distance > 0; distance /= 2) {
    const Exponentials other{__shfl_xor_sync(0xffffffffu, own.most, distance),
                             __shfl_xor_sync(0xffffffffu, own.sum, distance),
                             __shfl_xor_sync(0xffffffffu, own.total, distance)};
    own = joined(own, other);
  }
  __shared__ Exponentials of_warps[32];
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();  // from here on every thread has read the target's logit as well
  Exponentials all = of_warps[0];
  for (int i = 1; i < static_cast<int>(blockDim.x / 32); ++i) all = joined(all, of_warps[i]);

  // Differences first: of large numbers that are close, little would be left.
  const float sum = log2f(all.sum);
  if (threadIdx.x == 0) {
    l.losses[2 * row] = (all.most - of_target * log2_e + sum) / log2_e;
    l.losses[2 * row + 1] = (all.most - all.total / l.vocabulary * log2_e + sum) / log2_e;
  }
  if (!l.with_gradient) return;
  const float share = known ? l.smoothing / l.vocabulary : not_a_number();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    auto piece = in_pieces[i];
    UNROLL
    for (int j = 0; j < size; ++j) {
      float gradient = exp2f(widened(piece.at[j]) * log2_e - all.most - sum) - share;
      if (i * static_cast<long long>(size) + j == target) gradient -= 1.0f - l.smoothing;
      piece.at[j] = narrowed(gradient);
    }
    in_pieces[i] = piece;
  }
}

// Of a vocabulary that is a multiple of 8.
KERNEL void smoothed_loss_in_pieces(SmoothedLoss l) {
  smoothed_loss<8>(l);
}

// Of any.
KERNEL void smoothed_loss_one_by_one(SmoothedLoss l) {
  smoothed_loss<1>(l);
}
