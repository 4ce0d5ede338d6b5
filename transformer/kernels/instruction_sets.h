#pragma once

#include <vector>

#include "transformer/kernels/instruction_set.h"

// The one place where kernels are chosen.

namespace transformer {

/// What this processor runs, the best first, the portable one last.
const std::vector<const InstructionSet*>& runnable_instruction_sets();

/// Their kernels for one purpose, the best first: runnable_kernels(&InstructionSet::training).
template <class Table>
std::vector<const Table*> runnable_kernels(const Table* InstructionSet::*purpose) {
  std::vector<const Table*> kernels;
  for (const auto* instructions : runnable_instruction_sets()) {
    if (instructions->*purpose) kernels.push_back(instructions->*purpose);
  }
  return kernels;
}

}  // namespace transformer
