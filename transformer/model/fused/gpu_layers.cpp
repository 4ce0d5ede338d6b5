#include "transformer/model/fused/gpu_layers.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_addmm_activation.h>
#include <ATen/record_function.h>
#include <torch/autograd.h>
#include <torch/custom_class.h>
#include <torch/nn/functional/dropout.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "transformer/model/fused/gpu_kernels.h"
#include "transformer/model/fused/products.h"
#include "transformer/model/fused/sublayer_parts.h"

namespace transformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

gpu::Dropout drawn_dropout(double rate) {
  if (rate <= 0) return {};
  const auto threshold = static_cast<unsigned>(std::min<long>(std::lround(rate * 65536), 65535));
  return {drawn_seed(), threshold, static_cast<float>(1 / (1 - threshold / 65536.0))};
}

// What a backward pass needs beside tensors.
struct Extra : torch::CustomClassHolder {
  gpu::Dropout dropout = {};
  double epsilon = 0;
  bool relu = false, hands_on = false;
};

Extra& extra_of(AutogradContext* context) {
  return static_cast<Extra&>(*context->saved_data["extra"].toCapsule());
}

template <class T>
T* data(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

const GpuKernels& kernels_for(const Tensor& x) {
  const auto* kernels = gpu_kernels(x.device());
  TORCH_CHECK(kernels, "the kernels of this device were taken away between a pass and its way back");
  return *kernels;
}

// As kernels read it, in pieces of up to 32 bytes: what somebody else cut out of the middle of a tensor may begin
// anywhere.
Tensor readable(const Tensor& x) {
  const auto contiguous = x.contiguous();
  return reinterpret_cast<uintptr_t>(contiguous.const_data_ptr()) % 32 == 0 ? contiguous : contiguous.clone();
}

Tensor rows_of(const Tensor& x) {
  return readable(x).view({-1, x.size(-1)});
}

Tensor empty_as(const Tensor& rows, at::ScalarType type) {
  return at::empty(rows.sizes(), rows.options().dtype(type).requires_grad(false));
}

Tensor as_product(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  if (!bias.defined()) return relu ? at::mm(x, weight.t()).relu_() : at::mm(x, weight.t());
  return relu ? at::_addmm_activation(bias.to(x.scalar_type()), x, weight.t()) : product(x, weight.t(), bias);
}

// Of a residual connection's way back.
struct Sums {
  Tensor branch, gain, bias;  // [D], float32
};

Sums started(gpu::ResidualBackward arguments, const Tensor& rows) {
  const int64_t width = rows.size(1), blocks = residual_backward_blocks(rows.size(0));
  const auto sums = at::empty({blocks, 3, width}, rows.options().dtype(at::kFloat).requires_grad(false));
  arguments.sums = data<float>(sums);
  arguments.rows = rows.size(0);
  kernels_for(rows).start(arguments, width, blocks);
  const auto all = sums.sum(0).unbind();  // which share little memory
  return {all[0], all[1], all[2]};
}

// The gradient before the activation, and its sum over rows.
std::pair<Tensor, Tensor> relu_backward(const Tensor& given, const Tensor& activated) {
  if (given.size(1) % 8 != 0 || given.size(1) > std::numeric_limits<int>::max()) {
    const auto result = at::threshold_backward(given, activated, 0);
    return {result, result.sum(0, /*keepdim=*/false, at::kFloat)};
  }
  const int blocks = relu_backward_blocks(given.size(0), given.size(1));
  const auto result = empty_as(given, at::kBFloat16);
  const auto sums = at::empty({blocks, given.size(1)}, given.options().dtype(at::kFloat).requires_grad(false));
  kernels_for(given).start(gpu::ReluBackward{.given = data<gpu::Bf16>(given),
                                             .activated = data<gpu::Bf16>(activated),
                                             .result = data<gpu::Bf16>(result),
                                             .sums = data<float>(sums),
                                             .rows = given.size(0),
                                             .columns = static_cast<int>(given.size(1)),
                                             .row_blocks = blocks});
  return {result, sums.sum(0)};
}

// x [B, T, D], normalised first where there are `gain` and `norm_bias`, projected by weight [R, D]: [B, T, R] in
// bfloat16, and x itself, for the residual connection, whose gradient then comes back here.
class Projection : public torch::autograd::Function<Projection> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                               const OptionalTensor& bias, const OptionalTensor& gain, const OptionalTensor& norm_bias,
                               const c10::intrusive_ptr<Extra>& extra) {
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto rows = rows_of(x);
    Tensor input, normalised, scale;
    if (gain) {
      input = empty_as(rows, at::kBFloat16);
      normalised = empty_as(rows, at::kBFloat16);
      scale = at::empty({rows.size(0)}, rows.options().requires_grad(false));
      kernels_for(x).start(gpu::ResidualForward{.stream = data<float>(rows),
                                                .gain = data<float>(*gain),
                                                .bias = data<float>(*norm_bias),
                                                .epsilon = static_cast<float>(extra->epsilon),
                                                .rounded = data<gpu::Bf16>(input),
                                                .normalised = data<gpu::Bf16>(normalised),
                                                .scale = data<float>(scale),
                                                .rows = rows.size(0)},
                           rows.size(1));
    } else {
      input = rows.to(at::kBFloat16);
    }
    const auto matrix = weight.to(at::kBFloat16);
    auto result = as_product(input, matrix, bias.value_or(Tensor()), extra->relu);
    context->save_for_backward({input, matrix, bias.value_or(Tensor()), extra->relu ? result : Tensor(), normalised,
                                scale, gain.value_or(Tensor())});
    context->saved_data["extra"] = c10::IValue::make_capsule(extra);
    auto sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    if (!extra->hands_on) return {result.view(sizes)};
    return {result.view(sizes), x};
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    require_first_derivative_of_sublayer();
    const auto& extra = extra_of(context);
    const auto saved = context->get_saved_variables();
    const auto &input = saved[0], &matrix = saved[1], &bias = saved[2], &relu = saved[3], &normalised = saved[4],
               &scale = saved[5], &gain = saved[6];
    auto given = rows_of(upstream[0]);
    Tensor of_bias;
    if (relu.defined()) {
      std::tie(given, of_bias) = relu_backward(given, relu);
    } else if (bias.defined()) {
      of_bias = given.sum(0, /*keepdim=*/false, at::kFloat);
    }
    if (!bias.defined()) of_bias = Tensor();
    const auto of_weight = product_in_float(given.t(), input);
    const auto past = extra.hands_on ? rows_of(upstream[1]) : Tensor();
    auto sizes = upstream[0].sizes().vec();
    sizes.back() = input.size(1);
    if (!normalised.defined()) {
      // What comes back from the residual connection is new there, and nobody else's.
      const auto of_x = past.defined() ? past : empty_as(input, at::kFloat);
      product_into(of_x, given, matrix, past.defined());
      return {of_x.view(sizes), of_weight, of_bias, {}, {}, {}};
    }
    const auto of_input = at::mm(given, matrix), of_x = empty_as(input, at::kFloat);
    const auto sums = started({.given = nullptr,
                               .given_rounded = data<gpu::Bf16>(of_input),
                               .past = data<float>(past),
                               .normalised = data<gpu::Bf16>(normalised),
                               .scale = data<float>(scale),
                               .gain = data<float>(gain),
                               .stream = data<float>(of_x)},
                              input);
    return {of_x.view(sizes), of_weight, of_bias, sums.gain, sums.bias, {}};
  }
};

