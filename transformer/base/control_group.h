#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>

namespace transformer {

/// What the control groups that this process is in allow it, as containers, systemd and Slurm set them.
struct ControlGroupLimits {
  double processors = std::numeric_limits<double>::infinity();  // that may be busy at a time, on the average
  int64_t free_bytes = std::numeric_limits<int64_t>::max();     // of memory, that can still be taken
};

/// Of versions 1 and 2, the narrowest of a group and of those around it; what cannot be read limits nothing. `root`:
/// where `proc` and `sys` are.
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

}  // namespace transformer
