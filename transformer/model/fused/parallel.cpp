#include "transformer/model/fused/parallel.h"

#include <ATen/Parallel.h>

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "LibTorch's threads are OpenMP's: this file has to be compiled with it"
#endif

namespace transformer {

void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body) {
  at::parallel_for(begin, end, grain, body);
}

}  // namespace transformer
