#include "transformer/base/device_name.h"

#include <charconv>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"

namespace transformer {

std::optional<int> gpu_of(const std::string& device) {
  if (device == "cpu") return std::nullopt;
  if (device == "cuda") return 0;
  if (device.starts_with("cuda:")) {
    int index = 0;
    const char* last = device.data() + device.size();
    const auto [stop, error] = std::from_chars(device.data() + 5, last, index);
    if (error == std::errc() && stop == last && index >= 0 && index < 128) return index;
  }
  throw Error("device " + in_quotes(device), "is no device", "write cpu, cuda, or cuda:1 for the second GPU");
}

}  // namespace transformer
