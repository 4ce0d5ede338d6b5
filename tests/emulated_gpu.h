#pragma once

#include <array>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "transformer/model/fused/gpu_kernels.h"

// The kernels of gpu_kernels.cu on a processor: each of CUDA's threads is a thread, blocks come one after another.

namespace transformer::test {

namespace emulated {

struct Index {
  unsigned x = 0;
};
inline thread_local Index threadIdx, blockIdx, blockDim, gridDim;

struct Warp {
  std::barrier<> together{32};
  std::array<float, 32> values{};
  std::array<std::array<unsigned, 6>, 32> factors{};
};
inline thread_local Warp* warp = nullptr;
inline thread_local std::barrier<>* block = nullptr;

inline void __syncthreads() {
  block->arrive_and_wait();
}

inline float __shfl_xor_sync(unsigned, float value, int distance) {
  const unsigned lane = threadIdx.x % 32;
  warp->values[lane] = value;
  warp->together.arrive_and_wait();
  const float other = warp->values[lane ^ static_cast<unsigned>(distance)];
  warp->together.arrive_and_wait();
  return other;
}

inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}

inline unsigned pair_of(float first, float second);

// As gpu_attention.cu describes it.
inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  warp->factors[lane] = {a[0], a[1], a[2], a[3], b0, b1};
  warp->together.arrive_and_wait();
  const auto half = [](unsigned pair, unsigned which) { return __uint_as_float(pair >> (16 * which) << 16); };
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned row = g + e / 2 * 8, column = 2 * t + e % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const auto& left = warp->factors[row % 8 * 4 + k % 8 / 2];
      const auto& right = warp->factors[column * 4 + k % 8 / 2];
      c[e] += half(left[row / 8 + 2 * (k / 8)], k % 2) * half(right[4 + k / 8], k % 2);
    }
  }
  warp->together.arrive_and_wait();
}

#define __device__
#define __shared__ static
#define __launch_bounds__(count)
#define KERNEL inline
#define UNROLL
#include "transformer/model/fused/gpu_numbers.cuh"
#define WIDTH 64
namespace width_64 {
#include "transformer/model/fused/gpu_kernels.cu"
}
#undef WIDTH
#define WIDTH 128
namespace width_128 {
#include "transformer/model/fused/gpu_kernels.cu"
}
#undef WIDTH
#define WIDTH 192
namespace width_192 {
#include "transformer/model/fused/gpu_kernels.cu"
}
#undef WIDTH
#define WIDTH 512
namespace width_512 {
#include "transformer/model/fused/gpu_kernels.cu"
}
#undef WIDTH
#define HEAD 32
#define LENGTH 64
namespace short_of_32 {
#include "transformer/model/fused/gpu_attention.cu"
}
#undef LENGTH
#undef HEAD
#define HEAD 64
#define LENGTH 128
namespace long_of_64 {
#include "transformer/model/fused/gpu_attention.cu"
}
#undef LENGTH
#undef HEAD
#undef UNROLL
#undef KERNEL
#undef __launch_bounds__
#undef __shared__
#undef __device__

inline unsigned pair_of(float first, float second) {
  return narrowed(first) | static_cast<unsigned>(narrowed(second)) << 16;
}

}  // namespace emulated

