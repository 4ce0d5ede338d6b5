#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "transformer/report/attention_report.h"

namespace transformer::test {

/// A view of 6 layers whose weights differ everywhere, the same every time; rows sum to 1. `weight` makes one, before
/// that, of a number below 1000.
template <class Weight>
AttentionView view_of(AttentionView::Kind kind, std::vector<std::string> queries, std::vector<std::string> keys,
                      std::vector<int64_t> layers, std::vector<int64_t> heads, Weight weight) {
  AttentionView view{kind, std::move(queries), std::move(keys), std::move(layers), std::move(heads), 6, {}};
  std::mt19937 random(1);
  for (size_t row = 0; row < view.layers.size() * view.heads.size() * view.queries.size(); ++row) {
    std::vector<double> weights;
    double sum = 0;
    for (size_t key = 0; key < view.keys.size(); ++key) {
      weights.push_back(weight(random() % 1000));
      sum += weights.back();
    }
    for (const double one : weights) view.weights.push_back(static_cast<float>(one / sum));
  }
  return view;
}

}  // namespace transformer::test
