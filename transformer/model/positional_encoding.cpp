#include "transformer/model/positional_encoding.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "transformer/architecture/longest_text.h"
#include "transformer/architecture/sinusoids.h"

namespace transformer {

using torch::Tensor;

Tensor sinusoid_table(int64_t first, int64_t count, int64_t d_model) {
  return torch::tensor(sinusoids(first, count, d_model), torch::kFloat64).view({count, d_model});
}

PositionalEncodingImpl::PositionalEncodingImpl(ModelSettings::Positions kind, int64_t d_model, int64_t max_positions)
    : kind_(kind), d_model_(d_model) {
  if (kind == ModelSettings::Positions::learned) {
    learned_ = register_parameter("weight", torch::randn({max_positions, d_model}) / std::sqrt(d_model));
  }
}

Tensor PositionalEncodingImpl::forward(int64_t first, int64_t count, const Tensor& like) {
  if (kind_ == ModelSettings::Positions::learned) {
    check_positions(first + count, learned_.size(0));
    return learned_.narrow(0, first, count).to(like.device(), like.scalar_type());
  }
  constexpr int64_t usual = 512, kept = 1 << 16;
  if (first + count > kept) return sinusoid_table(first, count, d_model_).to(like.device(), like.scalar_type());
  const std::lock_guard lock(mutex_);
  // Computed on the host and brought to the device once: for the next power of two positions.
  if (!sinusoids_.defined() || sinusoids_.size(0) < first + count || sinusoids_.device() != like.device() ||
      sinusoids_.scalar_type() != like.scalar_type()) {
    const auto positions = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(usual, first + count))));
    const c10::InferenceMode plain(false);  // for training, too, whoever asked first
    const at::NoGradGuard no_grad;
    sinusoids_ = sinusoid_table(0, positions, d_model_).to(like.device(), like.scalar_type());
  }
  return sinusoids_.narrow(0, first, count);
}

}  // namespace transformer
