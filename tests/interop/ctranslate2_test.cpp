#include "transformer/interop/ctranslate2.h"

#include <torch/types.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "error_of.h"
#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/settings.h"
#include "transformer/model/tensors.h"

using namespace transformer;
using namespace transformer::test;
namespace fs = std::filesystem;

namespace {

using Change = std::function<void(ModelSettings&)>;
using Positions = ModelSettings::Positions;
using Shared = ModelSettings::SharedEmbeddings;
using Activation = ModelSettings::Activation;
using Compatibility = ModelSettings::Compatibility;
using LayerNormPlace = ModelSettings::Normalization;
using FeedForwardKind = ModelSettings::FeedForward;

constexpr int64_t vocabulary_size = 320;

/// Settings by their names, as "model.d_model".
auto values_of(ModelSettings model) {
  Settings settings;
  settings.section("model", model, "");
  return settings.values();
}

/// One vocabulary for all models of a test; training one takes longer than everything else.
const fs::path& vocabulary_file() {
  static const TemporaryDirectory folder;
  static const fs::path file = [] {
    std::string text;
    for (const auto& sentence : made_up_sentences(400, 7)) text += sentence + '\n';
    write_file(folder / "text.txt", text);
    Vocabulary::train({folder / "text.txt"}, vocabulary_size, {}, folder / "vocabulary.model");
    return folder / "vocabulary.model";
  }();
  return file;
}

ModelSettings tiny(const Change& change = {}) {
  auto settings = tiny_settings(vocabulary_size);
  if (change) change(settings);
  return settings;
}

Transformer write_model(const fs::path& directory, ModelSettings settings) {
  fs::create_directories(directory);
  auto model = tiny_transformer(settings);
  {
    // Fresh biases are zeros and gains ones: nobody would notice if they were forgotten or interchanged.
    torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      if (item.value().dim() == 1) item.value().add_(torch::randn_like(item.value()), 0.3);
    }
  }
  save_weights(*model, directory / "model.safetensors");
  if (settings.shared_embeddings == Shared::all) {
    fs::copy_file(vocabulary_file(), directory / "vocabulary.model");
  } else {
    fs::copy_file(vocabulary_file(), directory / "source.model");
    fs::copy_file(vocabulary_file(), directory / "target.model");
  }
  Settings all;
  all.section("model", settings, "");
  write_atomically(directory / "config.yaml", all.yaml());
  return model;
}

/// log p of every token and of the end, for pairs of sentences, as our modules compute it; by sentence and as ids.
TensorMap expectations(Transformer model, const Vocabulary& vocabulary) {
  torch::NoGradGuard no_grad;
  TensorMap tensors;
  const auto sources = made_up_sentences(6, 11), targets = made_up_sentences(6, 12, 20);
  for (size_t i = 0; i < sources.size(); ++i) {
    auto source = vocabulary.encode(sources[i]), target = vocabulary.encode(targets[i]);
    const auto name = std::to_string(i);
    tensors["source." + name] = torch::tensor(source);
    tensors["target." + name] = torch::tensor(target);
    source.push_back(Vocabulary::end);
    auto input = target;
    input.insert(input.begin(), Vocabulary::begin);
    target.push_back(Vocabulary::end);
    const auto logits = model->forward(torch::tensor(source).unsqueeze(0), torch::tensor(input).unsqueeze(0))[0];
    tensors["log_probabilities." + name] = logits.log_softmax(-1).gather(1, torch::tensor(target).unsqueeze(1));
  }
  return tensors;
}

