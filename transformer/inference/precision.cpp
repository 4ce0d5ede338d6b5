#include "transformer/inference/precision.h"

#include <utility>

namespace transformer {

namespace {

constexpr std::pair<Precision, const char*> names[] = {
    {Precision::float32, "float32"}, {Precision::bf16, "bf16"}, {Precision::fp16, "fp16"}, {Precision::int8, "int8"}};

}  // namespace

const char* precision_name(Precision precision) {
  for (const auto& [each, name] : names) {
    if (each == precision) return name;
  }
  return "";
}

std::optional<Precision> precision_named(std::string_view name) {
  for (const auto& [each, known] : names) {
    if (known == name) return each;
  }
  return std::nullopt;
}

}  // namespace transformer
