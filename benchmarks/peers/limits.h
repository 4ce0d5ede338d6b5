#pragma once

#include <string>

#include "transformer/inference/precision.h"

namespace transformer {

/// What one thread of this processor can do at most, measured with nothing in the way; what a program reaches is
/// compared with it.

/// Multiplications with their additions a second, by the instructions that kernels of this name use in a precision: all
/// operands in registers. 0 where this is not known.
double multiply_adds_a_second(Precision precision, const std::string& kernels);

/// Bytes a second that come from memory, not from caches, when they are read in order.
double memory_bytes_a_second();

}  // namespace transformer
