#include "transformer/model/fused/fused_layers.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/autograd.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>

#include "transformer/kernels/instruction_sets.h"
#include "transformer/kernels/training_kernels.h"
#include "transformer/model/fused/parallel.h"
#include "transformer/model/fused/products.h"
#include "transformer/model/fused/sublayer_parts.h"

namespace transformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Dropout of `rate` with the next seed of the default generator. Draws nothing at rate 0.
RowDropout draw_dropout(double rate) {
  if (rate <= 0) return {0, 0, 1};
  // Compared as int32_t, so that a rate next to 1 keeps one number in 2^31.
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const int64_t threshold = std::min<int64_t>(std::llround(std::ldexp(rate, 31)), most);
  return {drawn_seed(), static_cast<uint32_t>(threshold), rate < 1 ? static_cast<float>(1 / (1 - rate)) : 0};
}

std::atomic<const TrainingKernels*>& chosen_kernels() {
  static std::atomic<const TrainingKernels*> chosen = runnable_training_kernels().front();
  return chosen;
}

const TrainingKernels& kernels_of_a_pass() {
  const auto* kernels = training_kernels();
  TORCH_CHECK(kernels, "sub-layers are fused where there are training kernels");
  return *kernels;
}

template <class T>
const TypedTrainingKernels<T>& typed(const TrainingKernels& kernels) {
  if constexpr (std::is_same_v<T, float>) {
    return kernels.in_float;
  } else {
    return kernels.in_bf16;
  }
}

template <class T>
T* data(const Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// The type that products are made in.
torch::ScalarType product_type() {
  return at::autocast::is_autocast_enabled(at::kCPU) ? torch::kBFloat16 : torch::kFloat32;
}

// Calls `body` with a value of the type's C++ equivalent.
template <class Body>
auto by_type(torch::ScalarType type, const Body& body) {
  if (type == torch::kBFloat16) return body(Bf16());
  return body(float());
}

// body(rows) on all threads.
template <class Body>
void over_rows(const Tensor& matrix, const Body& body) {
  const int64_t width = matrix.size(-1), count = matrix.numel() / width;
  parallel_for(0, count, std::max<int64_t>(1, 16384 / width), [&](int64_t begin, int64_t end) {
    body(Rows{begin, end - begin, width});
  });
}

// The same with sums over rows: body(rows, sums), sums [outputs, width] to add to. Rows are summed in blocks of one
// size and blocks in their order, so that threads change nothing.
template <class Body>
Tensor summing_rows(const TrainingKernels& kernels, const Tensor& matrix, int64_t outputs, const Body& body) {
  constexpr int64_t block = 128;
  const int64_t width = matrix.size(-1), count = matrix.numel() / width, blocks = (count + block - 1) / block;
  auto partial = torch::zeros({std::max<int64_t>(blocks, 1), outputs, width}, torch::kFloat32);
  auto* sums = partial.template data_ptr<float>();
  parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      body(Rows{i * block, std::min(block, count - i * block), width}, sums + i * outputs * width);
    }
  });
  for (int64_t i = 1; i < blocks; ++i) {
    typed<float>(kernels).accumulate(sums, sums + i * outputs * width, outputs * width);
  }
  return partial[0];
}

Tensor column_sums(const TrainingKernels& kernels, const Tensor& matrix) {
  return by_type(matrix.scalar_type(), [&](auto type) {
    using T = decltype(type);
    return summing_rows(kernels, matrix, 1,
                        [&](Rows rows, float* sums) { typed<T>(kernels).add_rows(data<const T>(matrix), rows, sums); });
  })[0];
}

void add_to(const TrainingKernels& kernels, const Tensor& sum, const Tensor& term) {
  by_type(term.scalar_type(), [&](auto type) {
    using T = decltype(type);
    parallel_for(0, term.numel(), 16384, [&](int64_t begin, int64_t end) {
      typed<T>(kernels).accumulate(data<float>(sum) + begin, data<const T>(term) + begin, end - begin);
    });
  });
}

// [B, T, D] -> [B T, D], contiguous, of the type of products.
Tensor flattened(const Tensor& x, torch::ScalarType type) {
  return x.reshape({-1, x.size(-1)}).to(type).contiguous();
}

