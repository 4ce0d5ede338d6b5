#include "transformer/model/attention.h"

#include <torch/nn/functional/dropout.h>
#include <torch/nn/init.h>

#include <cmath>
#include <limits>

#include "transformer/model/blockwise_attention.h"
#include "transformer/model/compatibility.h"
#include "transformer/model/fused/sublayer_parts.h"

namespace transformer {

namespace {

using torch::Tensor;

// [B, T, H * width] -> [B, H, T, width], a view.
Tensor split_heads(const Tensor& projected, int64_t heads) {
  return projected.unflatten(-1, {heads, -1}).transpose(1, 2);
}

// Which keys a query may attend to, mask, causality and window together; none: all of them.
std::optional<Tensor> permitted(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  const auto seen = neighbourhood(0, query.size(-2), 0, key.size(-2), options, query.device());
  if (!seen) return options.mask;
  return options.mask ? *options.mask & *seen : seen;
}

// The equation written out, for when the weights are asked for.
Attended attention_with_weights(const Tensor& query, const Tensor& key, const Tensor& value,
                                const AttentionOptions& options) {
  const auto scores = compatibility(query, key, options);  // [B, H, T, S]
  auto weights = masked_softmax(scores, permitted(query, key, options));
  auto dropped = options.dropout > 0 ? torch::dropout(weights, options.dropout, /*train=*/true) : weights;
  return {dropped.matmul(value), weights};
}

// On a CPU the fused attention makes its products a head at a time. In bfloat16 each goes through oneDNN, and setting
// one up costs more than computing it where sentences are short. There one batched product serves all heads of all
// sentences, mask and scale included. In float32 it brought nothing (benchmarks/results/attention-cpu.txt).
bool better_in_batches(const Tensor& query, const Tensor& key) {
  return query.is_cpu() && query.scalar_type() == torch::kBFloat16 && query.size(0) == key.size(0) &&
         query.size(-2) * key.size(-2) <= 128 * 128;
}

Tensor attention_in_batches(const Tensor& query, const Tensor& key, const Tensor& value,
                            const AttentionOptions& options) {
  const int64_t batch = query.size(0), heads = query.size(1), queries = query.size(2), keys = key.size(2);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  const auto flat = [](const Tensor& tensor) { return tensor.reshape({-1, tensor.size(2), tensor.size(3)}); };
  auto mask = permitted(query, key, options);
  Tensor bias = torch::zeros({}, query.options());  // [.., T, S]: 0 where attention is allowed, else -infinity
  std::optional<Tensor> hopeless;                   // queries that may attend to nothing, where there are any
  if (mask) {
    const auto nothing_allowed = mask->any(-1, /*keepdim=*/true).logical_not_();
    if (nothing_allowed.any().item<bool>()) {
      // Their softmax would be 0/0, forward and backward. They attend to everything instead, and get zeros after it.
      hopeless = nothing_allowed.expand({batch, heads, queries, 1}).reshape({-1, queries, 1});
      mask = *mask | nothing_allowed;
    }
    bias = torch::zeros(mask->sizes(), query.options()).masked_fill_(~*mask, -std::numeric_limits<double>::infinity());
  }
  bias = bias.expand({batch, heads, queries, keys}).reshape({-1, queries, keys});
  auto weights = torch::baddbmm(bias, flat(query), flat(key).mT(), 1, scale).softmax(-1);  // [B H, T, S]
  if (hopeless) weights = weights.masked_fill(*hopeless, 0.0);
  if (options.dropout > 0) weights = torch::dropout(weights, options.dropout, /*train=*/true);
  return weights.bmm(flat(value)).view({batch, heads, queries, -1});
}

}  // namespace

Attended attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  if (options.window > 0 && options.window / 2 >= key.size(-2) - 1) {  // reaches everything from everywhere
    auto unrestricted = options;
    unrestricted.window = 0;
    return attention(query, key, value, unrestricted);
  }
  if (options.mask && options.mask->dim() < 2) {  // which LibTorch's attention does not take
    auto widened = options;
    widened.mask = at::atleast_2d(*options.mask);
    return attention(query, key, value, widened);
  }
  if (options.weights) return attention_with_weights(query, key, value, options);
  if (options.window > 0 || options.additive) return {blockwise_attention(query, key, value, options), {}};
  if (query.is_cuda()) {
    if (const int64_t most = most_sentences_at_once(query, key); query.size(0) > most) {
      return attention_in_parts(query, key, value, options, most);
    }
  }
  if (better_in_batches(query, key)) return {attention_in_batches(query, key, value, options), {}};
  if (options.causal && options.mask) {
    return {at::scaled_dot_product_attention(query, key, value, permitted(query, key, options), options.dropout,
                                             /*is_causal=*/false, options.scale),
            {}};
  }
  return {
      at::scaled_dot_product_attention(query, key, value, options.mask, options.dropout, options.causal, options.scale),
      {}};
}

