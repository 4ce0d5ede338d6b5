#include "transformer/interop/foreign_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"

namespace transformer {
namespace {

std::vector<int64_t> without_ones(std::vector<int64_t> shape) {
  shape.erase(std::remove(shape.begin(), shape.end(), 1), shape.end());
  return shape;
}

}  // namespace

ForeignWeights::ForeignWeights(StoredWeights weights, std::string origin, std::string kind)
    : weights_(std::move(weights)), origin_(std::move(origin)), kind_(std::move(kind)) {}

void ForeignWeights::refuse(const std::string& what) const {
  throw Error(origin_, what, "such a model cannot be imported");
}

std::vector<int64_t> ForeignWeights::shape(const std::string& name) const {
  const auto found = weights_.find(name);
  return found == weights_.end() ? std::vector<int64_t>() : found->second.shape;
}

std::vector<float> ForeignWeights::read(const std::string& name, const std::vector<int64_t>& shape) {
  const auto found = weights_.find(name);
  if (found == weights_.end()) refuse(fmt::format("the weights '{}' are missing", name));
  const auto& weight = found->second;
  if (weight.shape.empty() || without_ones(weight.shape) != without_ones(shape)) {
    refuse(fmt::format("'{}' has the shape [{}], the model's sizes ask for [{}]", name, fmt::join(weight.shape, ", "),
                       fmt::join(shape, ", ")));
  }
  if (!is_floating_point(weight.type)) refuse(fmt::format("'{}' holds integers", name));
  used_.insert(name);
  return read_weight(weight, name, origin_);
}

void ForeignWeights::check_all_used() const {
  for (const auto& [name, weight] : weights_) {
    if (!used_.contains(name)) refuse(fmt::format("the weights {} are no part of {}", in_quotes(name), kind_));
  }
}

}  // namespace transformer
