#include "transformer/inference/ensemble.h"

#include <fmt/format.h>

#include <numeric>

#include "transformer/base/error.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

Ensemble Ensemble::validated() const {
  if (models.empty()) throw Error("ensemble", "has no model");
  Ensemble ensemble = *this;
  if (weights.empty()) ensemble.weights.assign(models.size(), 1);
  if (ensemble.weights.size() != models.size()) {
    throw Error("weights", fmt::format("there are {}, and {} models", weights.size(), models.size()),
                "give one for each model");
  }
  for (const double weight : ensemble.weights) {
    if (!(weight > 0 && weight <= 1e6)) {
      throw Error("weights", fmt::format("{} is none; expected more than 0, at most 1000000", weight));
    }
  }
  const double sum = std::accumulate(ensemble.weights.begin(), ensemble.weights.end(), 0.0);
  for (double& weight : ensemble.weights) weight /= sum;
  for (const auto& model : models) {
    const auto &first = models.front()->settings(), &other = model->settings();
    if (models.front()->projection().outputs() == model->projection().outputs() &&
        first.source_vocabulary_size == other.source_vocabulary_size &&
        first.vocabulary_size == other.vocabulary_size) {
      continue;
    }
    throw Error("ensemble", "its models have vocabularies of different sizes", "take models of one vocabulary");
  }
  return ensemble;
}

}  // namespace transformer
