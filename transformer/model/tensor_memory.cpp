#include "transformer/model/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>

namespace transformer {

namespace {

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
  // LibTorch has no type of its own for a CPU's memory running out, nor for a GPU's outside its own allocator: where a
  // kernel is loaded, or cuBLAS and NCCL make their workspaces.
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  if (!torch_error) return false;
  const std::string_view text = torch_error->what_without_backtrace();
  return std::ranges::any_of(std::array{"DefaultCPUAllocator", "CUDA error: out of memory", "_STATUS_ALLOC_FAILED"},
                             [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

int64_t peak_tensor_bytes(const std::function<void()>& work) {
  const auto memory = std::make_shared<TensorMemory>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
  work();
  return memory->peak();
}

}  // namespace transformer
