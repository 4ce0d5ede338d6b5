// Our side of scripts/bench train: train_worker MODEL PRECISION THREADS WEIGHTS BATCHES [DEVICE]. Takes the trainer's
// steps on given batches, one command a line from standard input, and answers each with a line, so that both sides can
// take turns while each stays loaded. benchmarks/peers/torch_train.py is the same for PyTorch's own modules.
//
//   run FIRST COUNT
//     Takes COUNT steps, on the batches from FIRST on and again from the first after the last. Answers "SECONDS TOKENS
//     LOSS": target tokens, and their mean loss in these steps.
//   products FIRST COUNT
//     Answers "SECONDS MULTIPLY-ADDS MOST": how long the matrix products of these steps take alone, by LibTorch's mm
//     and bmm on the same threads, how many multiplications with their additions they are, and how many a second the
//     threads can do at most (peers/limits.h).
//   memory
//     Answers "PEAK NOW", in bytes of resident memory.
//
// The first line of output is "ready NAME BYTES": of kernels or version, and resident memory before the model was made.
//
// MODEL is a JSON object: d_model, d_ff, heads, layers, vocabulary, dropout, dropout_everywhere (on attention weights
// and activations, too). BATCHES is a safetensors file: i.source, i.target_input and i.target_output, int64, of batch
// i. `train_worker MODEL init WEIGHTS` writes new weights and ends.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "peers/limits.h"
#include "peers/worker.h"
#include "transformer/inference/packed_matrix.h"
#include "transformer/model/autocast.h"
#include "transformer/model/device.h"
#include "transformer/model/tensors.h"
#include "transformer/model/transformer.h"
#include "transformer/training/adam.h"
#include "transformer/training/distributed/communicator.h"
#include "transformer/training/distributed/data_parallel.h"
#include "transformer/training/label_smoothing_loss.h"
#include "transformer/training/profile.h"

namespace transformer {

namespace {

constexpr double rate = 1e-4, smoothing = 0.1;

ModelSettings settings_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  ModelSettings settings;
  settings.d_model = json.at("d_model");
  settings.d_ff = json.at("d_ff");
  settings.heads = json.at("heads");
  settings.encoder_layers = settings.decoder_layers = json.at("layers");
  settings.vocabulary_size = json.at("vocabulary");
  settings.dropout = json.at("dropout");
  if (json.at("dropout_everywhere")) settings.attention_dropout = settings.relu_dropout = settings.dropout;
  return settings;
}

struct TrainingBatch {
  at::Tensor source, target_input, target_output;
  int64_t tokens;
  bool padded;  // any row of the source
};

std::vector<TrainingBatch> read_batches(const std::string& file, const c10::Device& device) {
  const auto tensors = read_tensors(file).tensors;
  std::vector<TrainingBatch> batches;
  for (size_t i = 0; i < tensors.size() / 3; ++i) {
    auto& batch = batches.emplace_back();
    batch.source = tensors.at(fmt::format("{}.source", i)).to(device);
    batch.target_input = tensors.at(fmt::format("{}.target_input", i)).to(device);
    batch.target_output = tensors.at(fmt::format("{}.target_output", i)).to(device);
    batch.padded = batch.source.eq(TransformerImpl::padding_id).any().item<bool>();
    batch.tokens = batch.target_output.ne(TransformerImpl::padding_id).sum().item<int64_t>();
  }
  return batches;
}

/// The matrix products of a step, forward and backward, without anything between them.
class Products {
 public:
  Products(const ModelSettings& settings, bool bf16)
      : s_(settings.resolved()), type_(bf16 ? at::kBFloat16 : at::kFloat) {}

  /// Seconds of the products of a step on `batch`.
  double time(const TrainingBatch& batch) {
    const int64_t rows = batch.source.size(0), source = batch.source.size(1), target = batch.target_input.size(1);
    const int64_t keys = s_.heads * s_.d_k, values = s_.heads * s_.d_v, d = s_.d_model;
    seconds_ = 0;
    for (int64_t layer = 0; layer < s_.encoder_layers; ++layer) {
      dense(rows * source, d, 2 * keys + values);
      attention(rows, source, source);
      dense(rows * source, values, d);
      feed_forward(rows * source);
    }
    for (int64_t layer = 0; layer < s_.decoder_layers; ++layer) {
      dense(rows * target, d, 2 * keys + values);
      attention(rows, target, target);
      dense(rows * target, values, d);
      dense(rows * target, d, keys);
      dense(rows * source, d, keys + values);
      attention(rows, target, source);
      dense(rows * target, values, d);
      feed_forward(rows * target);
    }
    dense(rows * target, d, s_.target_vocabulary_size);
    return seconds_;
  }

  double multiply_adds() const { return multiply_adds_; }

 private:
  /// An affine map of `rows` vectors: its output, its input's gradient, its weight's.
  void dense(int64_t rows, int64_t in, int64_t out) {
    const auto x = made({rows, in}), weight = made({out, in}), gradient = made({rows, out});
    timed(3.0 * static_cast<double>(rows * in * out), [&] {
      at::mm(x, weight.t());
      at::mm(gradient, weight);
      at::mm(gradient.t(), x);
    });
  }

  void feed_forward(int64_t rows) {
    dense(rows, s_.d_model, s_.d_ff);
    dense(rows, s_.d_ff, s_.d_model);
  }

