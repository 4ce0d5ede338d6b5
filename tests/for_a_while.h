#pragma once

#include <ATen/Parallel.h>

namespace transformer::test {

/// LibTorch has this many threads while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// These kernels are what current() returns while it lives.
template <auto current, auto choose>
class ChosenKernels {
 public:
  using Kernels = decltype(current());

  explicit ChosenKernels(Kernels kernels) : before_(current()) { choose(kernels); }
  ~ChosenKernels() { choose(before_); }
  ChosenKernels(const ChosenKernels&) = delete;
  ChosenKernels& operator=(const ChosenKernels&) = delete;

 private:
  Kernels before_;
};

}  // namespace transformer::test
