#include "transformer/base/memory.h"

#include <c10/util/Exception.h>

#include <new>
#include <string_view>

namespace transformer {

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const c10::OutOfMemoryError*>(&error)) return true;
  // LibTorch has no type of its own for a CPU's memory running out.
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error &&
         std::string_view(torch_error->what_without_backtrace()).find("DefaultCPUAllocator") != std::string_view::npos;
}

}  // namespace transformer