// The residual connection of stream [B, T, D] with values [B, T, R], bfloat16, projected by weight [D, R]; normalised
// where there are `gain` and `norm_bias`.
class Junction : public torch::autograd::Function<Junction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& stream, const Tensor& values, const Tensor& weight,
                        const OptionalTensor& bias, const OptionalTensor& gain, const OptionalTensor& norm_bias,
                        const c10::intrusive_ptr<Extra>& extra) {
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto rows = rows_of(stream), input = rows_of(values), matrix = weight.to(at::kBFloat16);
    const auto branch = as_product(input, matrix, bias.value_or(Tensor()), /*relu=*/false);
    const auto result = empty_as(rows, at::kFloat);
    Tensor normalised, scale;
    if (gain) {
      normalised = empty_as(rows, at::kBFloat16);
      scale = at::empty({rows.size(0)}, rows.options().requires_grad(false));
    }
    kernels_for(rows).start(gpu::ResidualForward{.stream = data<float>(rows),
                                                 .branch = data<gpu::Bf16>(branch),
                                                 .dropout = extra->dropout,
                                                 .gain = gain ? data<float>(*gain) : nullptr,
                                                 .bias = gain ? data<float>(*norm_bias) : nullptr,
                                                 .epsilon = static_cast<float>(extra->epsilon),
                                                 .result = data<float>(result),
                                                 .normalised = data<gpu::Bf16>(normalised),
                                                 .scale = data<float>(scale),
                                                 .rows = rows.size(0)},
                            rows.size(1));
    context->save_for_backward({input, matrix, bias.value_or(Tensor()), normalised, scale, gain.value_or(Tensor())});
    context->saved_data["extra"] = c10::IValue::make_capsule(extra);
    return result.view(stream.sizes());
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    require_first_derivative_of_sublayer();
    const auto saved = context->get_saved_variables();
    const auto &input = saved[0], &matrix = saved[1], &bias = saved[2], &normalised = saved[3], &scale = saved[4],
               &gain = saved[5];
    const auto given = rows_of(upstream[0]);
    const auto of_branch = empty_as(given, at::kBFloat16);
    const auto of_stream = normalised.defined() ? empty_as(given, at::kFloat) : given;
    const auto sums = started({.given = data<float>(given),
                               .normalised = data<gpu::Bf16>(normalised),
                               .scale = data<float>(scale),
                               .gain = data<float>(gain),
                               .dropout = extra_of(context).dropout,
                               .stream = normalised.defined() ? data<float>(of_stream) : nullptr,
                               .branch = data<gpu::Bf16>(of_branch)},
                              given);
    const auto of_values = at::mm(of_branch, matrix), of_weight = product_in_float(of_branch.t(), input);
    auto sizes = upstream[0].sizes().vec();
    sizes.back() = input.size(1);
    return {of_stream.view(upstream[0].sizes()),
            of_values.view(sizes),
            of_weight,
            bias.defined() ? sums.branch : Tensor(),
            normalised.defined() ? sums.gain : Tensor(),
            normalised.defined() ? sums.bias : Tensor(),
            {}};
  }
};