/// Whatever CTranslate2 computes as well, with names for messages.
std::vector<std::pair<std::string, Change>> known_variations() {
  return {{"plain", {}},
          {"one matrix", [](auto& s) { s.shared_embeddings = Shared::all; }},
          {"one matrix for target and projection", [](auto& s) { s.shared_embeddings = Shared::target; }},
          {"stacks of different depth", [](auto& s) { s.encoder_layers = 3, s.decoder_layers = 1; }},
          {"learned positions", [](auto& s) { s.positions = Positions::learned, s.max_positions = 200; }},
          {"pre-norm", [](auto& s) { s.normalization = LayerNormPlace::pre; }},
          {"gelu", [](auto& s) { s.activation = Activation::gelu; }},
          {"swiglu", [](auto& s) { s.activation = Activation::swiglu; }},
          {"swish", [](auto& s) { s.activation = Activation::swish; }},
          {"output biases", [](auto& s) { s.output_bias = true; }},
          {"output biases of one matrix", [](auto& s) { s.output_bias = true, s.shared_embeddings = Shared::all; }},
          {"embeddings as they are", [](auto& s) { s.scaled_embeddings = false; }},
          {"normalised embeddings", [](auto& s) { s.embedding_normalization = true; }},
          {"dot product", [](auto& s) { s.compatibility = Compatibility::dot_product; }},
          {"projection biases", [](auto& s) { s.projection_bias = true; }},
          {"epsilon", [](auto& s) { s.layer_norm_epsilon = 0.1; }},
          {"narrow heads", [](auto& s) { s.d_k = s.d_v = 3; }},
          {"wide heads", [](auto& s) { s.heads = 4, s.d_k = s.d_v = 8; }},
          {"many together", [](auto& s) {
             s.normalization = LayerNormPlace::pre;
             s.activation = Activation::swiglu;
             s.compatibility = Compatibility::dot_product;
             s.positions = Positions::learned;
             s.projection_bias = true;
             s.shared_embeddings = Shared::all;
             s.heads = 3;
             s.d_k = s.d_v = 4;
           }}};
}

}  // namespace

TEST_CASE("CTranslate2 computes an exported model's log-probabilities, in every variation that it knows") {
  const auto variations = known_variations();
  const TemporaryDirectory folder;
  const Vocabulary vocabulary(vocabulary_file());
  std::string arguments;
  for (size_t i = 0; i < variations.size(); ++i) {
    const auto& [name, change] = variations[i];
    INFO(name);
    const auto directory = folder / std::to_string(i);
    const auto model = write_model(directory / "ours", tiny(change));
    export_ctranslate2(directory / "ours", directory / "theirs");
    write_tensors(directory / "expected.safetensors", expectations(model, vocabulary), {{"variation", name}});
    arguments += fmt::format("'{}' ", directory.string());
  }
  run_reference("ctranslate2_check.py", arguments);
}

TEST_CASE("what CTranslate2 cannot compute is refused by name, and nothing is written") {
  const std::vector<std::pair<std::string, Change>> variations = {
      {"model.compatibility", [](auto& s) { s.compatibility = Compatibility::additive; }},
      {"model.attention_window", [](auto& s) { s.attention_window = 8; }},
      {"model.decoder_self_attention",
       [](auto& s) { s.decoder_self_attention = ModelSettings::DecoderSelfAttention::ssru; }},
      {"model.feed_forward", [](auto& s) { s.feed_forward = FeedForwardKind::attention_over_parameters; }},
      {"model.d_v", [](auto& s) { s.d_k = 4, s.d_v = 8; }}};
  CHECK(error_of([] { check_ctranslate2(tiny()); }).empty());
  for (const auto& [name, change] : variations) {
    const TemporaryDirectory folder;
    write_model(folder / "ours", tiny(change));
    const auto message = error_of([&] { export_ctranslate2(folder / "ours", folder / "theirs"); });
    CHECK_THAT(message, StartsWith(name) && Contains("CTranslate2"));
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
  }
}

TEST_CASE("the exporters know every setting of a model") {
  // Whatever is added here is converted, or refused by check_ctranslate2 and check_hugging_face where it changes what a
  // model computes.
  const std::set<std::string> known = {"d_model",
                                       "d_ff",
                                       "heads",
                                       "d_k",
                                       "d_v",
                                       "encoder_layers",
                                       "decoder_layers",
                                       "dropout",
                                       "attention_dropout",
                                       "relu_dropout",
                                       "symbol_dropout",
                                       "compatibility",
                                       "attention_window",
                                       "decoder_self_attention",
                                       "feed_forward",
                                       "activation",
                                       "parameter_heads",
                                       "parameter_d_k",
                                       "parameter_d_v",
                                       "parameter_pairs",
                                       "normalization",
                                       "positions",
                                       "max_positions",
                                       "vocabulary_size",
                                       "source_vocabulary_size",
                                       "target_vocabulary_size",
                                       "shared_embeddings",
                                       "scaled_embeddings",
                                       "embedding_normalization",
                                       "projection_bias",
                                       "output_bias",
                                       "layer_norm_epsilon"};
  std::set<std::string> there;
  for (const auto& [name, value] : values_of({})) there.insert(name.substr(name.find('.') + 1));
  CHECK(there == known);
}