// A profile's name for what follows in this scope, operators that LibTorch does not know.
#define TRANSFORMER_RECORDED(name, tensor) RECORD_FUNCTION(name, std::vector<c10::IValue>({tensor}))

// What a backward pass needs beside tensors.
struct Extra : torch::CustomClassHolder {
  const TrainingKernels& kernels = kernels_of_a_pass();  // of both passes, whatever is chosen between them
  RowDropout residual_dropout, inner_dropout;
  double epsilon = 0;
  bool normalised_before = false;
  FusedProjections projections;  // without its tensors
  bool causal = false;
};

c10::intrusive_ptr<Extra> extra_of(double inner_dropout, const FusedResidual& residual) {
  auto extra = c10::make_intrusive<Extra>();
  extra->inner_dropout = draw_dropout(inner_dropout);
  extra->residual_dropout = draw_dropout(residual.dropout);
  extra->epsilon = residual.epsilon;
  extra->normalised_before = residual.before;
  return extra;
}

void hold(AutogradContext* context, const c10::intrusive_ptr<Extra>& extra) {
  context->saved_data["extra"] = c10::IValue::make_capsule(extra);
}

// --- Residual connection and normalisation ---------------------------------------------------------------------------

// What the normalisation was given, [N, D] float32, and the moments of its rows, for the backward pass.
struct Normalised {
  Tensor values, moments;
};

struct Norm {
  Tensor gain, bias;  // [D]
};

Tensor moments_for(const Tensor& rows) {
  return torch::empty({rows.size(0), 2}, torch::kFloat32);
}

// What the sub-layer is given of `stream`, [.., D]: [N, D] of the type of products.
Tensor sublayer_input(const Tensor& stream, torch::ScalarType type, const Norm& norm, const Extra& extra,
                      Normalised& normalised) {
  if (!extra.normalised_before) return flattened(stream, type);
  normalised.values = stream.view({-1, stream.size(-1)});
  normalised.moments = moments_for(normalised.values);
  auto input = torch::empty(normalised.values.sizes(), type);
  by_type(type, [&](auto element) {
    using T = decltype(element);
    over_rows(input, [&](Rows rows) {
      typed<T>(extra.kernels)
          .normalise(data<const float>(stream), rows, data<const float>(norm.gain), data<const float>(norm.bias),
                     static_cast<float>(extra.epsilon), data<T>(input), data<float>(normalised.moments));
    });
  });
  return input;
}

// What goes on from `stream` and the sub-layer's output y, [N, D], which may be overwritten.
Tensor sublayer_output(const Tensor& stream, const Tensor& y, const Norm& norm, const Extra& extra,
                       Normalised& normalised) {
  const auto sum = y.scalar_type() == torch::kFloat32 ? y : torch::empty(y.sizes(), torch::kFloat32);
  const auto result = extra.normalised_before ? sum : torch::empty(y.sizes(), torch::kFloat32);
  if (!extra.normalised_before) normalised = {sum, moments_for(sum)};
  by_type(y.scalar_type(), [&](auto type) {
    using T = decltype(type);
    over_rows(y, [&](Rows rows) {
      if (extra.normalised_before) {
        typed<T>(extra.kernels)
            .add(data<const float>(stream), data<const T>(y), rows, extra.residual_dropout, data<float>(sum));
      } else {
        typed<T>(extra.kernels)
            .add_and_normalise(data<const float>(stream), data<const T>(y), rows, extra.residual_dropout,
                               data<const float>(norm.gain), data<const float>(norm.bias),
                               static_cast<float>(extra.epsilon), data<float>(sum), data<float>(result),
                               data<float>(normalised.moments));
      }
    });
  });
  return result.view(stream.sizes());
}

struct ResidualGradients {
  Tensor stream, y;         // [N, D]; y's of the type of products
  Tensor gain, bias, rows;  // [D]; rows: y's gradient summed over them
};

