#include "transformer/base/memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>

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

// The number that a file holds; none where it holds none ("max").
std::optional<int64_t> number_in(const char* file) {
  std::ifstream stream(file);
  int64_t number;
  if (stream >> number) return number;
  return std::nullopt;
}

// Is told of every tensor's memory by LibTorch, in the place of its profiler.
class TensorMemory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (!device.is_cpu()) return;
    const std::lock_guard lock(mutex_);
    current_ += bytes;  // negative: given back
    peak_ = std::max(peak_, current_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t peak() const { return peak_; }

 private:
  std::mutex mutex_;
  int64_t current_ = 0, peak_ = 0;
};

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const c10::OutOfMemoryError*>(&error)) return true;
  // LibTorch has no type of its own for a CPU's memory running out.
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error &&
         std::string_view(torch_error->what_without_backtrace()).find("DefaultCPUAllocator") != std::string_view::npos;
}

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

int64_t peak_tensor_bytes(const std::function<void()>& work) {
  const auto memory = std::make_shared<TensorMemory>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
  work();
  return memory->peak();
}

int64_t available_bytes() {
  int64_t available = kilobytes_in("/proc/meminfo", "MemAvailable") * 1024;
  const auto limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, *limit - *used);
  rlimit addresses;
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) {
    available = std::min(available, static_cast<int64_t>(addresses.rlim_cur) - address_bytes());
  }
  return std::max<int64_t>(0, available);
}

}  // namespace transformer
