#include "transformer/model/transformer.h"

#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <cmath>

#include "model/finite_differences.h"
#include "model/reference.h"
#include "transformer/base/error.h"
#include "transformer/model/evaluating.h"

using namespace transformer;
using namespace transformer::test;
using Positions = ModelSettings::Positions;
using Shared = ModelSettings::SharedEmbeddings;
using torch::Tensor;

namespace {

ModelSettings small() {
  ModelSettings settings;
  settings.d_model = 16;
  settings.d_ff = 36;
  settings.heads = 4;
  settings.encoder_layers = 2;
  settings.decoder_layers = 3;
  settings.dropout = 0;
  settings.vocabulary_size = 23;
  return settings;
}

// Nothing is even here, and every width differs from the others.
ModelSettings odd() {
  ModelSettings settings = small();
  settings.d_model = 7;
  settings.d_ff = 11;
  settings.heads = 3;
  settings.d_k = 5;
  settings.d_v = 2;
  settings.encoder_layers = 1;
  settings.decoder_layers = 2;
  settings.positions = Positions::learned;
  settings.max_positions = 13;
  settings.source_vocabulary_size = 17;
  settings.target_vocabulary_size = 19;
  settings.shared_embeddings = Shared::none;
  settings.projection_bias = true;
  return settings;
}

// Ids of sentences of the given lengths, padded to the longest.
Tensor ids(std::initializer_list<int64_t> lengths, int64_t vocabulary) {
  auto batch = torch::zeros({static_cast<int64_t>(lengths.size()), std::max(lengths)}, torch::kInt64);
  int64_t row = 0;
  for (const int64_t length : lengths) {
    batch[row++].narrow(0, 0, length).copy_(torch::randint(1, vocabulary, {length}, torch::kInt64));
  }
  return batch;
}

Tensor named(const Transformer& model, const std::string& name) {
  const auto parameters = model->named_parameters();
  INFO(name);
  REQUIRE(parameters.contains(name));
  return parameters[name];
}

int64_t count(const ModelSettings& settings) {
  return Transformer(settings)->parameter_count();
}

// The count of a large model from small ones: layers are identical, so it is linear in their number, and in V.
int64_t extrapolated_count(ModelSettings settings) {
  REQUIRE(settings.encoder_layers == settings.decoder_layers);
  const int64_t layers = settings.encoder_layers, vocabulary = settings.vocabulary_size;
  settings.encoder_layers = settings.decoder_layers = 1;
  settings.vocabulary_size = 5;
  const Transformer small_model(settings);
  const int64_t one = small_model->parameter_count();
  const int64_t piece = named(small_model, "embedding.weight").size(1);
  settings.encoder_layers = settings.decoder_layers = 2;
  const int64_t layer = count(settings) - one;
  return one + (layers - 1) * layer + (vocabulary - 5) * piece;
}

}  // namespace

TEST_CASE("ids of another type than int64 are refused in plain words, in training as outside of it") {
  Transformer model(small());
  const auto tokens = ids({5, 3}, 23);
  for (const bool trains : {false, true}) {
    model->train(trains);
    CHECK_NOTHROW(model->encode(tokens));
    for (const auto type : {torch::kInt32, torch::kInt16, torch::kFloat32}) {
      const auto message = message_of<c10::Error>([&] { model->encode(tokens.to(type)); });
      CHECK_THAT(message, StartsWith("ids are int64, and these "));
    }
  }
}

TEST_CASE("the whole model equals a stack of PyTorch's modules, with all gradients") {
  const Reference reference("transformer.py");
  for (const std::string type : {"float32", "float64"}) {
    for (const std::string shared : {"all", "target", "none"}) {
      const std::string name = type + "-" + shared;
      INFO(name);
      auto settings = small();
      settings.projection_bias = shared != "all";
      if (shared != "all") {
        settings.shared_embeddings = shared == "target" ? Shared::target : Shared::none;
        settings.source_vocabulary_size = 17;
        settings.target_vocabulary_size = 23;
      }
      if (shared == "target") settings.positions = Positions::learned;
      settings.max_positions = 12;
      Transformer model(settings);
      reference.load(*model, name);

      const auto labels = reference.at(name + "/input/labels");
      const auto logits = model->forward(reference.at(name + "/input/source"), reference.at(name + "/input/target"));
      const double close = tolerance(logits.scalar_type());
      const auto tokens = labels != TransformerImpl::padding_id;
      // PyTorch's reference masks padded target keys too: what padding positions see differs, and nothing else may.
      const auto& expected = reference.at(name + "/output/logits");
      CHECK(difference(logits.index({tokens}), expected.index({tokens})) < close);
      const auto loss = torch::nn::functional::cross_entropy(
          logits.flatten(0, 1), labels.flatten(),
          torch::nn::functional::CrossEntropyFuncOptions().ignore_index(0).reduction(torch::kSum));
      CHECK(difference(loss, reference.at(name + "/output/loss")) < close);
      loss.backward();
      check_gradients(*model, reference, name);
    }
  }
}