// The way back through sublayer_output. With normalisation before the sub-layer, gain's and bias's are not known yet,
// and the stream's is what came from above, not to be written to.
ResidualGradients sublayer_output_backward(const Tensor& upstream, const Normalised& normalised, const Tensor& gain,
                                           const Extra& extra, torch::ScalarType type) {
  ResidualGradients result;
  const auto& values = normalised.values;
  const auto given = upstream.contiguous().view(values.sizes());
  result.y = torch::empty(values.sizes(), type);
  result.stream = extra.normalised_before ? given : torch::empty(values.sizes(), torch::kFloat32);
  const auto sums = by_type(type, [&](auto element) {
    using T = decltype(element);
    return summing_rows(extra.kernels, values, extra.normalised_before ? 1 : 3, [&](Rows rows, float* into) {
      if (extra.normalised_before) {
        typed<T>(extra.kernels)
            .add_backward(data<const float>(given), rows, extra.residual_dropout, data<T>(result.y), into);
      } else {
        typed<T>(extra.kernels)
            .add_and_normalise_backward(data<const float>(given), data<const float>(values),
                                        data<const float>(normalised.moments), data<const float>(gain), rows,
                                        extra.residual_dropout, data<float>(result.stream), data<T>(result.y),
                                        into + rows.width, into + 2 * rows.width, into);
      }
    });
  });
  // Apart, so that a gradient does not keep the others' memory, nor share it.
  result.rows = sums[0].clone();
  if (!extra.normalised_before) {
    result.gain = sums[1].clone();
    result.bias = sums[2].clone();
  }
  return result;
}

// The way back through sublayer_input, given the gradient of what it made: completes `gradients`.
void sublayer_input_backward(const Tensor& input_gradient, const Normalised& normalised, const Tensor& gain,
                             const Extra& extra, ResidualGradients& gradients) {
  if (!extra.normalised_before) {
    add_to(extra.kernels, gradients.stream, input_gradient);
    return;
  }
  const auto past = gradients.stream;
  gradients.stream = torch::empty(past.sizes(), torch::kFloat32);
  const auto sums = by_type(input_gradient.scalar_type(), [&](auto element) {
    using T = decltype(element);
    return summing_rows(extra.kernels, past, 2, [&](Rows rows, float* into) {
      typed<T>(extra.kernels)
          .normalise_backward(data<const T>(input_gradient), data<const float>(normalised.values),
                              data<const float>(normalised.moments), data<const float>(gain), rows,
                              data<const float>(past), data<float>(gradients.stream), into, into + rows.width);
    });
  });
  gradients.gain = sums[0].clone();
  gradients.bias = sums[1].clone();
}

// --- Attention -------------------------------------------------------------------------------------------------------

// Query, key and value as they lie in the joint projection, or query in one and key and value in the other.
struct Heads {
  Tensor query, key, value;  // [B, T, H d_k] and so on, views
  Tensor allowed;            // [B, S] bool; undefined: all
};

// body(sentence, head, description, scratch) on all threads.
template <class Body>
void over_heads(const Heads& heads, int64_t result_stride, const Extra& extra, const Body& body) {
  const int64_t batch = heads.query.size(0), count = extra.projections.heads;
  const int64_t queries = heads.query.size(1), keys = heads.key.size(1);
  const auto& p = extra.projections;
  parallel_for(0, batch * count, 1, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<float[]> scratch(new float[attention_scratch(queries, keys, p.d_k, p.d_v)]);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / count, h = i % count;
      const AttentionHead head{
          .queries = queries,
          .keys = keys,
          .d_k = p.d_k,
          .d_v = p.d_v,
          .query_stride = heads.query.stride(1),
          .key_stride = heads.key.stride(1),
          .value_stride = heads.value.stride(1),
          .result_stride = result_stride,
          .scale = static_cast<float>(p.scale),
          .causal = extra.causal,
          .allowed = heads.allowed.defined() ? data<const bool>(heads.allowed) + b * keys : nullptr,
          .dropout = extra.inner_dropout,
          .first_row = i * queries};
      body(b, h, head, scratch.get());
    }
  });
}

// Where a head of a sentence begins in [B, T, H width].
template <class T>
T* head_of(const Tensor& tensor, int64_t b, int64_t h, int64_t width) {
  return data<T>(tensor) + b * tensor.stride(0) + h * width;
}

