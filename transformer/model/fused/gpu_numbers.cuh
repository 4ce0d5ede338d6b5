#pragma once

// What kernels for GPUs have in common. Only they include it.

#include "gpu_arguments.h"

#ifndef KERNEL
#define KERNEL extern "C" __global__
#define UNROLL _Pragma("unroll")
#endif

using transformer::gpu::Bf16;

constexpr float log2_e = 1.44269504088896341f;

// N neighbours in memory, read and written at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Piece {
  T at[N];
};

__device__ inline float infinity() {
  return __uint_as_float(0x7f800000u);
}

__device__ inline float not_a_number() {
  return __uint_as_float(0x7fc00000u);
}

__device__ inline float widened(Bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value) << 16);
}
__device__ inline float widened(float value) {
  return value;
}

// To the nearest, ties to even.
__device__ inline Bf16 narrowed(float value) {
#ifdef __CUDA_ARCH__
  Bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
#else
  const unsigned bits = __float_as_uint(value);
  if (value != value) return static_cast<Bf16>((bits >> 16) | 0x40);
  return static_cast<Bf16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
#endif
}