TEST_CASE("parameter counts are those of Table 3") {
  struct Row {
    const char* name;
    void (*change)(ModelSettings&);
    int64_t millions;
  };
  const std::vector<Row> rows = {
      {"base", [](ModelSettings&) {}, 65},
      {"B d_k 16", [](ModelSettings& s) { s.d_k = 16; }, 58},
      {"B d_k 32", [](ModelSettings& s) { s.d_k = 32; }, 60},
      {"C N 2", [](ModelSettings& s) { s.encoder_layers = s.decoder_layers = 2; }, 36},
      {"C N 4", [](ModelSettings& s) { s.encoder_layers = s.decoder_layers = 4; }, 50},
      {"C N 8", [](ModelSettings& s) { s.encoder_layers = s.decoder_layers = 8; }, 80},
      {"C d_model 256", [](ModelSettings& s) { s.d_model = 256, s.d_k = s.d_v = 32; }, 28},
      {"C d_model 1024", [](ModelSettings& s) { s.d_model = 1024, s.d_k = s.d_v = 128; }, 168},
      {"C d_ff 1024", [](ModelSettings& s) { s.d_ff = 1024; }, 53},
      {"C d_ff 4096", [](ModelSettings& s) { s.d_ff = 4096; }, 90},
      {"big", [](ModelSettings& s) { s.d_model = 1024, s.d_ff = 4096, s.heads = 16, s.vocabulary_size = 36000; }, 213},
  };
  for (const auto& row : rows) {
    ModelSettings settings;
    settings.vocabulary_size = 41100;
    row.change(settings);
    INFO(row.name);
    CHECK(std::lround(static_cast<double>(extrapolated_count(settings)) / 1e6) == row.millions);
  }
  // One of them in full.
  ModelSettings base;
  base.vocabulary_size = 41100;
  CHECK(count(base) == extrapolated_count(base));
}

TEST_CASE("embeddings are shared as set, and a shared matrix is one parameter") {
  auto settings = small();
  const int64_t D = settings.d_model, V = settings.vocabulary_size;
  const auto names = [](const Transformer& model) {
    std::vector<std::string> result;
    for (const auto& item : model->named_parameters()) {
      if (item.key().find("layers") == std::string::npos) result.push_back(item.key());
    }
    return result;
  };
  using Names = std::vector<std::string>;

  Transformer all(settings);
  CHECK(names(all) == Names{"embedding.weight"});
  CHECK(all->projection_weight().is_same(named(all, "embedding.weight")));

  settings.shared_embeddings = Shared::target;
  Transformer target(settings);
  CHECK(names(target) == Names{"source_embedding.weight", "target_embedding.weight"});
  CHECK(target->projection_weight().is_same(named(target, "target_embedding.weight")));
  CHECK(target->parameter_count() == all->parameter_count() + V * D);

  settings.shared_embeddings = Shared::none;
  Transformer none(settings);
  CHECK(names(none) == Names{"source_embedding.weight", "target_embedding.weight", "projection.weight"});
  CHECK(none->projection_weight().is_same(named(none, "projection.weight")));
  CHECK_FALSE(none->projection_weight().is_alias_of(named(none, "target_embedding.weight")));
  CHECK(none->parameter_count() == all->parameter_count() + 2 * V * D);

  // Vocabularies of two sizes, each embedding with its own.
  settings.source_vocabulary_size = 41;
  Transformer two(settings);
  CHECK(named(two, "source_embedding.weight").sizes() == at::IntArrayRef({41, D}));
  CHECK(named(two, "target_embedding.weight").sizes() == at::IntArrayRef({V, D}));
  CHECK(two->forward(torch::full({1, 3}, 40, torch::kInt64), torch::ones({1, 2}, torch::kInt64)).sizes() ==
        at::IntArrayRef({1, 2, V}));

  // Tied weights stay one tensor when the model moves to another type.
  all->to(torch::kFloat64);
  CHECK(all->projection_weight().is_same(named(all, "embedding.weight")));
  CHECK(all->projection_weight().scalar_type() == torch::kFloat64);
}

