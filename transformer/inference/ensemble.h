#pragma once

#include <memory>
#include <vector>

namespace transformer {

class InferenceModel;

/// Models of the same vocabularies that decode together: each step's distribution is a mean of theirs.
struct Ensemble {
  /// Of what the mean is.
  enum class Average {
    probabilities,     // p = sum of weight p_i
    log_probabilities  // log p = sum of weight log p_i, which is not normalised again
  };
  std::vector<std::shared_ptr<const InferenceModel>> models;  // at least one
  std::vector<double> weights = {};                           // none: all weigh the same. They need not sum to 1
  Average average = Average::probabilities;                   // the mean is weighted by `weights`

  /// Weights that sum to 1, one a model. Throws Error where there is no model, for weights of another number or that
  /// are not positive, and for models whose vocabularies are of different sizes.
  Ensemble validated() const;
};

}  // namespace transformer