// How heads attend; the projections are [.., 3 H d] of queries, keys and values, or [.., H d] and [.., 2 H d].
struct Heads : torch::CustomClassHolder {
  int64_t count = 0, width = 0;
  bool causal = false;
  double scale = 1;
};

// Attention over few keys, from projections as they lie, without a copy: queries [B, T, ..], keys and values [B, S, ..]
// where they are not with them, `allowed` [B, S] bool -> [B, T, H d].
class ShortAttention : public torch::autograd::Function<ShortAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& given_query, const OptionalTensor& given_memory,
                        const OptionalTensor& allowed, const c10::intrusive_ptr<Heads>& heads) {
    const auto query = readable(given_query), memory = given_memory ? readable(*given_memory) : Tensor();
    auto result = at::empty({query.size(0), query.size(1), heads->count * heads->width}, query.options());
    const auto normaliser = at::empty({query.size(0), heads->count, query.size(1)}, query.options().dtype(at::kFloat));
    kernels_for(query).start(arguments(query, memory, allowed.value_or(Tensor()), *heads, result, normaliser),
                             heads->width, query.size(0));
    context->save_for_backward({query, memory, allowed.value_or(Tensor()), result, normaliser});
    context->saved_data["heads"] = c10::IValue::make_capsule(heads);
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    require_first_derivative_of_sublayer();
    const auto saved = context->get_saved_variables();
    const auto held = context->saved_data["heads"].toCapsule();
    const auto& heads = static_cast<Heads&>(*held);
    const auto &query = saved[0], &memory = saved[1], &allowed = saved[2], &result = saved[3], &normaliser = saved[4];
    const auto given = readable(upstream[0]);
    const auto of_query = at::empty_like(query), of_memory = memory.defined() ? at::empty_like(memory) : Tensor();
    const auto places = parts_of(of_query, of_memory, heads);
    kernels_for(query).start({.forward = arguments(query, memory, allowed, heads, result, normaliser),
                              .given = data<gpu::Bf16>(given),
                              .query = places.query,
                              .key = places.key,
                              .value = places.value},
                             heads.width, query.size(0));
    return {of_query, of_memory, {}, {}};
  }

 private:
  struct Parts {
    gpu::Bf16 *query, *key, *value;
  };
  static Parts parts_of(const Tensor& query, const Tensor& memory, const Heads& heads) {
    auto* const first = data<gpu::Bf16>(query);
    const int64_t width = heads.count * heads.width;
    auto* const key = memory.defined() ? data<gpu::Bf16>(memory) : first + width;
    return {first, key, key + width};
  }

  static gpu::AttentionForward arguments(const Tensor& query, const Tensor& memory, const Tensor& allowed,
                                         const Heads& heads, const Tensor& result, const Tensor& normaliser) {
    const auto parts = parts_of(query, memory, heads);
    const auto& over = memory.defined() ? memory : query;
    return {.query = parts.query,
            .key = parts.key,
            .value = parts.value,
            .query_row = query.stride(1),
            .query_sentence = query.stride(0),
            .key_row = over.stride(1),
            .key_sentence = over.stride(0),
            .allowed = data<bool>(allowed),
            .heads = static_cast<int>(heads.count),
            .queries = static_cast<int>(query.size(1)),
            .keys = static_cast<int>(over.size(1)),
            .causal = heads.causal,
            .scale = static_cast<float>(heads.scale),
            .result = data<gpu::Bf16>(result),
            .normaliser = data<float>(normaliser)};
  }
};