TEST_CASE("a sentence's result does not depend on what it is batched with") {
  torch::manual_seed(1);
  const auto settings = GENERATE(small(), odd());
  Transformer model(settings);
  model->to(torch::kFloat64);
  const std::vector<int64_t> source_lengths = {3, 9, 1, 6}, target_lengths = {7, 2, 4, 1};
  const auto source = ids({3, 9, 1, 6}, 17), target = ids({7, 2, 4, 1}, 19);
  for (const bool training : {false, true}) {
    model->train(training);
    const auto together = model->forward(source, target);
    for (int64_t row = 0; row < 4; ++row) {
      const auto alone = model->forward(source.narrow(0, row, 1).narrow(1, 0, source_lengths[row]),
                                        target.narrow(0, row, 1).narrow(1, 0, target_lengths[row]));
      INFO("row " << row);
      CHECK(difference(together[row].narrow(0, 0, target_lengths[row]), alone[0]) < 1e-12);
    }
  }
  // A source of padding alone has nothing to attend to, and must not poison the batch.
  const auto empty = torch::zeros_like(source.narrow(0, 0, 1));
  const auto logits = model->forward(torch::cat({source, empty}), torch::cat({target, target.narrow(0, 0, 1)}));
  CHECK(logits.isfinite().all().item<bool>());
  CHECK(difference(logits.narrow(0, 0, 4), model->forward(source, target)) < 1e-12);
}

TEST_CASE("changing a later target token changes no earlier output, and every later one") {
  torch::manual_seed(2);
  Transformer model(small());
  model->to(torch::kFloat64);
  const auto source = ids({5, 8}, 23), target = ids({9, 9}, 23);
  const auto before = model->forward(source, target);
  for (int64_t t = 0; t < 9; ++t) {
    auto changed = target.clone();
    changed.select(1, t).copy_(target.select(1, t) % 22 + 1);
    const auto moved = (model->forward(source, changed) - before).abs().amax(-1);  // [B, T]
    INFO("token " << t);
    CHECK(moved.narrow(1, 0, t).eq(0).all().item<bool>());
    CHECK(moved.narrow(1, t, 9 - t).gt(1e-6).all().item<bool>());
  }
}

TEST_CASE("attention weights come back for every layer and head on request, and change nothing") {
  torch::manual_seed(3);
  auto settings = odd();
  settings.encoder_layers = 3;
  const int64_t B = 3, S = 6, T = 5, H = settings.heads;
  Transformer model(settings);
  model->to(torch::kFloat64);
  const auto source = ids({6, 2, 4}, 17), target = ids({5, 5, 3}, 19);
  const auto encoded = model->encode(source, true);
  const auto decoded = model->decode(target, encoded, true);
  const auto plain = model->encode(source);
  CHECK(plain.weights.empty());
  CHECK(model->decode(target, plain).self_weights.empty());
  CHECK(difference(encoded.memory, plain.memory) < 1e-12);
  CHECK(difference(decoded.values, model->decode(target, plain).values) < 1e-12);

  REQUIRE(encoded.weights.size() == 3);
  REQUIRE(decoded.self_weights.size() == 2);
  REQUIRE(decoded.memory_weights.size() == 2);
  const auto tokens = source.ne(0).reshape({B, 1, 1, S});
  const auto check = [&](const std::vector<Tensor>& layers, int64_t queries, const Tensor& allowed) {
    for (const auto& weights : layers) {
      REQUIRE(weights.sizes() == at::IntArrayRef({B, H, queries, allowed.size(-1)}));
      CHECK(difference(weights.sum(-1), torch::ones({B, H, queries}, torch::kFloat64)) < 1e-12);
      const auto may = allowed.expand_as(weights);
      CHECK(weights.masked_select(~may).eq(0).all().item<bool>());
      CHECK(weights.masked_select(may).gt(0).all().item<bool>());
      CHECK(difference(weights.select(1, 0), weights.select(1, 1)) > 1e-3);  // heads differ
    }
    CHECK(difference(layers[0], layers[1]) > 1e-3);
  };
  check(encoded.weights, S, tokens);
  check(decoded.self_weights, T, torch::ones({T, T}, torch::kBool).tril());
  check(decoded.memory_weights, T, tokens);
}

