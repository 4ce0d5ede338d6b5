#include "transformer/kernels/processor.h"

namespace transformer {

namespace {

Processor find_processor() {
  Processor found = {};
#if defined(__x86_64__)
  // The compiler's own tests also ask whether the operating system keeps the wide registers.
  __builtin_cpu_init();
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  found.avx512 = found.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  found.avx512_vnni = found.avx512 && __builtin_cpu_supports("avx512vnni");
  found.avx512_bf16 = found.avx512_vnni && __builtin_cpu_supports("avx512bf16");
  found.intel = __builtin_cpu_is("intel");
#endif
  return found;
}

}  // namespace

const Processor& processor() {
  static const Processor found = find_processor();
  return found;
}

}  // namespace transformer
