// A file of torch.save: a zip archive of a pickle and numbers, or the older row of pickles.

#include "transformer/interop/torch_file.h"

#include <memory>
#include <vector>

#include "fuzz/fuzz.h"

using namespace transformer;

namespace {

const fuzz::Target target("torch_file", [](std::string_view input) {
  for (const auto& [name, weight] : torch_weights(input, nullptr, "file")) {
    if (!is_floating_point(weight.type) || weight.shape.empty()) continue;
    double elements = 1;
    for (const int64_t size : weight.shape) elements *= static_cast<double>(size);
    fuzz::require(elements <= static_cast<double>(input.size()), "a tensor's numbers are in the file");
    std::vector<float> numbers(static_cast<size_t>(elements));
    weight.rows(0, weight.shape[0], numbers.data());
  }
});

}  // namespace