Attended attention_in_parts(const Tensor& query, const Tensor& key, const Tensor& value,
                            const AttentionOptions& options, int64_t most) {
  TORCH_CHECK(most > 0, "attention of ", most, " sentences at a time");
  if (query.size(0) <= most) return attention(query, key, value, options);
  std::vector<Tensor> values, weights;
  for (int64_t first = 0; first < query.size(0); first += most) {
    const int64_t count = std::min(most, query.size(0) - first);
    auto of_part = options;
    if (options.mask && options.mask->dim() == 4 && options.mask->size(0) > 1) {
      of_part.mask = options.mask->narrow(0, first, count);
    }
    auto part =
        attention(query.narrow(0, first, count), key.narrow(0, first, count), value.narrow(0, first, count), of_part);
    values.push_back(std::move(part.values));
    if (part.weights.defined()) weights.push_back(std::move(part.weights));
  }
  return {torch::cat(values), weights.empty() ? Tensor() : torch::cat(weights)};
}

int64_t most_sentences_at_once(const Tensor& query, const Tensor& key) {
  const auto whole_blocks = [](int64_t size) { return (size + 127) / 128 * 128; };
  const int64_t heads = query.size(1), width = std::max<int64_t>(32, query.size(3));
  const int64_t places = heads * whole_blocks(std::max(query.size(2), key.size(2))) * width;
  const int64_t grid = 65535, most_places = (int64_t{1} << 31) - 1;
  return std::max<int64_t>(1, std::min(grid / heads, most_places / places));
}

MultiHeadAttentionImpl::MultiHeadAttentionImpl(const MultiHeadAttentionOptions& options) : options_(options) {
  const int64_t rows = (2 * options.d_k + options.d_v) * options.heads;
  input_weight_ = register_parameter("input_weight", torch::empty({rows, options.d_model}));
  if (options.bias) input_bias_ = register_parameter("input_bias", torch::zeros({rows}));
  output_ = register_module(
      "output",
      torch::nn::Linear(torch::nn::LinearOptions(options.heads * options.d_v, options.d_model).bias(options.bias)));
  // Glorot over each of the three projections by itself: over the joint matrix it would come out too small.
  torch::NoGradGuard no_grad;
  for (auto& part :
       input_weight_.split({options.d_k * options.heads, options.d_k * options.heads, options.d_v * options.heads})) {
    torch::nn::init::xavier_uniform_(part);
  }
  torch::nn::init::xavier_uniform_(output_->weight);
  if (options.bias) torch::nn::init::zeros_(output_->bias);
  if (options.compatibility == ModelSettings::Compatibility::additive) {
    const auto uniform = [&](at::IntArrayRef sizes, int64_t in, int64_t out) {
      const double bound = std::sqrt(6.0 / static_cast<double>(in + out));
      return torch::empty(sizes).uniform_(-bound, bound);  // Glorot's, for every head's own matrix
    };
    additive_query_ = register_parameter("additive_query",
                                         uniform({options.heads, options.d_k, options.d_k}, options.d_k, options.d_k));
    additive_key_ = register_parameter("additive_key",
                                       uniform({options.heads, options.d_k, options.d_k}, options.d_k, options.d_k));
    additive_vector_ = register_parameter("additive_vector", uniform({options.heads, options.d_k}, options.d_k, 1));
  }
}