  /// Of all heads: scores and values, and the gradients of weights, values, queries and keys.
  void attention(int64_t rows, int64_t queries, int64_t keys) {
    const int64_t heads = rows * s_.heads;
    const auto query = made({heads, queries, s_.d_k}), key = made({heads, keys, s_.d_k});
    const auto value = made({heads, keys, s_.d_v}), weights = made({heads, queries, keys});
    const auto gradient = made({heads, queries, s_.d_v});
    timed(3.0 * static_cast<double>(heads * queries * keys * (s_.d_k + s_.d_v)), [&] {
      at::bmm(query, key.mT());
      at::bmm(weights, value);
      at::bmm(gradient, value.mT());
      at::bmm(weights.mT(), gradient);
      at::bmm(weights, key);
      at::bmm(weights.mT(), query);
    });
  }

  at::Tensor made(at::IntArrayRef sizes) const { return at::randn(sizes, type_); }

  template <class Work>
  void timed(double multiply_adds, Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    multiply_adds_ += multiply_adds;
  }

  ModelSettings s_;
  at::ScalarType type_;
  double seconds_ = 0, multiply_adds_ = 0;
};

class Run {
 public:
  Run(const ModelSettings& settings, bool bf16, const std::string& weights, const c10::Device& device)
      : model_(settings), bf16_(bf16), device_(device) {
    load_weights(*model_, weights);
    model_->to(device);
    model_->train();
    std::vector<std::pair<std::string, at::Tensor>> parameters;
    for (const auto& item : model_->named_parameters()) parameters.emplace_back(item.key(), item.value());
    adam_.emplace(parameters, Adam::Options{});
    parallel_.emplace(communicator_, *model_);
  }

  /// As Trainer::step does it, of a single micro-batch. The sum of losses.
  at::Tensor step(const TrainingBatch& batch) {
    adam_->clear_gradients();
    at::manual_seed(static_cast<uint64_t>(++steps_));
    std::optional<Autocast> autocast;
    if (bf16_) autocast.emplace(device_, Autocast::State{.enabled = true}, /*cached=*/true);
    const auto memory = model_->encode(batch.source, /*weights=*/false, batch.padded);
    const auto hidden = model_->decode(batch.target_input, memory).values;
    const auto sums = projected_label_smoothing_loss(hidden, model_->projection_weight(), batch.target_output,
                                                     smoothing, TransformerImpl::padding_id,
                                                     bf16_ ? at::kBFloat16 : hidden.scalar_type(), batch.tokens);
    autocast.reset();
    parallel_->backward(sums.loss / static_cast<double>(batch.tokens));
    adam_->step(rate);
    return sums.loss.detach();
  }

 private:
  Communicator communicator_{Launch{}, {}};
  Transformer model_;
  bool bf16_;
  c10::Device device_;
  std::optional<Adam> adam_;
  std::optional<DistributedDataParallel> parallel_;
  int64_t steps_ = 0;
};

void serve(int argc, char** argv) {
  if (argc == 4 && std::string(argv[2]) == "init") {
    at::manual_seed(1);
    save_weights(*Transformer(settings_of(argv[1])), argv[3]);
    return;
  }
  const std::string precision = argc == 6 || argc == 7 ? argv[2] : "";
  if (precision != "float32" && precision != "bf16") {
    throw Error("train_worker", "wants MODEL float32|bf16 THREADS WEIGHTS BATCHES [DEVICE], or MODEL init WEIGHTS");
  }
  // As in apps/train.cpp.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  const int64_t before = status("VmRSS");
  const int threads = count_of("THREADS", argv[3]);
  at::set_num_threads(threads);
  const auto device = open_device(argc == 7 ? argv[6] : "cpu");
  Run run(settings_of(argv[1]), precision == "bf16", argv[4], device);
  const auto batches = read_batches(argv[5], device);
  std::cout << "ready transformer " << before << std::endl;

  const Answer products = [&](std::istringstream& arguments) -> std::string {
    size_t first = 0, count = 0;
    if (!(arguments >> first >> count) || count == 0) return "";
    Products alone(settings_of(argv[1]), precision == "bf16");
    double seconds = 0;
    for (size_t i = first; i < first + count; ++i) seconds += alone.time(batches[i % batches.size()]);
    const double most = multiply_adds_a_second(precision == "bf16" ? Precision::bf16 : Precision::float32,
                                               available_kernels().front()->name);
    return fmt::format("{:.6f} {} {}", seconds, alone.multiply_adds(), most * threads);
  };
  const Answer steps = [&](std::istringstream& arguments) -> std::string {
    size_t first = 0, count = 0;
    if (!(arguments >> first >> count) || count == 0) return "";
    const auto start = std::chrono::steady_clock::now();
    std::vector<at::Tensor> losses;
    int64_t tokens = 0;
    for (size_t i = first; i < first + count; ++i) {
      const auto& batch = batches[i % batches.size()];
      losses.push_back(run.step(batch));
      tokens += batch.tokens;
    }
    // A GPU has then done all steps.
    const double loss = at::stack(losses).sum().item<double>() / static_cast<double>(tokens);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return fmt::format("{:.6f} {} {:.6f}", seconds, tokens, loss);
  };
  const Answer profile = [&](std::istringstream& arguments) -> std::string {
    size_t first = 0, count = 0;
    std::string file;
    if (!(arguments >> first >> count >> file)) return "";
    Profile recorded(file, device);
    recorded.start();
    for (size_t i = first; i < first + count; ++i) run.step(batches[i % batches.size()]);
    recorded.stop();
    return "done";
  };
  obey(steps, {{"products", products}, {"profile", profile}});
}

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  return transformer::worker_main("train_worker", argc, argv, transformer::serve);
}
