#include "transformer/model/device.h"

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>

#include "support.h"
#include "transformer/base/error.h"
#include "transformer/model/tensor_memory.h"

namespace transformer::test {

TEST_CASE("devices are opened by name, and what is none is refused with its name") {
  CHECK(open_device("cpu").is_cpu());
  for (const std::string name : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:999"}) {
    INFO(name);
    CHECK_THROWS_WITH(open_device(name), Contains("'" + name + "': is no device"));
  }
  // No machine has so many, with CUDA or without.
  CHECK_THROWS_AS(open_device("cuda:120"), Error);
}

TEST_CASE("memory that has run out is told from other failures, wherever it ran out") {
  const auto is = [](const std::string& message) {
    try {
      TORCH_CHECK(false, message);
    } catch (const std::exception& error) {
      return is_out_of_memory(error);
    }
    return false;
  };
  CHECK(is("[enforce fail at alloc_cpu.cpp:119] . DefaultCPUAllocator: can't allocate memory"));
  CHECK(is("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"));
  CHECK(is("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"));
  CHECK(is_out_of_memory(std::bad_alloc()));
  CHECK(is_out_of_memory(c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "CUDA out of memory.")));
  CHECK_FALSE(is("CUDA error: an illegal memory access was encountered"));
  CHECK_FALSE(is("shape '[2]' is invalid"));
  CHECK_FALSE(is_out_of_memory(std::runtime_error("out of memory")));
}

}  // namespace transformer::test
