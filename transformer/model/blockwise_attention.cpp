#include "transformer/model/blockwise_attention.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/custom_class.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "transformer/model/compatibility.h"
#include "transformer/model/differentiable_once.h"

namespace transformer {

namespace {

using torch::Tensor;

struct Block {
  int64_t first_query, queries, first_key, keys;
};

// Queries of a block. With a window as many as it has on a side, so that a block sees about three times its length, but
// enough of them to keep the products busy. Additive scores need d_k numbers each before they are summed, so memory
// decides.
int64_t block_queries(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  const int64_t reach = options.window / 2;
  int64_t count = options.window > 0 ? std::max<int64_t>(reach, 64) : query.size(2);
  if (options.additive) {
    const int64_t budget = query.is_cpu() ? int64_t{1} << 22 : int64_t{1} << 26;
    const int64_t pair = query.size(0) * query.size(1) * query.size(3);
    const auto elements = [&] {
      return pair * count * (options.window > 0 ? std::min(key.size(2), count + 2 * reach) : key.size(2));
    };
    while (count > 1 && elements() > budget) count = (count + 1) / 2;
  }
  return std::clamp<int64_t>(count, 1, std::max<int64_t>(query.size(2), 1));
}

std::vector<Block> blocks_of(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  const int64_t length = query.size(2), step = block_queries(query, key, options), reach = options.window / 2;
  std::vector<Block> blocks;
  for (int64_t first = 0; first < length; first += step) {
    const int64_t queries = std::min(step, length - first);
    int64_t first_key = 0, last_key = key.size(2);
    if (options.window > 0) {
      first_key = std::max<int64_t>(0, first - reach);
      last_key = std::min(last_key, first + queries + reach);
    }
    if (options.causal) last_key = std::min(last_key, first + queries);
    blocks.push_back({first, queries, first_key, last_key - first_key});
  }
  return blocks;
}

// The block's part of a mask that is broadcastable to [B, H, T, S], causality and window included.
std::optional<Tensor> block_mask(const Block& block, const AttentionOptions& options, torch::Device device) {
  const auto near = neighbourhood(block.first_query, block.queries, block.first_key, block.keys, options, device);
  if (!options.mask) return near;
  auto part = *options.mask;
  if (part.dim() >= 1 && part.size(-1) > 1) part = part.narrow(-1, block.first_key, block.keys);
  if (part.dim() >= 2 && part.size(-2) > 1) part = part.narrow(-2, block.first_query, block.queries);
  return near ? part & *near : part;
}

// `kept`: the weights that dropout leaves, bool; undefined without dropout.
Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
              const Tensor& kept, const AttentionOptions& options) {
  auto weights = masked_softmax(compatibility(query, key, options), mask);
  if (kept.defined()) weights = weights * kept;
  if (kept.defined() && options.dropout < 1) weights = weights / (1 - options.dropout);
  return weights.matmul(value);
}

// What the backward pass needs beside the tensors.
struct Call : torch::CustomClassHolder {
  AttentionOptions options;
  std::vector<Block> blocks;
  std::vector<Tensor> kept;  // a block each; empty without dropout
};

Tensor attend_in_blocks(const Tensor& query, const Tensor& key, const Tensor& value, Call& call) {
  const int64_t batch = query.size(0), heads = query.size(1);
  // The layout in which the heads lie side by side, as the output projection takes them.
  auto values = torch::empty({batch, query.size(2), heads, value.size(3)}, query.options()).transpose(1, 2);
  for (const auto& block : call.blocks) {
    Tensor kept;
    if (call.options.dropout > 0) {
      kept = torch::empty({batch, heads, block.queries, block.keys}, query.options().dtype(torch::kBool));
      kept.bernoulli_(1 - call.options.dropout);
      call.kept.push_back(kept);
    }
    values.narrow(2, block.first_query, block.queries)
        .copy_(attend(query.narrow(2, block.first_query, block.queries), key.narrow(2, block.first_key, block.keys),
                      value.narrow(2, block.first_key, block.keys), block_mask(block, call.options, query.device()),
                      kept, call.options));
  }
  return values;
}

class BlockwiseAttention : public torch::autograd::Function<BlockwiseAttention> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& query, const Tensor& key,
                        const Tensor& value, const std::optional<Tensor>& vector,
                        const c10::intrusive_ptr<Call>& call) {
    auto values = attend_in_blocks(query, key, value, *call);
    context->save_for_backward({query, key, value, vector.value_or(Tensor())});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return values;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upstream) {
    require_first_derivative("attention in blocks has",
                             "attention whose weights are asked for (AttentionOptions) has them");
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const auto held = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const Call&>(*held);
    const Tensor &query = saved[0], &key = saved[1], &value = saved[2];
    auto options = call.options;

    // A key belongs to several blocks; what they add up to is kept in a precision in which small terms count.
    const auto sums = query.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    const auto zeros = [&](const Tensor& like) { return torch::zeros(like.sizes(), like.options().dtype(sums)); };
    auto query_gradient = torch::empty(query.sizes(), query.options());
    auto key_gradient = zeros(key), value_gradient = zeros(value);
    Tensor vector_gradient;
    if (options.additive) vector_gradient = zeros(saved[3]);
    for (size_t i = 0; i < call.blocks.size(); ++i) {
      const auto& block = call.blocks[i];
      const auto part = [](const Tensor& whole, int64_t first, int64_t count) {
        return whole.narrow(2, first, count).detach().requires_grad_();
      };
      torch::autograd::variable_list inputs = {part(query, block.first_query, block.queries),
                                               part(key, block.first_key, block.keys),
                                               part(value, block.first_key, block.keys)};
      if (options.additive) {
        options.additive = saved[3].detach().requires_grad_();
        inputs.push_back(*options.additive);
      }
      torch::autograd::variable_list gradients;
      {
        torch::AutoGradMode with_gradients(true);
        const auto values = attend(inputs[0], inputs[1], inputs[2], block_mask(block, options, query.device()),
                                   call.kept.empty() ? Tensor() : call.kept[i], options);
        gradients = torch::autograd::grad({values}, inputs, {upstream[0].narrow(2, block.first_query, block.queries)});
      }
      query_gradient.narrow(2, block.first_query, block.queries).copy_(gradients[0]);
      key_gradient.narrow(2, block.first_key, block.keys).add_(gradients[1]);
      value_gradient.narrow(2, block.first_key, block.keys).add_(gradients[2]);
      if (options.additive) vector_gradient.add_(gradients[3]);
    }
    if (options.additive) vector_gradient = vector_gradient.to(saved[3].scalar_type());
    return {query_gradient, key_gradient.to(key.scalar_type()), value_gradient.to(value.scalar_type()), vector_gradient,
            Tensor()};
  }
};

}  // namespace

Tensor blockwise_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                           const AttentionOptions& options) {
  // Types are those of the heads; autocast would choose again, and differently in the backward pass.
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  auto call = c10::make_intrusive<Call>();
  call->options = options;
  call->blocks = blocks_of(query, key, options);
  if (torch::GradMode::is_enabled()) return BlockwiseAttention::apply(query, key, value, options.additive, call);
  return attend_in_blocks(query, key, value, *call);
}

}  // namespace transformer