TEST_CASE("every size is free") {
  torch::manual_seed(4);
  const auto source = ids({4, 1, 6}, 17), target = ids({3, 5, 1}, 17);
  for (const int64_t d_model : {1, 6, 15}) {
    for (const int64_t heads : {1, 3, 5}) {
      for (const auto& [d_k, d_v] : {std::pair<int64_t, int64_t>{1, 1}, {3, 8}, {16, 2}}) {
        for (const auto& [encoder_layers, decoder_layers] : {std::pair<int64_t, int64_t>{1, 1}, {3, 1}, {1, 2}}) {
          for (const auto shared : {Shared::all, Shared::none}) {
            auto settings = small();
            settings.d_model = d_model;
            settings.heads = heads;
            settings.d_k = d_k;
            settings.d_v = d_v;
            settings.d_ff = d_model + 4;
            settings.encoder_layers = encoder_layers;
            settings.decoder_layers = decoder_layers;
            settings.shared_embeddings = shared;
            settings.dropout = 0.1;
            settings.attention_dropout = 0.1;
            INFO("d_model " << d_model << ", heads " << heads << ", d_k " << d_k << ", d_v " << d_v << ", layers "
                            << encoder_layers << " and " << decoder_layers);
            Transformer model(settings);
            const auto logits = model->forward(source, target);
            REQUIRE(logits.sizes() == at::IntArrayRef({3, 5, 23}));
            logits.square().sum().backward();
            for (const auto& item : model->named_parameters()) {
              INFO(item.key());
              REQUIRE(item.value().grad().defined());
              REQUIRE(item.value().grad().isfinite().all().item<bool>());
            }
          }
        }
      }
    }
  }
}

TEST_CASE("gradients equal finite differences") {
  torch::manual_seed(5);
  Transformer model(odd());
  model->to(torch::kFloat64);
  const auto source = ids({4, 2, 5}, 17), target = ids({3, 6, 1}, 19);
  const auto cotangent = torch::randn({3, 6, 19}, torch::kFloat64);
  check_finite_differences(
      *model, [&] { return (model->forward(source, target) * cotangent).sum(); }, 3);
}

TEST_CASE("dropout acts in training, and never in evaluation") {
  torch::manual_seed(6);
  const auto source = ids({5, 3}, 23), target = ids({4, 6}, 23);
  Transformer plain(small());
  plain->eval();  // in training sub-layers may be fused, which rounds otherwise
  const auto expected = plain->forward(source, target);
  for (const bool on_attention : {false, true}) {
    auto settings = small();
    (on_attention ? settings.attention_dropout : settings.dropout) = 0.3;
    Transformer model(settings);
    {
      torch::NoGradGuard no_grad;
      for (auto& item : model->named_parameters()) item.value().copy_(named(plain, item.key()));
    }
    CHECK(difference(model->forward(source, target), model->forward(source, target)) > 1e-3);
    CHECK(difference(model->forward(source, target), expected) > 1e-3);
    CHECK(difference(model->encode(source).memory, model->encode(source).memory) > 1e-3);
    model->eval();
    CHECK(difference(model->forward(source, target), expected) == 0);
    CHECK(difference(model->forward(source, target), expected) == 0);
  }
}

TEST_CASE("the sum of embeddings and positions is dropped at the dropout's rate") {
  torch::manual_seed(7);
  const double rate = 0.25;
  auto settings = small();
  settings.d_model = 400;
  settings.d_ff = 4;
  settings.encoder_layers = 1;
  settings.dropout = rate;
  settings.positions = Positions::learned;
  Transformer model(settings);
  // Ones go in and sub-layers add nothing, so the two normalisations leave one value for what was kept and one for
  // what was dropped.
  torch::NoGradGuard no_grad;
  named(model, "embedding.weight").fill_(1);
  named(model, "source_positions.weight").zero_();
  for (const std::string name : {"self_attention.output", "feed_forward.outer"}) {
    named(model, "encoder.layers.0." + name + ".weight").zero_();
  }
  const auto memory = model->encode(torch::ones({30, 7}, torch::kInt64)).memory;
  const double share = memory.gt(0).to(torch::kFloat64).mean().item<double>();
  const double samples = static_cast<double>(memory.numel());
  CHECK(std::abs(share - (1 - rate)) < 5 * std::sqrt(rate * (1 - rate) / samples));
}

