#pragma once

#include <cstdint>

namespace transformer {

/// Bytes of this process in the machine's memory now.
int64_t resident_bytes();
/// The same at most since the last reset.
int64_t peak_resident_bytes();
/// Lets the peak begin anew. That may be forbidden (in some containers); the peak is then that of the process's whole
/// life.
void reset_peak_resident_bytes();

/// Bytes of this process's address space, whether memory lies behind them or not.
int64_t address_bytes();

/// Bytes that this process can still take: what the machine has free or could free, within the limits of its control
/// group and of RLIMIT_AS.
int64_t available_bytes();

}  // namespace transformer
