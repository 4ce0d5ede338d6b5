#include "transformer/training/label_smoothing_loss.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>

#include <algorithm>

namespace transformer {

namespace {

using at::Tensor;

// Rows whose logits exist at once: enough of them to keep the products busy, few enough to stay near a cache.
int64_t chunk_rows(const Tensor& hidden, int64_t vocabulary) {
  const int64_t elements = hidden.is_cpu() ? int64_t{1} << 22 : int64_t{1} << 27;
  return std::max<int64_t>(512, elements / vocabulary);
}

// (1 - ε) · nll + ε · (mean over the vocabulary of -log p), summed over rows.
Tensor smoothed(const Tensor& negative_log_likelihood, const Tensor& log_probabilities, double smoothing) {
  if (smoothing == 0) return negative_log_likelihood;
  const auto vocabulary = static_cast<double>(log_probabilities.size(-1));
  return negative_log_likelihood * (1 - smoothing) - log_probabilities.sum() * (smoothing / vocabulary);
}

class ProjectedLoss : public torch::autograd::Function<ProjectedLoss> {
 public:
  // hidden [N, D], weight [V, D], targets [N] without padding -> loss, negative log-likelihood.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& hidden,
                                                const Tensor& weight, const Tensor& targets, double smoothing,
                                                at::ScalarType product_type, bool with_gradient) {
    // Types are chosen here, operation by operation; autocast would choose again.
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto sum_type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const int64_t rows = hidden.size(0), vocabulary = weight.size(0);
    const Tensor inputs = hidden.to(product_type), matrix = weight.to(product_type);

    Tensor loss = at::zeros({}, hidden.options().dtype(sum_type));
    Tensor negative_log_likelihood = at::zeros_like(loss);
    Tensor hidden_gradient, weight_gradient;
    if (with_gradient) {
      hidden_gradient = at::empty(hidden.sizes(), hidden.options());
      weight_gradient = at::zeros(weight.sizes(), weight.options());
    }
    const int64_t step = chunk_rows(hidden, vocabulary);
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      const auto chunk = inputs.narrow(0, first, count);
      const auto target = targets.narrow(0, first, count).unsqueeze(1);
      auto log_probabilities = at::log_softmax(at::mm(chunk, matrix.t()).to(sum_type), 1);  // [count, V]
      const auto chunk_nll = log_probabilities.gather(1, target).sum().neg();
      negative_log_likelihood += chunk_nll;
      loss += smoothed(chunk_nll, log_probabilities, smoothing);
      if (!with_gradient) continue;
      // d loss / d logits = p - (1 - ε) onehot(target) - ε / V
      auto gradient = log_probabilities.exp_();
      if (smoothing > 0) gradient -= smoothing / static_cast<double>(vocabulary);
      gradient.scatter_add_(1, target, at::full_like(target, -(1 - smoothing), gradient.options()));
      const auto factor = gradient.to(product_type);
      hidden_gradient.narrow(0, first, count).copy_(at::mm(factor, matrix));
      if (product_type == weight.scalar_type()) {
        weight_gradient.addmm_(factor.t(), chunk);
      } else {
        weight_gradient += at::mm(factor.t(), chunk);
      }
    }
    context->mark_non_differentiable({negative_log_likelihood});
    if (with_gradient) context->save_for_backward({hidden_gradient, weight_gradient});
    return {loss, negative_log_likelihood};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const auto& scale = upstream[0];
    return {saved[0] * scale.to(saved[0].scalar_type()), saved[1] * scale.to(saved[1].scalar_type()), {}, {}, {}, {}};
  }
};

}  // namespace

LossSums label_smoothing_loss(const Tensor& logits, const Tensor& targets, double smoothing, int64_t padding) {
  const auto sum_type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto flat = targets.reshape({-1});
  const auto kept = (flat != padding).nonzero().squeeze(1);
  const auto log_probabilities =
      at::log_softmax(logits.reshape({-1, logits.size(-1)}).index_select(0, kept).to(sum_type), 1);
  const auto negative_log_likelihood = log_probabilities.gather(1, flat.index_select(0, kept).unsqueeze(1)).sum().neg();
  return {smoothed(negative_log_likelihood, log_probabilities, smoothing), negative_log_likelihood.detach()};
}

LossSums projected_label_smoothing_loss(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                                        double smoothing, int64_t padding, at::ScalarType product_type,
                                        std::optional<int64_t> target_tokens) {
  const auto flat = targets.reshape({-1});
  const auto is_token = flat != padding;
  const auto kept = (target_tokens ? at::nonzero_static(is_token, *target_tokens) : is_token.nonzero()).squeeze(1);
  auto rows = hidden.reshape({-1, hidden.size(-1)});
  if (kept.size(0) < rows.size(0)) rows = rows.index_select(0, kept);
  const bool with_gradient = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  auto sums = ProjectedLoss::apply(rows, weight, flat.index_select(0, kept), smoothing, product_type, with_gradient);
  return {sums[0], sums[1]};
}

}  // namespace transformer
