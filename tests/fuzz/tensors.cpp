// A safetensors file.

#include "transformer/model/tensors.h"

#include <ATen/ATen.h>

#include "fuzz/fuzz.h"
#include "transformer/base/error.h"
#include "transformer/base/tensor_file.h"

using namespace transformer;

namespace {

const fuzz::Target target("tensors", [](std::string_view input) {
  const auto file = fuzz::write_scratch("given.safetensors", input);
  TensorReader reader(file);
  for (const auto& [name, entry] : reader.entries()) {
    if (entry.shape.empty() || entry.shape[0] == 0) continue;
    std::vector<unsigned char> last(static_cast<size_t>(entry.bytes() / entry.shape[0]));
    reader.read_rows(name, entry.shape[0] - 1, 1, last.data());
    std::vector<unsigned char> all(static_cast<size_t>(entry.bytes()));
    reader.read(name, all.data());
    fuzz::require(std::equal(last.rbegin(), last.rend(), all.rbegin()), "a row is the tensor's");
  }
  const auto given = read_tensors(file);
  const auto again = fuzz::scratch() / "again.safetensors";
  write_tensors(again, given.tensors, given.metadata);
  const auto read = read_tensors(again);
  fuzz::require(read.metadata == given.metadata, "metadata are written as they were read");
  fuzz::require(read.tensors.size() == given.tensors.size(), "all tensors are written");
  for (const auto& [name, tensor] : given.tensors) {
    const auto& other = read.tensors.at(name);
    const auto bytes = static_cast<size_t>(tensor.nbytes());
    fuzz::require(other.sizes() == tensor.sizes() && other.scalar_type() == tensor.scalar_type() &&
                      std::string_view(static_cast<const char*>(other.const_data_ptr()), bytes) ==
                          std::string_view(static_cast<const char*>(tensor.const_data_ptr()), bytes),
                  "tensors are written as they were read");
  }
});

}  // namespace
