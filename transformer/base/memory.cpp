#include "transformer/base/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "transformer/base/control_group.h"

namespace transformer {

namespace {

// Of a line such as "VmHWM:   1234 kB"; 0 where there is none.
int64_t kilobytes_in(const char* file, std::string_view name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':') {
      return std::stoll(line.substr(name.size() + 1));
    }
  }
  return 0;
}

}  // namespace

int64_t resident_bytes() {
  return kilobytes_in("/proc/self/status", "VmRSS") * 1024;
}

int64_t address_bytes() {
  return kilobytes_in("/proc/self/status", "VmSize") * 1024;
}

int64_t peak_resident_bytes() {
  return kilobytes_in("/proc/self/status", "VmHWM") * 1024;
}

void reset_peak_resident_bytes() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

int64_t available_bytes() {
  int64_t available = kilobytes_in("/proc/meminfo", "MemAvailable") * 1024;
  if (available == 0) available = int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);  // where that is hidden
  available = std::min(available, control_group_limits().free_bytes);
  rlimit addresses;
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) {
    available = std::min(available, static_cast<int64_t>(addresses.rlim_cur) - address_bytes());
  }
  return std::max<int64_t>(0, available);
}

}  // namespace transformer
