#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace transformer::test {

using Ids = std::vector<int64_t>;

inline Ids ids_of(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

/// What another system numbers our pieces by.
struct Numbering {
  Ids theirs;                       // of each of our ids
  std::map<int64_t, int64_t> ours;  // of each of theirs

  Ids to_ours(const Ids& given) const {
    Ids ids;
    for (const int64_t id : given) ids.push_back(ours.at(id));
    return ids;
  }
  Ids to_theirs(const Ids& given) const {
    Ids ids;
    for (const int64_t id : given) ids.push_back(theirs.at(static_cast<size_t>(id)));
    return ids;
  }
};

}  // namespace transformer::test
