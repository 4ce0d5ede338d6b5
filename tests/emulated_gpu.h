#pragma once

#include <ucontext.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "transformer/model/fused/gpu_kernels.h"

// The kernels of gpu_kernels.cu on a processor. Each of CUDA's threads is a context that goes on to the next one where
// it waits (threads of the system's take a thousand times as long to wait for each other); blocks come one after
// another.

namespace transformer::test {

namespace emulated {

struct Index {
  unsigned x = 0;
};
inline thread_local Index threadIdx, blockIdx, blockDim, gridDim;

/// The threads of a block.
class Threads {
 public:
  explicit Threads(int64_t count) : contexts_(static_cast<size_t>(count)) {
    for (size_t i = 0; i < contexts_.size(); ++i) stacks_.emplace_back(new std::byte[stack_size]);
  }

  /// `work` once for each, numbered by threadIdx, in turns that end where one gives way.
  void run(std::function<void()> work) {
    running_ = this;
    work_ = std::move(work);
    done_.assign(contexts_.size(), false);
    for (size_t i = 0; i < contexts_.size(); ++i) {
      getcontext(&contexts_[i]);
      contexts_[i].uc_stack.ss_sp = stacks_[i].get();
      contexts_[i].uc_stack.ss_size = stack_size;
      contexts_[i].uc_link = &scheduler_;
      makecontext(&contexts_[i], &Threads::begin, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (size_t i = 0; i < contexts_.size(); ++i) {
        if (done_[i]) continue;
        any = true;
        threadIdx.x = static_cast<unsigned>(i);
        swapcontext(&scheduler_, &contexts_[i]);
      }
    }
  }

  /// Everybody else's turn comes first.
  static void give_way() { swapcontext(&running_->contexts_[threadIdx.x], &running_->scheduler_); }

 private:
  static constexpr size_t stack_size = 128 << 10;

  static void begin() {
    running_->work_();
    running_->done_[threadIdx.x] = true;
  }

  inline static thread_local Threads* running_ = nullptr;

  std::function<void()> work_;
  ucontext_t scheduler_{};
  std::vector<ucontext_t> contexts_;
  std::vector<std::unique_ptr<std::byte[]>> stacks_;
  std::vector<bool> done_;
};

class Barrier {
 public:
  explicit Barrier(int64_t count) : count_(count) {}

  void arrive_and_wait() {
    if (++arrived_ == count_) {
      arrived_ = 0;
      ++phase_;
      return;
    }
    const uint64_t mine = phase_;
    while (phase_ == mine) Threads::give_way();
  }

 private:
  int64_t count_, arrived_ = 0;
  uint64_t phase_ = 0;
};

struct Warp {
  Barrier together{32};
  std::array<float, 32> values{};
  std::array<std::array<unsigned, 6>, 32> factors{};
};
inline thread_local std::vector<Warp> warps_of_block;
inline thread_local Barrier* block = nullptr;

inline Warp& own_warp() {
  return warps_of_block[threadIdx.x / 32];
}

inline void __syncthreads() {
  block->arrive_and_wait();
}

inline float __shfl_xor_sync(unsigned, float value, int distance) {
  const unsigned lane = threadIdx.x % 32;
  own_warp().values[lane] = value;
  own_warp().together.arrive_and_wait();
  const float other = own_warp().values[lane ^ static_cast<unsigned>(distance)];
  own_warp().together.arrive_and_wait();
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
  own_warp().factors[lane] = {a[0], a[1], a[2], a[3], b0, b1};
  own_warp().together.arrive_and_wait();
  const auto half = [](unsigned pair, unsigned which) { return __uint_as_float(pair >> (16 * which) << 16); };
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned row = g + e / 2 * 8, column = 2 * t + e % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const auto& left = own_warp().factors[row % 8 * 4 + k % 8 / 2];
      const auto& right = own_warp().factors[column * 4 + k % 8 / 2];
      c[e] += half(left[row / 8 + 2 * (k / 8)], k % 2) * half(right[4 + k / 8], k % 2);
    }
  }
  own_warp().together.arrive_and_wait();
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
    emulated::Barrier block(threads);
    emulated::block = &block;
    emulated::warps_of_block = std::vector<emulated::Warp>(static_cast<size_t>(threads / 32));
    emulated::blockDim.x = static_cast<unsigned>(threads);
    emulated::gridDim.x = static_cast<unsigned>(blocks);
    emulated::Threads of_block(threads);
    for (unsigned number = 0; number < emulated::gridDim.x; ++number) {
      emulated::blockIdx.x = number;
      of_block.run([&] { kernel(arguments); });
    }
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
