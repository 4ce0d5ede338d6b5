#pragma once

// What is compiled for each instruction set. Every kernel is written once, in an .inc file over vectors of whatever
// width (vectors.inc); each instructions_*.cpp includes those of the purposes that its instruction set serves, and is
// compiled for it (kernels.cmake). instruction_sets.h chooses.
//
// This header is included by files that are compiled for processors other than the one at hand, so it holds
// declarations and what the compiler evaluates: an inline function here could be kept in a newer instruction set's
// version and then run on an older machine.

namespace transformer {

struct Kernels;          // inference_kernels.h
struct ProductKernels;   // product_kernels.h
struct TrainingKernels;  // training_kernels.h

/// The kernels of one instruction set; null where it has nothing of its own for a purpose.
struct InstructionSet {
  const Kernels* inference;         // of decoding with packed weights
  const ProductKernels* products;   // of large matrices, in training
  const TrainingKernels* training;  // of fused sub-layers
};

/// A table that training alone asks for; null in a build without LibTorch, which does not train and need not compile
/// it.
template <class Table>
consteval const Table* of_training([[maybe_unused]] const Table& table) {
#if defined(TRANSFORMER_LIBTORCH)
  return &table;
#else
  return nullptr;
#endif
}

/// What every processor runs: the compiler's own choice.
extern const InstructionSet portable_instructions;
#if defined(__x86_64__)
/// AVX2 with FMA.
extern const InstructionSet avx2_instructions;
/// AVX-512 F, BW, DQ and VL.
extern const InstructionSet avx512_instructions;
/// With products of int8 (VNNI).
extern const InstructionSet avx512_vnni_instructions;
/// With products of bf16.
extern const InstructionSet avx512_bf16_instructions;
/// With products of int8 and bf16 in tiles (AMX).
extern const InstructionSet avx512_amx_instructions;
#elif defined(__aarch64__)
/// NEON with products of int8.
extern const InstructionSet neon_dotprod_instructions;
/// With products of int8 matrices.
extern const InstructionSet neon_i8mm_instructions;
/// With products of bf16 matrices.
extern const InstructionSet neon_bf16_instructions;
#endif

}  // namespace transformer
