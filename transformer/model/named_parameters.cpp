#include "transformer/model/named_parameters.h"

#include <unordered_set>

namespace transformer {

NamedParameters named_parameters(const torch::nn::Module& module) {
  NamedParameters parameters;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

}  // namespace transformer
