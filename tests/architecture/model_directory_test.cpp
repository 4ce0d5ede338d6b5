#include "transformer/architecture/model_directory.h"

#include "error_of.h"
#include "model/reference.h"
#include "transformer/base/error.h"
#include "transformer/model/transformer.h"

using namespace transformer;
using namespace transformer::test;

namespace {

ModelSettings tiny() {
  ModelSettings settings;
  settings.d_model = 12;
  settings.d_ff = 16;
  settings.heads = 6;
  settings.encoder_layers = settings.decoder_layers = 1;
  settings.vocabulary_size = 20;
  return settings.resolved();
}

void write_config(const std::filesystem::path& file, ModelSettings model) {
  Settings settings;
  settings.section("model", model, "");
  write_file(file, settings.yaml());
}

}  // namespace

TEST_CASE("weights are computed with the settings they were trained with, or not at all") {
  const TemporaryDirectory folder;
  const auto config = folder / "config.yaml", weights = folder / "model.safetensors";
  write_config(config, tiny());
  write_bound_weights(weights, weights_of(*Transformer(tiny())), config);
  CHECK(read_model_settings(folder.path()).heads == 6);
  CHECK(load_transformer(folder.path())->settings().heads == 6);

  // Of the same shapes: nothing else would have noticed.
  const auto refused = [&](auto change) {
    auto settings = tiny();
    change(settings);
    write_config(config, settings);
    const auto message = error_of([&] { read_model_settings(folder.path()); });
    CHECK(error_of([&] { load_transformer(folder.path()); }) == message);
    return message;
  };
  CHECK_THAT(refused([](auto& s) { s.heads = 1, s.d_k = s.d_v = 12; }),
             Contains(config.string()) && Contains("section 'model'") && Contains("model.heads is 1 and was 6") &&
                 Contains("put back"));
  CHECK_THAT(refused([](auto& s) { s.normalization = ModelSettings::Normalization::pre; }),
             Contains("model.normalization is pre and was post"));
  CHECK_THAT(refused([](auto& s) { s.activation = ModelSettings::Activation::gelu; }),
             Contains("model.activation is gelu and was relu"));
  CHECK_THAT(refused([](auto& s) { s.attention_window = 4; }), Contains("model.attention_window is 4 and was 0"));
  CHECK_THAT(refused([](auto& s) { s.layer_norm_epsilon = 0.001; }), Contains("model.layer_norm_epsilon"));

  // What computes nothing, and other ways to say the same.
  CHECK(refused([](auto& s) { s.dropout = s.attention_dropout = s.relu_dropout = s.symbol_dropout = 0.3; }).empty());
  CHECK(refused([](auto& s) { s.d_k = s.d_v = 0, s.source_vocabulary_size = 0; }).empty());
  CHECK(refused([](auto& s) { s.vocabulary_size = 100; }).empty());  // both languages' own sizes are given
  CHECK(refused([](auto& s) { s.max_positions = 77, s.parameter_heads = 3, s.parameter_pairs = 5; }).empty());
  using enum ModelSettings::FeedForward;
  CHECK_THAT(refused([](auto& s) { s.feed_forward = attention_over_parameters, s.parameter_heads = 3; }),
             Contains("model.feed_forward is attention_over_parameters and was network") &&
                 Contains("model.parameter_heads is 3 and was 8"));
  CHECK_THAT(refused([](auto& s) { s.positions = ModelSettings::Positions::learned, s.max_positions = 77; }),
             Contains("model.max_positions is 77 and was 1024"));
  write_file(config, "model: {d_model: 12, d_ff: 16, heads: 6, layers: 1, vocabulary_size: 20}\ndecoding: {beam: 7}\n");
  CHECK(read_model_settings(folder.path()).d_k == 2);
}

TEST_CASE("what weights of older versions say of settings without a use is passed over") {
  const TemporaryDirectory folder;
  write_config(folder / "config.yaml", tiny());
  const auto text = computing_settings_text(tiny()) + "max_positions: 77\nparameter_heads: 3\n";
  write_tensors(folder / "model.safetensors", weights_of(*Transformer(tiny())), {{"model_settings", text}});
  CHECK(read_model_settings(folder.path()).heads == 6);
}

TEST_CASE("weights that do not say what they were trained with are taken as they are") {
  const TemporaryDirectory folder;
  auto settings = tiny();
  settings.heads = 3;
  write_config(folder / "config.yaml", settings);
  save_weights(*Transformer(tiny()), folder / "model.safetensors");
  CHECK(read_model_settings(folder.path()).heads == 3);
}

TEST_CASE("what weights say of their settings is a stranger's text") {
  const TemporaryDirectory folder;
  write_config(folder / "config.yaml", tiny());
  const auto weights = weights_of(*Transformer(tiny()));
  for (const std::string text : {"heads\n", "a\033[2Jb: \033[2J\n", "later_setting: 3\n"}) {
    write_tensors(folder / "model.safetensors", weights, {{"model_settings", text}});
    const auto message = error_of([&] { read_model_settings(folder.path()); });
    CHECK_THAT(message, Contains("config.yaml") && !Contains("\033"));
  }
  std::string many;
  for (int i = 0; i < 100000; ++i) many += fmt::format("setting{}: 3\n", i);
  write_tensors(folder / "model.safetensors", weights, {{"model_settings", many}});
  CHECK(error_of([&] { read_model_settings(folder.path()); }).size() < 2000);
}

TEST_CASE("settings that ask for far more than the file holds are refused before there is a model") {
  const TemporaryDirectory folder;
  save_weights(*Transformer(tiny()), folder / "model.safetensors");
  auto settings = tiny();
  settings.encoder_layers = 1000;
  settings.d_ff = 1 << 20;
  write_config(folder / "config.yaml", settings);
  CHECK_THAT(error_of([&] { load_transformer(folder.path()); }),
             Contains("model.safetensors: holds") && Contains("the model's settings ask for"));
}

TEST_CASE("a setting at its default says nothing, so that later versions may add some") {
  CHECK(computing_settings_text(tiny()) ==
        "d_ff: 16\nd_k: 2\nd_model: 12\nd_v: 2\ndecoder_layers: 1\nencoder_layers: 1\nheads: 6\n"
        "source_vocabulary_size: 20\ntarget_vocabulary_size: 20\n");
}