Tensor attended(const Heads& heads, const Extra& extra) {
  const auto& p = extra.projections;
  const int64_t batch = heads.query.size(0), queries = heads.query.size(1);
  auto result = torch::empty({batch, queries, p.heads * p.d_v}, heads.query.options());
  by_type(result.scalar_type(), [&](auto type) {
    using T = decltype(type);
    over_heads(heads, result.stride(1), extra, [&](int64_t b, int64_t h, const AttentionHead& head, float* scratch) {
      typed<T>(extra.kernels)
          .attend(head_of<const T>(heads.query, b, h, p.d_k), head_of<const T>(heads.key, b, h, p.d_k),
                  head_of<const T>(heads.value, b, h, p.d_v), head, head_of<T>(result, b, h, p.d_v), scratch);
    });
  });
  return result.view({batch * queries, -1});
}

// `gradients` lie as `heads` do.
void attended_backward(const Heads& heads, const Tensor& upstream, const Extra& extra, const Heads& gradients) {
  const auto& p = extra.projections;
  const auto given = upstream.view({heads.query.size(0), heads.query.size(1), -1});
  by_type(upstream.scalar_type(), [&](auto type) {
    using T = decltype(type);
    over_heads(heads, given.stride(1), extra, [&](int64_t b, int64_t h, const AttentionHead& head, float* scratch) {
      typed<T>(extra.kernels)
          .attend_backward(head_of<const T>(heads.query, b, h, p.d_k), head_of<const T>(heads.key, b, h, p.d_k),
                           head_of<const T>(heads.value, b, h, p.d_v), head, head_of<const T>(given, b, h, p.d_v),
                           head_of<T>(gradients.query, b, h, p.d_k), head_of<T>(gradients.key, b, h, p.d_k),
                           head_of<T>(gradients.value, b, h, p.d_v), scratch);
    });
  });
}

// Cuts projections [B T, ..] into heads: `over_itself` [query, key, value], else query and [key, value].
Heads heads_of(const Tensor& first, const Tensor& second, int64_t batch, const FusedProjections& p) {
  const int64_t keys = p.heads * p.d_k, values = p.heads * p.d_v;
  Heads heads;
  const auto whole = first.view({batch, -1, first.size(1)});
  heads.query = whole.narrow(2, 0, keys);
  if (second.defined()) {
    const auto memory = second.view({batch, -1, keys + values});
    heads.key = memory.narrow(2, 0, keys);
    heads.value = memory.narrow(2, keys, values);
  } else {
    heads.key = whole.narrow(2, keys, keys);
    heads.value = whole.narrow(2, 2 * keys, values);
  }
  return heads;
}

