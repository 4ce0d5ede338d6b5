#pragma once

#include <ATen/ATen.h>

#include <set>
#include <string>
#include <vector>

#include "transformer/model/named_parameters.h"
#include "transformer/model/tensors.h"

namespace transformer {

/// What turns gradients into other weights. Adam is the one of §5.3; another says how it steps and what a run that goes
/// on needs of it.
class Optimizer {
 public:
  /// The parameters are updated in place.
  explicit Optimizer(NamedParameters parameters) : parameters_(std::move(parameters)) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update with the gradients that the parameters hold. Parameters without a gradient stay as they are. Where
  /// `norm`, the gradients' joint norm, is given and not finite, nothing may change.
  virtual void step(double rate, const at::Tensor& norm) = 0;
  /// Moments and the like by name, for a checkpoint: the tensors themselves, no copies.
  virtual TensorMap state() const = 0;
  /// All ranks. What a checkpoint keeps of it, which rank 0 writes: state(), unless every rank has but a part of that.
  virtual TensorMap gather_state() { return state(); }
  /// Throws Error (naming `where`) if a tensor is missing or of another shape, or one that state() does not know is
  /// there: what an optimizer needs to go on it makes when it is made.
  virtual void load(const TensorMap& state, const std::string& where);

  /// Drops all gradients.
  virtual void clear_gradients();
  /// The joint norm of all gradients, a float32 number on their device; float64 where one of them is.
  virtual at::Tensor gradient_norm() const;
  /// Scales all gradients, whose joint norm is `norm`, so that it is at most `limit`.
  virtual void clip(double limit, const at::Tensor& norm);

 protected:
  /// Throws Error (naming `where`) for the first name in `state` that `known` does not hold.
  static void check_known(const TensorMap& state, const std::set<std::string>& known, const std::string& where);
  /// What it updates, by name.
  const NamedParameters& parameters() const { return parameters_; }
  /// Of the parameters, in their order.
  std::vector<at::Tensor> gradients() const;

 private:
  NamedParameters parameters_;
};

}  // namespace transformer
