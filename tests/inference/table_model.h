#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "catch.h"
#include "transformer/inference/beam_search.h"

namespace transformer::test {

using Tokens = std::vector<int64_t>;

constexpr int64_t begin = 1, end = 0;

/// A model that is a table: log p(. | prefix) of one sentence for every prefix, drawn from the seed when first asked
/// for, so that it depends on the whole history. `sharpness` spreads the distribution.
class RandomTable {
 public:
  RandomTable(uint64_t seed, int64_t vocabulary, double sharpness = 2)
      : seed_(seed), vocabulary_(vocabulary), sharpness_(sharpness) {}

  const std::vector<double>& row(const Tokens& prefix) {
    auto [place, fresh] = rows_.try_emplace(prefix);
    if (!fresh) return place->second;
    uint64_t hash = seed_ * 0x9E3779B97F4A7C15u + 1;
    for (const int64_t token : prefix) hash = (hash ^ static_cast<uint64_t>(token + 1)) * 0xD6E8FEB86659FD93u;
    std::mt19937_64 random(hash);
    std::normal_distribution<double> normal(0, sharpness_);
    std::vector<double>& logits = place->second;
    double sum = 0;
    for (int64_t token = 0; token < vocabulary_; ++token) {
      logits.push_back(normal(random));
      sum += std::exp(logits.back());
    }
    for (double& logit : logits) logit -= std::log(sum);
    return logits;
  }
  int64_t vocabulary() const { return vocabulary_; }

 private:
  uint64_t seed_;
  int64_t vocabulary_;
  double sharpness_;
  std::map<Tokens, std::vector<double>> rows_;
};

/// The step function of several tables, one a sentence. Every sentence's prefixes are followed through `parents`.
class TableSteps {
 public:
  explicit TableSteps(std::vector<RandomTable*> tables) : tables_(std::move(tables)) {}

  StepFunction function() {
    return [this](std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width) {
      std::vector<Row> rows;
      for (size_t i = 0; i < tokens.size(); ++i) {
        Row row = steps == 0 ? Row{parents[i], {}} : rows_.at(parents[i]);
        if (steps > 0) row.prefix.push_back(tokens[i]);
        if (steps == 0) CHECK(tokens[i] == begin);
        if (!rows.empty()) CHECK(rows.back().sentence <= row.sentence);
        rows.push_back(std::move(row));
      }
      rows_ = std::move(rows);
      ++steps;
      most_rows = std::max(most_rows, rows_.size());
      row_counts.push_back(rows_.size());
      Continuations best;
      best.width = std::min(width, tables_.front()->vocabulary());
      for (const auto& row : rows_) {
        const auto& table = tables_[row.sentence]->row(row.prefix);
        Tokens order(table.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return table[a] > table[b]; });
        for (int64_t i = 0; i < best.width; ++i) {
          best.tokens.push_back(order[i]);
          best.log_probabilities.push_back(table[order[i]]);
        }
      }
      return best;
    };
  }

  int64_t steps = 0;
  size_t most_rows = 0;
  std::vector<size_t> row_counts;

 private:
  struct Row {
    int64_t sentence;
    Tokens prefix;
  };
  std::vector<RandomTable*> tables_;
  std::vector<Row> rows_;
};

}  // namespace transformer::test