class FusedAttention : public torch::autograd::Function<FusedAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const std::optional<Tensor>& memory_or_none,
                        const std::optional<Tensor>& allowed_or_none, const Tensor& input_weight,
                        const std::optional<Tensor>& input_bias_or_none, const Tensor& output_weight,
                        const std::optional<Tensor>& output_bias_or_none, const Tensor& gain, const Tensor& norm_bias,
                        const c10::intrusive_ptr<Extra>& extra) {
    const auto memory = memory_or_none.value_or(Tensor()), allowed = allowed_or_none.value_or(Tensor());
    const auto input_bias = input_bias_or_none.value_or(Tensor()), output_bias = output_bias_or_none.value_or(Tensor());
    const auto type = product_type();
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto& p = extra->projections;
    const int64_t batch = x.size(0), query_rows = p.heads * p.d_k, rows = input_weight.size(0);
    const auto stream = x.contiguous();
    const Norm norm{gain, norm_bias};
    Normalised normalised;
    const auto input = sublayer_input(stream, type, norm, *extra, normalised);
    const auto weight = input_weight.to(type), out_weight = output_weight.to(type);
    const auto bias_part = [&](int64_t first, int64_t count) {
      return input_bias.defined() ? input_bias.narrow(0, first, count) : Tensor();
    };
    Tensor first, second, over;
    if (memory.defined()) {
      over = flattened(memory, type);
      first = product(input, weight.narrow(0, 0, query_rows).t(), bias_part(0, query_rows));
      second =
          product(over, weight.narrow(0, query_rows, rows - query_rows).t(), bias_part(query_rows, rows - query_rows));
    } else {
      first = product(input, weight.t(), input_bias);
    }
    auto heads = heads_of(first, second, batch, p);
    heads.allowed = allowed;
    const auto values = attended(heads, *extra);
    auto result = sublayer_output(stream, product(values, out_weight.t(), output_bias), norm, *extra, normalised);
    hold(context, extra);
    context->saved_data["biases"] = std::vector<int64_t>{input_bias.defined(), output_bias.defined()};
    context->save_for_backward(
        {input, over, first, second, allowed, values, weight, out_weight, normalised.values, normalised.moments, gain});
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    require_first_derivative_of_sublayer();
    TRANSFORMER_RECORDED("transformer::attention_backward", upstream[0]);
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const Tensor &input = saved[0], &over = saved[1], &first = saved[2], &second = saved[3], &allowed = saved[4],
                 &values = saved[5], &weight = saved[6], &out_weight = saved[7], &gain = saved[10];
    const Normalised normalised{saved[8], saved[9]};
    const auto biases = context->saved_data["biases"].toIntVector();
    const auto held = context->saved_data["extra"].toCapsule();
    const auto& extra = static_cast<const Extra&>(*held);
    const auto& p = extra.projections;
    const auto sizes = upstream[0].sizes();
    const int64_t batch = sizes[0], query_rows = p.heads * p.d_k, rows = weight.size(0);
    const auto type = input.scalar_type();

    auto gradients = sublayer_output_backward(upstream[0], normalised, gain, extra, type);
    const auto out_weight_gradient = product_in_float(gradients.y.t(), values);
    const auto values_gradient = product(gradients.y, out_weight);

    const auto first_gradient = torch::empty_like(first);
    const auto second_gradient = second.defined() ? torch::empty_like(second) : Tensor();
    auto heads = heads_of(first, second, batch, p);
    heads.allowed = allowed;
    attended_backward(heads, values_gradient, extra, heads_of(first_gradient, second_gradient, batch, p));

    Tensor weight_gradient, bias_gradient, memory_gradient, input_gradient;
    if (second.defined()) {
      weight_gradient = torch::empty({rows, input.size(1)}, torch::kFloat32);
      const auto query_part = weight_gradient.narrow(0, 0, query_rows);
      const auto memory_part = weight_gradient.narrow(0, query_rows, rows - query_rows);
      product_into(query_part, first_gradient.t(), input);
      product_into(memory_part, second_gradient.t(), over);
      memory_gradient = product_in_float(second_gradient, weight.narrow(0, query_rows, rows - query_rows))
                            .view({batch, -1, sizes[2]});
      input_gradient = product(first_gradient, weight.narrow(0, 0, query_rows));
      if (biases[0]) {
        bias_gradient =
            torch::cat({column_sums(extra.kernels, first_gradient), column_sums(extra.kernels, second_gradient)});
      }
    } else {
      weight_gradient = product_in_float(first_gradient.t(), input);
      input_gradient = product(first_gradient, weight);
      if (biases[0]) bias_gradient = column_sums(extra.kernels, first_gradient);
    }
    sublayer_input_backward(input_gradient, normalised, gain, extra, gradients);
    return {gradients.stream.view(sizes),
            memory_gradient,
            {},
            weight_gradient,
            bias_gradient,
            out_weight_gradient,
            biases[1] ? gradients.rows : Tensor(),
            gradients.gain,
            gradients.bias,
            {}};
  }
};

// --- Feed-forward network --------------------------------------------------------------------------------------------

