#include "transformer/training/label_smoothing_loss.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/autograd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "transformer/kernels/training_kernels.h"
#include "transformer/model/differentiable_once.h"
#include "transformer/model/fused/fused_layers.h"
#include "transformer/model/fused/gpu_kernels.h"
#include "transformer/model/fused/parallel.h"
#include "transformer/training/projected_chunks.h"

namespace transformer {

namespace {

using at::Tensor;

// The kernels of training on a CPU that take the logits of these factors; null for others.
const TrainingKernels* kernels_for(const Tensor& inputs) {
  const bool taken = inputs.is_cpu() && (inputs.scalar_type() == at::kFloat || inputs.scalar_type() == at::kBFloat16);
  return taken ? training_kernels() : nullptr;
}

template <class T>
std::pair<double, double> judge_rows(const TypedTrainingKernels<T>& kernels, const Tensor& logits,
                                     const Tensor& targets, double smoothing, bool with_gradient) {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  auto* data = static_cast<T*>(logits.data_ptr());
  const auto* target = targets.data_ptr<int64_t>();
  std::vector<RowLoss> losses(static_cast<size_t>(rows));
  parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      TORCH_CHECK_INDEX(target[row] >= 0 && target[row] < vocabulary, "target ", target[row],
                        " is not in a vocabulary of ", vocabulary);
      losses[row] = kernels.smoothed_loss(data + row * vocabulary, vocabulary, target[row], smoothing, with_gradient);
    }
  });
  double loss = 0, negative_log_likelihood = 0;
  for (const auto& row : losses) {
    negative_log_likelihood += row.negative_log_likelihood;
    // A mean that is infinite counts only where it is asked for.
    loss += smoothing > 0 ? (1 - smoothing) * row.negative_log_likelihood + smoothing * row.mean
                          : row.negative_log_likelihood;
  }
  return {loss, negative_log_likelihood};
}

// Sums of loss and negative log-likelihood over rows of `logits` [N, V], which then hold their gradient where that is
// wanted.
std::pair<double, double> judge(const TrainingKernels& kernels, const Tensor& logits, const Tensor& targets,
                                double smoothing, bool with_gradient) {
  RECORD_FUNCTION("transformer::smoothed_loss", std::vector<c10::IValue>({logits}));
  return logits.scalar_type() == at::kFloat ? judge_rows(kernels.in_float, logits, targets, smoothing, with_gradient)
                                            : judge_rows(kernels.in_bf16, logits, targets, smoothing, with_gradient);
}

// The kernels of a GPU that take the logits of these factors; null for others.
const GpuKernels* gpu_kernels_for(const Tensor& inputs, int64_t vocabulary) {
  if (!training_kernels() || inputs.scalar_type() != at::kBFloat16 || vocabulary > std::numeric_limits<int>::max())
    return nullptr;
  return gpu_kernels(inputs.device());
}

// As `judge`: a tensor of the sums of negative log-likelihood and of the mean of all, for which no host waits.
Tensor judge_on_gpu(const GpuKernels& kernels, const Tensor& logits, const Tensor& targets, double smoothing,
                    bool with_gradient) {
  RECORD_FUNCTION("transformer::smoothed_loss", std::vector<c10::IValue>({logits}));
  const auto losses = at::empty({logits.size(0), 2}, logits.options().dtype(at::kFloat));
  TORCH_CHECK(targets.device() == logits.device(), "targets are on ", targets.device(), ", logits on ",
              logits.device());
  const auto contiguous = targets.contiguous();
  kernels.start({.logits = static_cast<gpu::Bf16*>(logits.data_ptr()),
                 .targets = reinterpret_cast<const long long*>(contiguous.const_data_ptr<int64_t>()),
                 .vocabulary = static_cast<int>(logits.size(1)),
                 .smoothing = static_cast<float>(smoothing),
                 .with_gradient = with_gradient,
                 .losses = static_cast<float*>(losses.data_ptr())},
                logits.size(0));
  return losses.sum(0);
}

