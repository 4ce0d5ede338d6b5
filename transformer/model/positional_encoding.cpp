#include "transformer/model/positional_encoding.h"

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
    table_ = register_parameter("weight", torch::randn({max_positions, d_model}) / std::sqrt(d_model));
  } else {
    constexpr int64_t usual_length = 512;  // longer inputs compute the rest anew
    table_ = register_buffer("sinusoids", sinusoid_table(0, usual_length, d_model));
  }
}

Tensor PositionalEncodingImpl::forward(int64_t first, int64_t count, const Tensor& like) {
  if (first + count <= table_.size(0)) return table_.narrow(0, first, count).to(like.device(), like.scalar_type());
  if (kind_ == ModelSettings::Positions::learned) check_positions(first + count, table_.size(0));
  constexpr int64_t kept = 1 << 16;
  if (first + count > kept) return sinusoid_table(first, count, d_model_).to(like.device(), like.scalar_type());
  const std::lock_guard lock(mutex_);
  // Computed on the host and brought to the device once: for the next power of two positions.
  if (!longer_.defined() || longer_.size(0) < first + count || longer_.device() != like.device() ||
      longer_.scalar_type() != like.scalar_type()) {
    const auto positions = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(first + count)));
    const c10::InferenceMode plain(false);  // for training, too, whoever asked first
    const at::NoGradGuard no_grad;
    longer_ = sinusoid_table(0, positions, d_model_).to(like.device(), like.scalar_type());
  }
  return longer_.narrow(0, first, count);
}

}  // namespace transformer
