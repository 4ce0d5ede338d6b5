#include "transformer/training/rdrop_loss.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>

#include <algorithm>

#include "transformer/model/differentiable_once.h"
#include "transformer/training/projected_chunks.h"

namespace transformer {

namespace {

using at::Tensor;

class ProjectedRDrop : public torch::autograd::Function<ProjectedRDrop> {
 public:
  // hidden [2N, D], the first passes before the second, weight [V, D], bias [V], targets [N] without padding.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& hidden,
                                                const Tensor& weight, const std::optional<Tensor>& given_bias,
                                                const Tensor& targets, double smoothing, double strength,
                                                at::ScalarType product_type, bool with_gradient) {
    const Tensor bias = given_bias.value_or(Tensor());
    // Types are chosen here, operation by operation; autocast would choose again.
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto sum_type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const int64_t rows = targets.size(0), vocabulary = weight.size(0);
    const Tensor inputs = hidden.to(product_type), matrix = weight.to(product_type);

    Tensor loss = at::zeros({}, hidden.options().dtype(sum_type));
    Tensor negative_log_likelihood = at::zeros_like(loss);
    ProjectionGradients gradients;
    if (with_gradient) gradients = ProjectionGradients(hidden, weight, bias);
    const int64_t step = chunk_rows(hidden, vocabulary) / 2;
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      const auto target = targets.narrow(0, first, count).unsqueeze(1);
      Tensor chunks[2], logs[2], probabilities[2];
      for (int pass = 0; pass < 2; ++pass) {
        chunks[pass] = inputs.narrow(0, pass * rows + first, count);
        auto logits = product(chunks[pass], matrix.t());  // [count, V]
        if (bias.defined()) logits.add_(bias);
        logs[pass] = at::log_softmax(logits.to(sum_type), 1);
        const auto chunk_nll = logs[pass].gather(1, target).sum().neg();
        negative_log_likelihood += chunk_nll / 2;
        // Smoothed as in ProjectedLoss.
        loss += (smoothing > 0 ? chunk_nll + logits.gather(1, target).sum(sum_type) * smoothing : chunk_nll) / 2;
        probabilities[pass] = logs[pass].exp();
      }
      for (int pass = 0; pass < 2; ++pass) {
        const auto &p = probabilities[pass], &q = probabilities[1 - pass];
        auto ratio = logs[pass] - logs[1 - pass];
        const auto divergence = (p * ratio).sum(1, /*keepdim=*/true);  // KL(p‖q)
        loss += divergence.sum() * (strength / 4);
        if (!with_gradient) continue;
        // d KL(p‖q) / d logits of p = p (log p - log q - KL(p‖q)), and d KL(q‖p) / d logits of p = p - q.
        auto gradient = ratio.sub_(divergence - 1).mul_(strength / 4).add_(0.5).mul_(p).sub_(q, strength / 4);
        gradient.scatter_add_(1, target, at::full_like(target, -(1 - smoothing) / 2, gradient.options()));
        gradients.add(gradient.to(product_type), chunks[pass], matrix, pass * rows + first);
      }
    }
    if (smoothing > 0) {
      loss -= sum_of_mean_logits(inputs, matrix, bias, sum_type) * (smoothing / 2);
      if (with_gradient) gradients.add_to_all(-smoothing / (2 * static_cast<double>(vocabulary)), inputs, matrix);
    }
    context->mark_non_differentiable({negative_log_likelihood});
    if (with_gradient) context->save_for_backward(gradients.list());
    return {loss, negative_log_likelihood};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upstream) {
    require_first_derivative("the loss of R-Drop has",
                             "label_smoothing_loss and torch::kl_div of the model's logits have them");
    const auto& scale = upstream[0];
    torch::autograd::variable_list scaled(8);
    const auto saved = context->get_saved_variables();
    for (size_t i = 0; i < saved.size(); ++i) {
      if (saved[i].defined()) scaled[i] = saved[i] * scale.to(saved[i].scalar_type());
    }
    return scaled;
  }
};

}  // namespace

LossSums projected_rdrop_loss(const Tensor& hidden, const Tensor& weight, const Tensor& targets, double smoothing,
                              double strength, int64_t padding, at::ScalarType product_type,
                              std::optional<int64_t> target_tokens, const Tensor& bias) {
  const auto flat = targets.reshape({-1});
  TORCH_CHECK(hidden.numel() == 2 * flat.numel() * hidden.size(-1), "R-Drop needs two passes over every target");
  const auto is_token = flat != padding;
  const auto kept = (target_tokens ? at::nonzero_static(is_token, *target_tokens) : is_token.nonzero()).squeeze(1);
  auto rows = hidden.reshape({-1, hidden.size(-1)});
  if (kept.size(0) < flat.size(0)) rows = rows.index_select(0, at::cat({kept, kept + flat.size(0)}));
  const bool with_gradient = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad() ||
                                                            (bias.defined() && bias.requires_grad()));
  auto sums = ProjectedRDrop::apply(rows, weight, bias.defined() ? std::optional(bias) : std::nullopt,
                                    flat.index_select(0, kept), smoothing, strength, product_type, with_gradient);
  return {sums[0], sums[1]};
}

}  // namespace transformer