Tensor MultiHeadAttentionImpl::projected(const Tensor& input, int64_t first_row, int64_t rows) const {
  const auto bias = input_bias_.defined() ? input_bias_.narrow(0, first_row, rows) : Tensor();
  return linear(input, input_weight_.narrow(0, first_row, rows), bias, is_training());
}

MultiHeadAttentionImpl::Heads MultiHeadAttentionImpl::project(const Tensor& input) {
  const int64_t h = options_.heads;
  auto parts = linear(input, input_weight_, input_bias_, is_training())
                   .split({h * options_.d_k, h * options_.d_k, h * options_.d_v}, -1);
  Heads heads{split_heads(parts[0], h), split_heads(parts[1], h), split_heads(parts[2], h)};
  if (additive()) {
    heads.query = heads.query.matmul(additive_query_.mT());
    heads.key = heads.key.matmul(additive_key_.mT());
  }
  return heads;
}

Tensor MultiHeadAttentionImpl::project_query(const Tensor& input) {
  const auto query = split_heads(projected(input, 0, options_.heads * options_.d_k), options_.heads);
  return additive() ? query.matmul(additive_query_.mT()) : query;
}

MultiHeadAttentionImpl::Heads MultiHeadAttentionImpl::project_memory(const Tensor& memory) {
  const int64_t h = options_.heads, query_rows = h * options_.d_k, rows = h * (options_.d_k + options_.d_v);
  auto parts = projected(memory, query_rows, rows).split({h * options_.d_k, h * options_.d_v}, -1);
  const auto key = split_heads(parts[0], h);
  return {{}, additive() ? key.matmul(additive_key_.mT()) : key, split_heads(parts[1], h)};
}

Attended MultiHeadAttentionImpl::attend(const Heads& heads, AttentionOptions call) {
  call.dropout = is_training() ? options_.dropout : 0;
  if (options_.compatibility == ModelSettings::Compatibility::dot_product) call.scale = 1;
  if (additive()) call.additive = additive_vector_;
  auto attended = attention(heads.query, heads.key, heads.value, call);  // [B, H, T, d_v]
  attended.values = linear(attended.values.transpose(1, 2).flatten(2), output_->weight, output_->bias,
                           is_training());  // [B, T, D]
  return attended;
}

std::optional<FusedProjections> MultiHeadAttentionImpl::fusable_projections() const {
  if (additive() || quantized()) return {};
  if (!kernels_take({input_weight_, input_bias_, output_->weight, output_->bias})) return {};
  const bool scaled = options_.compatibility == ModelSettings::Compatibility::scaled_dot_product;
  return FusedProjections{.input_weight = input_weight_,
                          .input_bias = input_bias_,
                          .output_weight = output_->weight,
                          .output_bias = output_->bias,
                          .heads = options_.heads,
                          .d_k = options_.d_k,
                          .d_v = options_.d_v,
                          .scale = scaled ? 1 / std::sqrt(static_cast<double>(options_.d_k)) : 1,
                          .dropout = options_.dropout};
}

Attended MultiHeadAttentionImpl::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                         AttentionOptions call) {
  if (key.is_same(value)) {
    if (query.is_same(key)) return attend(project(query), std::move(call));
    auto heads = project_memory(key);
    heads.query = project_query(query);
    return attend(heads, std::move(call));
  }
  return attend({project_query(query), project_memory(key).key, project_memory(value).value}, std::move(call));
}

}  // namespace transformer
