#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "transformer/evaluation/minimum_bayes_risk.h"

namespace transformer {

// What `evaluate mbr` and `translate --mbr` have in common.

/// By what translations are judged against each other.
inline const std::vector<std::string> utility_names = {"chrf", "chrf++", "bleu"};

inline Utility utility_named(const std::string& name) {
  if (name == "bleu") return BleuOptions();
  return ChrfOptions{.word_order = name == "chrf++" ? 2 : 0};
}

/// Puts what has a text and a score in the order of its risk, the least first; scores become expected utilities.
/// `by_score`: how likely each is to be the truth is what its score says, taken for a log-probability; else all are
/// alike.
template <class Scored>
void put_in_order_of_risk(std::vector<Scored>& alternatives, const Utility& utility, bool by_score = false) {
  std::vector<std::string> texts;
  std::vector<double> weights;
  const auto less = [](const Scored& a, const Scored& b) { return a.score < b.score; };
  const auto likeliest = std::max_element(alternatives.begin(), alternatives.end(), less);
  for (const auto& each : alternatives) {
    texts.push_back(each.text);
    if (by_score) weights.push_back(std::exp(each.score - likeliest->score));
  }
  const auto utilities = expected_utilities(texts, weights, utility);
  for (size_t i = 0; i < alternatives.size(); ++i) alternatives[i].score = utilities[i];
  std::stable_sort(alternatives.begin(), alternatives.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
}

}  // namespace transformer
