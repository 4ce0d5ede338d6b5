#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace transformer {

/// body(first, last) on parts of [begin, end) that fill it, of `grain` or more each where there are several: on
/// LibTorch's threads (at::set_num_threads), or on the caller's alone where there is one, within another such loop too.
///
/// at::parallel_for itself is a template, which knows only one thread in code that is compiled without OpenMP; here it
/// is compiled with it. What body throws is thrown here.
void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body);

}  // namespace transformer