TEST_CASE("an export appears whole or not at all, and replaces nothing but an export") {
  const TemporaryDirectory folder;
  const auto ours = folder / "ours", theirs = folder / "theirs";
  const auto entries = [&] { return std::distance(fs::directory_iterator(folder.path()), {}); };
  write_model(ours, tiny());
  export_ctranslate2(ours, theirs);
  CHECK(entries() == 2);
  const auto exported = read_file(theirs / "model.bin");

  write_file(theirs / "mark", "");
  CHECK_THAT(error_of([&] { export_ctranslate2(ours, theirs); }), Contains("exists already") && Contains("--force"));
  CHECK(fs::exists(theirs / "mark"));
  // What somebody has put beside an exported model is theirs.
  CHECK_THAT(error_of([&] { export_ctranslate2(ours, theirs, /*force=*/true); }),
             Contains("mark") && Contains("not replaced"));
  CHECK(fs::exists(theirs / "mark"));
  fs::remove(theirs / "mark");
  write_file(theirs / "model.bin", "older");
  export_ctranslate2(ours, theirs.string() + "/", /*force=*/true);
  CHECK(read_file(theirs / "model.bin") == exported);
  CHECK(entries() == 2);

  // Its own word, not its files' names, makes a folder an export.
  const auto config = read_file(theirs / "config.json");
  write_file(theirs / "config.json", "{}");
  CHECK_THAT(error_of([&] { export_ctranslate2(ours, theirs, /*force=*/true); }), Contains("not replaced"));
  CHECK(read_file(theirs / "config.json") == "{}");
  write_file(theirs / "config.json", config);

  // A model directory or any other folder is worth more than the typing of its name.
  CHECK_THAT(error_of([&] { export_ctranslate2(ours, ours, /*force=*/true); }), Contains("not replaced"));
  write_file(folder / "file", "text");
  CHECK_THAT(error_of([&] { export_ctranslate2(ours, folder / "file", /*force=*/true); }), Contains("not replaced"));
  CHECK(read_file(folder / "file") == "text");

  // A model that turns out damaged leaves the older export alone.
  write_file(ours / "model.safetensors", "damaged");
  CHECK_FALSE(error_of([&] { export_ctranslate2(ours, theirs, /*force=*/true); }).empty());
  CHECK(read_file(theirs / "model.bin") == exported);
  CHECK_FALSE(error_of([&] { export_ctranslate2(folder / "missing", folder / "other"); }).empty());
  CHECK(entries() == 3);
}

TEST_CASE("what was exported to CTranslate2 comes back as it was, bit for bit") {
  const TemporaryDirectory folder;
  for (const auto& [name, change] : known_variations()) {
    INFO(name);
    const auto ours = folder / (name + " ours"), theirs = folder / (name + " theirs"), back = folder / (name + " back");
    write_model(ours, tiny(change));
    export_ctranslate2(ours, theirs);
    import_ctranslate2(theirs, back);
    CHECK(values_of(read_model_settings(back)) == values_of(read_model_settings(ours)));
    const auto before = read_tensors(ours / "model.safetensors").tensors,
               after = read_tensors(back / "model.safetensors").tensors;
    REQUIRE(before.size() == after.size());
    for (const auto& [weight, tensor] : before) {
      INFO(weight);
      CHECK(torch::equal(tensor, after.at(weight)));
    }
    CHECK(read_file(back / "vocabulary.model") == read_file(vocabulary_file()));
  }
}