class FusedFeedForward : public torch::autograd::Function<FusedFeedForward> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& inner_weight,
                        const std::optional<Tensor>& inner_bias, const Tensor& outer_weight,
                        const std::optional<Tensor>& outer_bias, const Tensor& gain, const Tensor& norm_bias,
                        const c10::intrusive_ptr<Extra>& extra) {
    const auto type = product_type();
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto stream = x.contiguous();
    const Norm norm{gain, norm_bias};
    Normalised normalised;
    const auto input = sublayer_input(stream, type, norm, *extra, normalised);
    const auto inner = inner_weight.to(type), outer = outer_weight.to(type);
    const auto hidden = product(input, inner.t(), inner_bias.value_or(Tensor()));
    by_type(type, [&](auto element) {
      using T = decltype(element);
      over_rows(hidden, [&](Rows rows) { typed<T>(extra->kernels).relu(data<T>(hidden), rows, extra->inner_dropout); });
    });
    auto result =
        sublayer_output(stream, product(hidden, outer.t(), outer_bias.value_or(Tensor())), norm, *extra, normalised);
    hold(context, extra);
    context->saved_data["biases"] = std::vector<int64_t>{inner_bias.has_value(), outer_bias.has_value()};
    context->save_for_backward({input, hidden, inner, outer, normalised.values, normalised.moments, gain});
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    require_first_derivative_of_sublayer();
    TRANSFORMER_RECORDED("transformer::feed_forward_backward", upstream[0]);
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const Tensor &input = saved[0], &hidden = saved[1], &inner = saved[2], &outer = saved[3], &gain = saved[6];
    const Normalised normalised{saved[4], saved[5]};
    const auto biases = context->saved_data["biases"].toIntVector();
    const auto held = context->saved_data["extra"].toCapsule();
    const auto& extra = static_cast<const Extra&>(*held);
    const auto type = input.scalar_type();

    auto gradients = sublayer_output_backward(upstream[0], normalised, gain, extra, type);
    const auto outer_gradient = product_in_float(gradients.y.t(), hidden);
    const auto hidden_gradient = product(gradients.y, outer);
    const auto inner_bias_gradient = by_type(type, [&](auto element) {
      using T = decltype(element);
      return summing_rows(extra.kernels, hidden_gradient, 1, [&](Rows rows, float* sums) {
        typed<T>(extra.kernels)
            .relu_backward(data<T>(hidden_gradient), data<const T>(hidden), rows, extra.inner_dropout.scale, sums);
      });
    })[0];
    const auto inner_gradient = product_in_float(hidden_gradient.t(), input);
    sublayer_input_backward(product(hidden_gradient, inner), normalised, gain, extra, gradients);
    return {gradients.stream.view(upstream[0].sizes()),
            inner_gradient,
            biases[0] ? inner_bias_gradient : Tensor(),
            outer_gradient,
            biases[1] ? gradients.rows : Tensor(),
            gradients.gain,
            gradients.bias,
            {}};
  }
};

// --- Embedding -------------------------------------------------------------------------------------------------------

class FusedEmbedding : public torch::autograd::Function<FusedEmbedding> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& weight, const Tensor& ids, const Tensor& positions,
                        double scale, const c10::intrusive_ptr<Extra>& extra) {
    const int64_t length = ids.size(1), width = weight.size(1), vocabulary = weight.size(0);
    auto result = torch::empty({ids.size(0), length, width}, torch::kFloat32);
    const auto* id = ids.data_ptr<int64_t>();
    over_rows(result, [&](Rows rows) {
      for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
        TORCH_CHECK_INDEX(id[row] >= 0 && id[row] < vocabulary, "id ", id[row], " is not in a vocabulary of ",
                          vocabulary);
        extra->kernels.embed(data<const float>(weight) + id[row] * width,
                             data<const float>(positions) + row % length * width, width, static_cast<float>(scale),
                             extra->inner_dropout, row, data<float>(result) + row * width);
      }
    });
    hold(context, extra);
    context->save_for_backward({ids});
    context->saved_data["vocabulary"] = vocabulary;
    context->saved_data["scale"] = scale;
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    require_first_derivative_of_sublayer();
    TRANSFORMER_RECORDED("transformer::embedding_backward", upstream[0]);
    const auto ids = context->get_saved_variables()[0];
    const auto held = context->saved_data["extra"].toCapsule();
    const auto& extra = static_cast<const Extra&>(*held);
    const auto given = upstream[0].contiguous();
    const int64_t width = given.size(2);
    auto gradient = torch::zeros({context->saved_data["vocabulary"].toInt(), width}, torch::kFloat32);
    const auto scale = static_cast<float>(context->saved_data["scale"].toDouble());
    const auto* id = ids.data_ptr<int64_t>();
    // On one thread: rows of the gradient are met again.
    for (int64_t row = 0; row < ids.numel(); ++row) {
      extra.kernels.embed_backward(data<const float>(given) + row * width, width, scale, extra.inner_dropout, row,
                                   data<float>(gradient) + id[row] * width);
    }
    return {gradient, {}, {}, {}, {}};
  }
};

}  // namespace

