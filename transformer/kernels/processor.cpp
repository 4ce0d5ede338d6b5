#include "transformer/kernels/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace transformer {

namespace {

#if defined(__x86_64__)
// Whether AMX multiplies int8 and bf16, and the operating system lets this process keep its large registers.
bool has_tiles() {
#if defined(__linux__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (edx & bf16) == 0 || (edx & tile) == 0 || (edx & int8) == 0) {
    return false;
  }
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}
#endif

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
  found.avx512_amx = found.avx512_bf16 && has_tiles();
  found.intel = __builtin_cpu_is("intel");
#elif defined(__aarch64__) && defined(__linux__)
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  found.neon_dotprod = (first & HWCAP_ASIMDDP) != 0;
  found.neon_i8mm = found.neon_dotprod && (second & HWCAP2_I8MM) != 0;
  found.neon_bf16 = found.neon_i8mm && (second & HWCAP2_BF16) != 0;
#endif
  return found;
}

}  // namespace

const Processor& processor() {
  static const Processor found = find_processor();
  return found;
}

}  // namespace transformer
