#include "transformer/kernels/instruction_sets.h"

#include "transformer/kernels/processor.h"

namespace transformer {

namespace {

std::vector<const InstructionSet*> find_instruction_sets() {
  std::vector<const InstructionSet*> found;
#if defined(__x86_64__)
  if (processor().avx512_amx) found.push_back(&avx512_amx_instructions);
  if (processor().avx512_bf16) found.push_back(&avx512_bf16_instructions);
  if (processor().avx512_vnni) found.push_back(&avx512_vnni_instructions);
  if (processor().avx512) found.push_back(&avx512_instructions);
  if (processor().avx2) found.push_back(&avx2_instructions);
#elif defined(__aarch64__)
  if (processor().neon_bf16) found.push_back(&neon_bf16_instructions);
  if (processor().neon_i8mm) found.push_back(&neon_i8mm_instructions);
  if (processor().neon_dotprod) found.push_back(&neon_dotprod_instructions);
#endif
  found.push_back(&portable_instructions);
  return found;
}

}  // namespace

const std::vector<const InstructionSet*>& runnable_instruction_sets() {
  static const auto& found = *new auto(find_instruction_sets());  // threads may ask while the process ends
  return found;
}

}  // namespace transformer
