#include "peers/limits.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "transformer/inference/packed_matrix.h"

namespace transformer {

namespace {

/// How often a second `work`, which does so many things, does one; the best of some tries.
template <class Work>
double rate_of(double things, Work work) {
  double best = 0;
  for (int attempt = 0; attempt < 7; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::max(best, things / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

#if defined(__x86_64__)

constexpr int64_t turns = 4'000'000;
constexpr int chains = 12;  // independent sums: more than an instruction takes cycles

// Operands and sums stay in registers, and the compiler knows nothing of either.
#define TRANSFORMER_CHAINS(INSTRUCTION)                                                                             \
  for (int64_t turn = 0; turn < turns; ++turn) {                                                                    \
    asm volatile(INSTRUCTION(0) INSTRUCTION(1) INSTRUCTION(2) INSTRUCTION(3) INSTRUCTION(4) INSTRUCTION(5)          \
                     INSTRUCTION(6) INSTRUCTION(7) INSTRUCTION(8) INSTRUCTION(9) INSTRUCTION(10) INSTRUCTION(11)::  \
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
                           "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                                            \
  }

#define TRANSFORMER_FMA_256(I) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #I "\n\t"
#define TRANSFORMER_FMA_512(I) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" #I "\n\t"
#define TRANSFORMER_BF16(I) "vdpbf16ps %%zmm14, %%zmm15, %%zmm" #I "\n\t"
#define TRANSFORMER_VNNI(I) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #I "\n\t"
// Without an instruction of its own an int8 product takes three: pairs, fours, the sum.
#define TRANSFORMER_INT8_256(I)                                                                            \
  "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n\tvpmaddwd %%ymm13, %%ymm12, %%ymm12\n\tvpaddd %%ymm12, %%ymm" #I \
  ", %%ymm" #I "\n\t"
#define TRANSFORMER_INT8_512(I)                                                                            \
  "vpmaddubsw %%zmm14, %%zmm15, %%zmm12\n\tvpmaddwd %%zmm13, %%zmm12, %%zmm12\n\tvpaddd %%zmm12, %%zmm" #I \
  ", %%zmm" #I "\n\t"

// The registers are cleared first: numbers that are none, or nearly none, may be slow.
#define TRANSFORMER_LIMIT(NAME, MULTIPLY_ADDS, INSTRUCTION)                                                        \
  double NAME() {                                                                                                  \
    asm volatile("vzeroall" ::                                                                                     \
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",    \
                       "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                                               \
    return rate_of(static_cast<double>(turns * chains * (MULTIPLY_ADDS)), [] { TRANSFORMER_CHAINS(INSTRUCTION) }); \
  }

TRANSFORMER_LIMIT(fma_256, 8, TRANSFORMER_FMA_256)
TRANSFORMER_LIMIT(fma_512, 16, TRANSFORMER_FMA_512)
TRANSFORMER_LIMIT(bf16_512, 32, TRANSFORMER_BF16)
TRANSFORMER_LIMIT(vnni_512, 64, TRANSFORMER_VNNI)
TRANSFORMER_LIMIT(int8_256, 32, TRANSFORMER_INT8_256)
TRANSFORMER_LIMIT(int8_512, 64, TRANSFORMER_INT8_512)

struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

/// Whole tiles: 16 rows, 16 columns, 64 bytes of the depth.
template <bool bf16>
__attribute__((target("amx-tile,amx-int8,amx-bf16"))) double tiles() {
  TileShapes shapes;
  std::fill(shapes.row_bytes, shapes.row_bytes + 8, uint16_t{64});
  std::fill(shapes.rows, shapes.rows + 8, uint8_t{16});
  _tile_loadconfig(&shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  constexpr int64_t tile_turns = 200'000, at_once = 4;
  const double rate = rate_of(static_cast<double>(tile_turns * at_once * 16 * 16 * (bf16 ? 32 : 64)), [] {
    for (int64_t turn = 0; turn < tile_turns; ++turn) {
      if constexpr (bf16) {
        asm volatile(
            "tdpbf16ps %tmm5, %tmm4, %tmm0\n\ttdpbf16ps %tmm5, %tmm4, %tmm1\n\t"
            "tdpbf16ps %tmm5, %tmm4, %tmm2\n\ttdpbf16ps %tmm5, %tmm4, %tmm3\n\t");
      } else {
        asm volatile(
            "tdpbusd %tmm5, %tmm4, %tmm0\n\ttdpbusd %tmm5, %tmm4, %tmm1\n\t"
            "tdpbusd %tmm5, %tmm4, %tmm2\n\ttdpbusd %tmm5, %tmm4, %tmm3\n\t");
      }
    }
  });
  _tile_release();
  return rate;
}

#endif

}  // namespace

double multiply_adds_a_second(Precision precision, const std::string& kernels) {
#if defined(__x86_64__)
  const bool avx512 = kernels.starts_with("avx512"), tile = kernels == "avx512-amx";
  const bool vnni = avx512 && kernels != "avx512", bf16 = tile || kernels == "avx512-bf16";
  if (!avx512 && kernels != "avx2") return 0;
  if (precision == Precision::int8) return tile ? tiles<false>() : vnni ? vnni_512() : avx512 ? int8_512() : int8_256();
  if (precision == Precision::bf16 && bf16) return tile ? tiles<true>() : bf16_512();
  return avx512 ? fma_512() : fma_256();
#else
  return 0;
#endif
}

double memory_bytes_a_second() {
  const Buffer<unsigned char> buffer(int64_t{512} << 20);  // in large pages, as weights are
  auto* data = const_cast<unsigned char*>(buffer.data());
  std::memset(data, 1, static_cast<size_t>(buffer.size()));
  uint64_t sum = 0;
  const double rate = rate_of(static_cast<double>(buffer.size()), [&] {
    // Streams side by side, as many as keep all of the memory's lanes at work.
    constexpr int64_t streams = 8;
    const int64_t words = buffer.size() / streams / 8;
    uint64_t sums[streams][8] = {};
    for (int64_t i = 0; i + 8 <= words; i += 8) {
      for (int64_t stream = 0; stream < streams; ++stream) {
        uint64_t line[8];
        std::memcpy(line, data + (stream * words + i) * 8, sizeof line);
        for (int k = 0; k < 8; ++k) sums[stream][k] += line[k];
      }
    }
    for (const auto& stream : sums) {
      for (const uint64_t value : stream) sum += value;
    }
  });
  asm volatile("" ::"r"(sum));
  return rate;
}

}  // namespace transformer