bool is_short(const Tensor& x, const Tensor& over, const AttentionOptions& call, const FusedProjections& p) {
  if (call.window > 0 || p.dropout > 0 || p.d_k != p.d_v || (p.d_k != 32 && p.d_k != 64)) return false;
  if (over.dim() != 3 || over.size(0) != x.size(0) || over.numel() == 0) return false;
  if (std::max(x.size(1), over.size(1)) > 128) return false;
  return covers_keys(call.mask, over.size(0), over.size(1));
}

struct Projected {
  Tensor values, stream;
};

Projected projected(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu,
                    const FusedResidual& residual) {
  auto extra = c10::make_intrusive<Extra>();
  extra->epsilon = residual.epsilon;
  extra->relu = relu;
  extra->hands_on = true;
  auto outputs = Projection::apply(x, weight, some(bias), residual.before ? some(residual.gain) : std::nullopt,
                                   residual.before ? some(residual.bias) : std::nullopt, extra);
  return {outputs[0], outputs[1]};
}

Tensor joined(const Tensor& stream, const Tensor& values, const Tensor& weight, const Tensor& bias,
              const FusedResidual& residual) {
  auto extra = c10::make_intrusive<Extra>();
  extra->epsilon = residual.epsilon;
  extra->dropout = drawn_dropout(residual.dropout);
  return Junction::apply(stream, values, weight, some(bias), residual.before ? std::nullopt : some(residual.gain),
                         residual.before ? std::nullopt : some(residual.bias), extra);
}

}  // namespace

bool fusable_on_gpu(const Tensor& x) {
  return (x.is_cuda() || x.is_cpu()) && x.scalar_type() == torch::kFloat32 && x.dim() == 3 && x.numel() > 0 &&
         x.size(2) % 64 == 0 && x.size(2) <= 2048 && at::autocast::is_autocast_enabled(x.device().type()) &&
         at::autocast::get_autocast_dtype(x.device().type()) == torch::kBFloat16 && training_kernels() &&
         gpu_kernels(x.device());
}

Tensor attention_on_gpu(const Tensor& x, const Tensor& memory, AttentionOptions call,
                        const FusedProjections& projections, const FusedResidual& residual) {
  RECORD_FUNCTION("transformer::attention", std::vector<c10::IValue>({x}));
  check_parameters(x, projections, residual);
  const auto& p = projections;
  const int64_t query_rows = p.heads * p.d_k, all_rows = p.heads * (2 * p.d_k + p.d_v);
  const auto part = [&](const Tensor& whole, int64_t first, int64_t end) {
    return whole.defined() ? whole.narrow(0, first, end - first) : Tensor();
  };
  Projected query;
  Tensor rest;  // keys and values, where they are of something else
  if (memory.defined()) {
    query = projected(x, part(p.input_weight, 0, query_rows), part(p.input_bias, 0, query_rows), false, residual);
    rest = Projection::apply(memory, part(p.input_weight, query_rows, all_rows),
                             some(part(p.input_bias, query_rows, all_rows)), std::nullopt, std::nullopt,
                             c10::make_intrusive<Extra>())[0];
  } else {
    query = projected(x, p.input_weight, p.input_bias, false, residual);
  }
  Tensor values;
  if (is_short(x, memory.defined() ? memory : x, call, p)) {
    auto heads = c10::make_intrusive<Heads>();
    heads->count = p.heads;
    heads->width = p.d_k;
    heads->causal = call.causal;
    heads->scale = p.scale;
    const auto allowed = call.mask ? OptionalTensor(call.mask->reshape({x.size(0), -1}).contiguous()) : std::nullopt;
    values = ShortAttention::apply(query.values, some(rest), allowed, heads);
  } else {
    const int64_t value_rows = p.heads * p.d_v;
    auto heads = rest.defined() ? rest.split({query_rows, value_rows}, -1)
                                : query.values.split({query_rows, query_rows, value_rows}, -1);
    if (rest.defined()) heads.insert(heads.begin(), query.values);
    for (auto& head : heads) head = head.unflatten(-1, {p.heads, -1}).transpose(1, 2);  // [B, H, T, width]
    call.scale = p.scale;
    call.dropout = p.dropout;
    values = attention(heads[0], heads[1], heads[2], call).values.transpose(1, 2).flatten(2);
  }
  auto& stream = query.stream;
  return joined(stream, values, p.output_weight, p.output_bias, residual);
}

Tensor feed_forward_on_gpu(const Tensor& x, const FusedNetwork& network, const FusedResidual& residual) {
  RECORD_FUNCTION("transformer::feed_forward", std::vector<c10::IValue>({x}));
  check_parameters(x, network, residual);
  auto [hidden, stream] = projected(x, network.inner_weight, network.inner_bias, true, residual);
  if (network.dropout > 0) hidden = torch::dropout(hidden, network.dropout, /*train=*/true);
  return joined(stream, hidden, network.outer_weight, network.outer_bias, residual);
}

}  // namespace transformer
