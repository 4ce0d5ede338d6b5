#pragma once

namespace transformer {

/// What this processor can do, and its operating system lets it: each set of instructions with those before it.
struct Processor {
  bool avx2;          // and FMA
  bool avx512;        // F, BW, DQ and VL
  bool avx512_vnni;   // products of int8
  bool avx512_bf16;   // products of bf16
  bool avx512_amx;    // products of int8 and bf16 in tiles
  bool intel;         // made by Intel, whose libraries know it best
  bool neon_dotprod;  // products of int8
  bool neon_i8mm;     // of their matrices
  bool neon_bf16;     // of matrices of bf16
};

/// Asked once, and then remembered.
const Processor& processor();

}  // namespace transformer
