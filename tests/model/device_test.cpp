#include "transformer/model/device.h"

#include "support.h"
#include "transformer/base/error.h"

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

}  // namespace transformer::test