/// For tensors of the CPU, of widths 64, 128, 192 and 512; attention in heads of 32 up to 64 keys, and of 64 beyond.
class EmulatedGpu : public GpuKernels {
 protected:
  void launch(const char* name, const Program& program, int64_t blocks, int64_t threads,
              const void* arguments) const override {
    if (program.width == 0) {
      launch_attention(name, program, blocks, threads, arguments);
      return;
    }
    const int64_t width = program.width;
    const auto all = [&](auto forward, auto backward, auto relu, auto in_pieces, auto one_by_one) {
      const std::string kernel = name;
      if (kernel == "residual_forward") {
        run(forward, *static_cast<const gpu::ResidualForward*>(arguments), blocks, threads);
      } else if (kernel == "residual_backward") {
        run(backward, *static_cast<const gpu::ResidualBackward*>(arguments), blocks, threads);
      } else if (kernel == "relu_backward") {
        run(relu, *static_cast<const gpu::ReluBackward*>(arguments), blocks, threads);
      } else if (kernel == "smoothed_loss_in_pieces") {
        run(in_pieces, *static_cast<const gpu::SmoothedLoss*>(arguments), blocks, threads);
      } else if (kernel == "smoothed_loss_one_by_one") {
        run(one_by_one, *static_cast<const gpu::SmoothedLoss*>(arguments), blocks, threads);
      } else {
        throw std::logic_error("no kernel " + kernel);
      }
    };
#define TRANSFORMER_KERNELS_OF(space)                                                                        \
  all(emulated::space::residual_forward, emulated::space::residual_backward, emulated::space::relu_backward, \
      emulated::space::smoothed_loss_in_pieces, emulated::space::smoothed_loss_one_by_one)
    if (width == 64) {
      TRANSFORMER_KERNELS_OF(width_64);
    } else if (width == 128) {
      TRANSFORMER_KERNELS_OF(width_128);
    } else if (width == 192) {
      TRANSFORMER_KERNELS_OF(width_192);
    } else if (width == 512) {
      TRANSFORMER_KERNELS_OF(width_512);
    } else {
      throw std::logic_error("no emulated kernel for rows of " + std::to_string(width));
    }
#undef TRANSFORMER_KERNELS_OF
  }

 private:
  static void launch_attention(const std::string& name, const Program& program, int64_t blocks, int64_t threads,
                               const void* arguments) {
    const bool is_short = program.length == 64 && program.head == 32;
    if (!is_short && (program.length != 128 || program.head != 64))
      throw std::logic_error("no such emulated attention");
    if (name == "attention_forward") {
      run(is_short ? emulated::short_of_32::attention_forward : emulated::long_of_64::attention_forward,
          *static_cast<const gpu::AttentionForward*>(arguments), blocks, threads);
    } else {
      run(is_short ? emulated::short_of_32::attention_backward : emulated::long_of_64::attention_backward,
          *static_cast<const gpu::AttentionBackward*>(arguments), blocks, threads);
    }
  }

  template <class Arguments>
  static void run(void (*kernel)(Arguments), const Arguments& arguments, int64_t blocks, int64_t threads) {
    std::barrier<> block(threads);
    std::vector<std::unique_ptr<emulated::Warp>> warps;
    for (int64_t i = 0; i < threads / 32; ++i) warps.push_back(std::make_unique<emulated::Warp>());
    std::vector<std::thread> running;
    for (unsigned i = 0; i < static_cast<unsigned>(threads); ++i) {
      running.emplace_back([&, i] {
        emulated::threadIdx.x = i;
        emulated::blockDim.x = static_cast<unsigned>(threads);
        emulated::gridDim.x = static_cast<unsigned>(blocks);
        emulated::warp = warps[i / 32].get();
        emulated::block = &block;
        for (unsigned number = 0; number < emulated::gridDim.x; ++number) {
          emulated::blockIdx.x = number;
          kernel(arguments);
          block.arrive_and_wait();  // what blocks share is one's after the other
        }
      });
    }
    for (auto& thread : running) thread.join();
  }
};

/// Chosen while it lives.
class ChosenEmulatedGpu {
 public:
  ChosenEmulatedGpu() { choose_gpu_kernels(&kernels_); }
  ~ChosenEmulatedGpu() { choose_gpu_kernels(std::nullopt); }
  ChosenEmulatedGpu(const ChosenEmulatedGpu&) = delete;
  ChosenEmulatedGpu& operator=(const ChosenEmulatedGpu&) = delete;

  const GpuKernels& kernels() const { return kernels_; }

 private:
  EmulatedGpu kernels_;
};

}  // namespace transformer::test
