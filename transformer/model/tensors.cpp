#include "transformer/model/tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "transformer/base/finite.h"
#include "transformer/base/tensor_file.h"

namespace transformer {

namespace {

constexpr std::pair<ElementType, at::ScalarType> types[] = {
    {ElementType::float64, at::kDouble},    {ElementType::float32, at::kFloat}, {ElementType::float16, at::kHalf},
    {ElementType::bfloat16, at::kBFloat16}, {ElementType::int64, at::kLong},    {ElementType::int32, at::kInt},
    {ElementType::int16, at::kShort},       {ElementType::int8, at::kChar},     {ElementType::uint8, at::kByte},
    {ElementType::boolean, at::kBool}};

ElementType element_type(const std::string& name, at::ScalarType type) {
  const auto* found =
      std::find_if(std::begin(types), std::end(types), [&](const auto& known) { return known.second == type; });
  if (found != std::end(types)) return found->first;
  throw std::invalid_argument(
      fmt::format("tensor '{}' has element type {}, which is not written", name, c10::toString(type)));
}

at::ScalarType scalar_type(ElementType type) {
  return std::find_if(std::begin(types), std::end(types), [&](const auto& known) { return known.first == type; })
      ->second;
}

}  // namespace

void write_tensors(const std::filesystem::path& file, const TensorMap& tensors,
                   const std::map<std::string, std::string>& metadata) {
  std::map<std::string, TensorSource> sources;
  at::Tensor current;  // one at a time, so that tensors on a device do not all have a copy here
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.layout() != at::kStrided) {
      throw std::invalid_argument("tensor '" + name + "' cannot be written");
    }
    sources[name] = {element_type(name, tensor.scalar_type()), tensor.sizes().vec(), [&current, &tensor = tensor] {
                       current = tensor.detach().to(at::kCPU).resolve_neg().contiguous();
                       return current.const_data_ptr();
                     }};
  }
  write_tensor_file(file, sources, metadata);
}

TensorFile read_tensors(const std::filesystem::path& file) {
  const TensorReader in(file);
  TensorFile result{{}, in.metadata()};
  for (const auto& [name, entry] : in.entries()) {
    auto tensor = at::empty(entry.shape, at::TensorOptions().dtype(scalar_type(entry.type)));
    in.read(name, tensor.mutable_data_ptr());
    result.tensors.emplace(name, std::move(tensor));
  }
  return result;
}

at::Tensor id_tensor(int64_t rows, int64_t columns, std::span<const int64_t> ids) {
  auto tensor = at::empty({rows, columns}, at::kLong);
  if (tensor.numel() != static_cast<int64_t>(ids.size())) throw std::invalid_argument("id_tensor: rows times columns");
  std::copy(ids.begin(), ids.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

bool all_finite(const at::Tensor& values) {
  if (values.is_cpu() && values.scalar_type() == at::kFloat && values.is_contiguous()) {
    return all_finite(std::span(values.const_data_ptr<float>(), static_cast<size_t>(values.numel())));
  }
  return values.detach().isfinite().all().item<bool>();
}

void check_finite(const std::string& origin, const std::string& name, const at::Tensor& values) {
  if (!all_finite(values)) refuse_not_finite(origin, name);
}

}  // namespace transformer