class ProjectedLoss : public torch::autograd::Function<ProjectedLoss> {
 public:
  // hidden [N, D], weight [V, D], bias [V], targets [N] without padding -> loss, negative log-likelihood. LibTorch
  // takes no undefined tensor for an input, so that a bias that is not there is none.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& hidden,
                                                const Tensor& weight, const std::optional<Tensor>& given_bias,
                                                const Tensor& targets, double smoothing, at::ScalarType product_type,
                                                bool with_gradient) {
    const Tensor bias = given_bias.value_or(Tensor());
    // Types are chosen here, operation by operation; autocast would choose again.
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto sum_type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const int64_t rows = hidden.size(0), vocabulary = weight.size(0);
    const Tensor inputs = hidden.to(product_type), matrix = weight.to(product_type);

    Tensor loss = at::zeros({}, hidden.options().dtype(sum_type));
    Tensor negative_log_likelihood = at::zeros_like(loss);
    ProjectionGradients gradients;
    if (with_gradient) gradients = ProjectionGradients(hidden, weight, bias);
    const auto* on_gpu = gpu_kernels_for(inputs, vocabulary);
    const auto* on_cpu = kernels_for(inputs);
    const int64_t step = chunk_rows(hidden, vocabulary, on_gpu != nullptr);
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      const auto chunk = inputs.narrow(0, first, count);
      const auto target = targets.narrow(0, first, count).unsqueeze(1);
      auto logits = product(chunk, matrix.t());  // [count, V]
      if (bias.defined()) logits.add_(bias);
      if (on_gpu) {
        const auto sums = judge_on_gpu(*on_gpu, logits, targets.narrow(0, first, count), smoothing, with_gradient);
        negative_log_likelihood += sums[0];
        // A mean that is infinite counts only where it is asked for.
        loss += smoothing > 0 ? sums[0] * (1 - smoothing) + sums[1] * smoothing : sums[0];
        if (with_gradient) gradients.add(logits, chunk, matrix, first);
        continue;
      }
      if (on_cpu) {
        const auto sums = judge(*on_cpu, logits, targets.narrow(0, first, count), smoothing, with_gradient);
        loss += sums.first;
        negative_log_likelihood += sums.second;
        if (with_gradient) gradients.add(logits, chunk, matrix, first);
        continue;
      }
      // Over logits z, (1 - ε) nll + ε mean(-log p) is nll + ε z[target] - ε mean(z); their gradient is
      // p - (1 - ε) onehot(target) - ε / V. What the mean adds to either needs no pass over them: below.
      const auto log_probabilities = at::log_softmax(logits.to(sum_type), 1);
      const auto of_targets = log_probabilities.gather(1, target);
      const auto chunk_nll = of_targets.sum().neg();
      negative_log_likelihood += chunk_nll;
      loss += smoothing > 0 ? chunk_nll + logits.gather(1, target).sum(sum_type) * smoothing : chunk_nll;
      if (!with_gradient) continue;
      auto gradient = product_type == sum_type ? log_probabilities : at::empty_like(logits);
      at::exp_out(gradient, log_probabilities);
      gradient.scatter_(1, target, (of_targets.exp() - (1 - smoothing)).to(product_type));
      gradients.add(gradient, chunk, matrix, first);
    }
    if (!on_gpu && !on_cpu && smoothing > 0) {
      loss -= sum_of_mean_logits(inputs, matrix, bias, sum_type) * smoothing;
      if (with_gradient) gradients.add_to_all(-smoothing / static_cast<double>(vocabulary), inputs, matrix);
    }
    context->mark_non_differentiable({negative_log_likelihood});
    if (with_gradient) context->save_for_backward(gradients.list());
    return {loss, negative_log_likelihood};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upstream) {
    require_first_derivative("the loss that projects has", "label_smoothing_loss of the model's logits has them");
    const auto saved = context->get_saved_variables();
    const auto& scale = upstream[0];
    const auto scaled = [&](const Tensor& gradient) {
      return gradient.defined() ? gradient * scale.to(gradient.scalar_type()) : Tensor();
    };
    return {scaled(saved[0]), scaled(saved[1]), scaled(saved[2]), {}, {}, {}, {}};
  }
};

// Of another number of targets, those that are too many, or the rows that are, would be left out without a word.
void check_targets(const Tensor& rows, const Tensor& targets) {
  TORCH_CHECK(rows.dim() > 0 && rows.sizes().slice(0, static_cast<size_t>(rows.dim() - 1)) == targets.sizes(),
              "targets ", targets.sizes(), " for ", rows.sizes());
}

}  // namespace

LossSums label_smoothing_loss(const Tensor& logits, const Tensor& targets, double smoothing, int64_t padding) {
  check_targets(logits, targets);
  const auto sum_type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto flat = targets.reshape({-1});
  const auto kept = (flat != padding).nonzero().squeeze(1);
  const auto log_probabilities =
      at::log_softmax(logits.reshape({-1, logits.size(-1)}).index_select(0, kept).to(sum_type), 1);
  const auto negative_log_likelihood = log_probabilities.gather(1, flat.index_select(0, kept).unsqueeze(1)).sum().neg();
  const auto share = smoothing / static_cast<double>(logits.size(-1));
  // A mean that is infinite counts only where it is asked for.
  const auto loss = smoothing > 0 ? negative_log_likelihood * (1 - smoothing) - log_probabilities.sum() * share
                                  : negative_log_likelihood;
  return {loss, negative_log_likelihood.detach()};
}

LossSums projected_label_smoothing_loss(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                                        double smoothing, int64_t padding, at::ScalarType product_type,
                                        std::optional<int64_t> target_tokens, const Tensor& bias) {
  check_targets(hidden, targets);
  const auto flat = targets.reshape({-1});
  const auto is_token = flat != padding;
  const auto kept = (target_tokens ? at::nonzero_static(is_token, *target_tokens) : is_token.nonzero()).squeeze(1);
  auto rows = hidden.reshape({-1, hidden.size(-1)});
  if (kept.size(0) < rows.size(0)) rows = rows.index_select(0, kept);
  const bool with_gradient = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad() ||
                                                            (bias.defined() && bias.requires_grad()));
  auto sums = ProjectedLoss::apply(rows, weight, bias.defined() ? std::optional(bias) : std::nullopt,
                                   flat.index_select(0, kept), smoothing, product_type, with_gradient);
  return {sums[0], sums[1]};
}

}  // namespace transformer