std::vector<const TrainingKernels*> runnable_training_kernels() {
  return runnable_kernels(&InstructionSet::training);
}

const TrainingKernels* training_kernels() {
  return chosen_kernels().load(std::memory_order_relaxed);
}

void choose_training_kernels(const TrainingKernels* kernels) {
  chosen_kernels() = kernels;
}

bool fusable(const Tensor& x) {
  return training_kernels() && x.is_cpu() && x.scalar_type() == torch::kFloat32 && x.dim() == 3 && x.numel() > 0 &&
         (!at::autocast::is_autocast_enabled(at::kCPU) ||
          at::autocast::get_autocast_dtype(at::kCPU) == torch::kBFloat16);
}

bool fusable_attention(const Tensor& x, const Tensor& memory, const std::optional<Tensor>& mask) {
  const auto& over = memory.defined() ? memory : x;
  if (over.dim() != 3 || over.size(0) != x.size(0) || over.scalar_type() != x.scalar_type() || over.numel() == 0) {
    return false;
  }
  if (x.size(1) * over.size(1) > 256 * 256) return false;
  return covers_keys(mask, x.size(0), over.size(1));
}

Tensor fused_attention(const Tensor& x, const Tensor& memory, const std::optional<Tensor>& mask, bool causal,
                       const FusedProjections& projections, const FusedResidual& residual) {
  TRANSFORMER_RECORDED("transformer::attention", x);
  check_parameters(x, projections, residual);
  auto extra = extra_of(projections.dropout, residual);
  extra->projections = projections;
  auto& kept = extra->projections;
  kept.input_weight = kept.input_bias = kept.output_weight = kept.output_bias = Tensor();
  extra->causal = causal;
  const auto allowed = mask ? mask->reshape({x.size(0), -1}).contiguous() : Tensor();
  return FusedAttention::apply(x, some(memory), some(allowed), projections.input_weight, some(projections.input_bias),
                               projections.output_weight, some(projections.output_bias), residual.gain, residual.bias,
                               extra);
}

Tensor fused_feed_forward(const Tensor& x, const FusedNetwork& network, const FusedResidual& residual) {
  TRANSFORMER_RECORDED("transformer::feed_forward", x);
  check_parameters(x, network, residual);
  const auto extra = extra_of(network.dropout, residual);
  return FusedFeedForward::apply(x, network.inner_weight, some(network.inner_bias), network.outer_weight,
                                 some(network.outer_bias), residual.gain, residual.bias, extra);
}

bool fusable_embedding(const Tensor& weight, const Tensor& ids) {
  return training_kernels() && weight.is_cpu() && kernels_take({weight}) && ids.dim() == 2 && ids.numel() > 0;
}

Tensor fused_embedding(const Tensor& weight, const Tensor& ids, const Tensor& positions, double scale, double dropout) {
  TRANSFORMER_RECORDED("transformer::embedding", weight);
  TORCH_CHECK(positions.sizes() == at::IntArrayRef({ids.size(1), weight.size(1)}), "positions ", positions.sizes(),
              " for ids ", ids.sizes(), " and an embedding ", weight.sizes());
  TORCH_CHECK(kernels_take({weight}) && positions.scalar_type() == torch::kFloat32,
              "a fused embedding needs float32, and a contiguous weight");
  auto extra = c10::make_intrusive<Extra>();
  extra->inner_dropout = draw_dropout(dropout);
  return FusedEmbedding::apply(weight, ids.contiguous(), positions.contiguous(), scale, extra);
}

}  // namespace transformer
