#include "transformer/model/recurrent_unit.h"

#include <torch/nn/init.h>

#include <vector>

namespace transformer {

using torch::Tensor;

RecurrentUnitImpl::RecurrentUnitImpl(int64_t d_model) {
  input_weight_ = register_parameter("input_weight", torch::empty({2 * d_model, d_model}));
  forget_bias_ = register_parameter("forget_bias", torch::zeros({d_model}));
  torch::NoGradGuard no_grad;
  for (auto& matrix : input_weight_.split(d_model)) torch::nn::init::xavier_uniform_(matrix);
}

RecurrentUnitImpl::Gates RecurrentUnitImpl::gates(const Tensor& x) const {
  const auto type = forget_bias_.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const auto parts = linear(x, input_weight_, {}, is_training()).to(type).chunk(2, -1);
  const auto kept = (parts[0] + forget_bias_).sigmoid();
  return {kept, (1 - kept) * parts[1]};
}

Tensor RecurrentUnitImpl::forward(const Tensor& x) {
  const auto [all_kept, all_added] = gates(x);
  const auto kept = all_kept.unbind(1), added = all_added.unbind(1);
  if (kept.empty()) return all_added.to(x.scalar_type());
  std::vector<Tensor> states;
  for (size_t t = 0; t < kept.size(); ++t) {
    states.push_back(t == 0 ? added[t] : torch::addcmul(added[t], kept[t], states.back()));
  }
  return torch::stack(states, 1).relu().to(x.scalar_type());
}

Tensor RecurrentUnitImpl::step(const Tensor& x, Tensor& state) {
  const auto [kept, added] = gates(x.squeeze(1));
  state = state.defined() ? torch::addcmul(added, kept, state) : added;
  return state.relu().to(x.scalar_type()).unsqueeze(1);
}

}  // namespace transformer