TEST_CASE("one token at a time gives what the whole sequence gives, also after reordering") {
  torch::manual_seed(8);
  const auto settings = GENERATE(small(), odd());
  Transformer model(settings);
  model->to(torch::kFloat64);
  model->eval();
  torch::NoGradGuard no_grad;
  const auto source = ids({3, 8, 1}, 17);
  const int64_t T = settings.positions == ModelSettings::Positions::learned ? 9 : 40;  // the cache's room grows twice

  auto encoded = model->encode(source);
  auto target = ids({T, T, T}, 19);
  auto cache = model->start(encoded);
  CHECK(cache.length == 0);
  for (int64_t t = 0; t < T; ++t) {
    if (t == 3 || t == 6 || t == 20) {
      // Hypotheses dropped, repeated and moved: fewer rows or more.
      const auto rows = t == 3   ? torch::tensor({2, 0, 0, 1, 2}, torch::kInt64)
                        : t == 6 ? torch::tensor({4, 1}, torch::kInt64)
                                 : torch::tensor({1, 0, 1}, torch::kInt64);
      cache.reorder(rows);
      target = target.index_select(0, rows).clone();
      target.narrow(1, t, T - t).random_(1, 19);
      encoded.memory = encoded.memory.index_select(0, rows);
      encoded.mask = encoded.mask->index_select(0, rows);
    }
    const auto logits = model->step(target.select(1, t), cache);
    const auto expected = model->project(model->decode(target, encoded).values).select(1, t);
    INFO("position " << t);
    CHECK(difference(logits, expected) < 1e-10);
    CHECK(cache.length == t + 1);
    for (const auto& layer : cache.layers) CHECK(layer.self_keys.size() == t + 1);
  }
}

TEST_CASE("decoding goes on beyond the sinusoids' table, and ends with learned positions") {
  torch::manual_seed(9);
  torch::NoGradGuard no_grad;
  auto settings = small();
  settings.decoder_layers = 1;
  Transformer model(settings);
  model->to(torch::kFloat64);
  const auto source = ids({4}, 23), target = ids({530}, 23);
  const auto encoded = model->encode(source);
  const auto expected = model->project(model->decode(target, encoded).values);
  auto cache = model->start(encoded);
  for (int64_t t = 0; t < 530; ++t) {
    const auto logits = model->step(target.select(1, t), cache);
    if (t < 505) continue;
    INFO("position " << t);
    CHECK(difference(logits, expected.select(1, t)) < 1e-10);
  }

  settings.positions = Positions::learned;
  settings.max_positions = 3;
  Transformer learned(settings);
  auto short_cache = learned->start(learned->encode(ids({3}, 23)));
  for (int t = 0; t < 3; ++t) learned->step(torch::ones({1}, torch::kInt64), short_cache);
  CHECK_THROWS_AS(learned->step(torch::ones({1}, torch::kInt64), short_cache), Error);
  CHECK_THROWS_AS(learned->encode(ids({4}, 23)), Error);
}

TEST_CASE("a decoder's layers of one's own need neither keys nor a state") {
  struct Linear : AnyDecoderLayer {
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(small().d_model, small().d_model));

    Output forward(const Tensor& x, const Tensor&, const std::optional<Tensor>&, bool) override {
      return {linear(x), {}, {}};
    }
    DecoderCache::Layer start(const Tensor&) override { return {CachedPositions(), CachedPositions(), {}, {}}; }
    Tensor step(const Tensor& x, DecoderCache::Layer&, const std::optional<Tensor>&) override { return linear(x); }
  };
  Transformer model(small(), LayerFactories{.decoder = [](int64_t) { return std::make_shared<Linear>(); }});
  model->eval();
  const torch::NoGradGuard no_grad;
  auto cache = model->start(model->encode(ids({5, 3}, 23)));
  const auto tokens = torch::ones({2}, torch::kInt64);
  model->step(tokens, cache);
  cache.reorder(torch::tensor({1, 0, 1}));
  CHECK(model->step(torch::ones({3}, torch::kInt64), cache).size(0) == 3);
}

TEST_CASE("evaluation mode for a while is everything's, and ends with the mode that each was in") {
  Transformer model(small());
  const auto modes = [&] {
    std::vector<bool> found;
    for (const auto& module : model->modules()) found.push_back(module->is_training());
    return found;
  };
  model->train();
  model->named_children()["encoder"]->eval();
  const auto frozen = modes();
  {
    const Evaluating evaluating(*model);
    CHECK(modes() == std::vector<bool>(frozen.size(), false));
  }
  CHECK(modes() == frozen);
  model->eval();
  model->named_children()["decoder"]->train();
  const auto mixed = modes();
  {
    const Evaluating evaluating(*model);
    CHECK(modes() == std::vector<bool>(mixed.size(), false));
    model->train();  // by somebody else
  }
  CHECK(modes() == mixed);
}
