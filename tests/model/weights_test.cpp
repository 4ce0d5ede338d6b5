#include <torch/types.h>

#include "model/reference.h"
#include "transformer/base/error.h"
#include "transformer/model/depth.h"
#include "transformer/model/transformer.h"

using namespace transformer;
using namespace transformer::test;
using torch::Tensor;

namespace {

ModelSettings tiny() {
  ModelSettings settings;
  settings.d_model = 8;
  settings.d_ff = 12;
  settings.heads = 2;
  settings.encoder_layers = settings.decoder_layers = 1;
  settings.vocabulary_size = 11;
  return settings;
}

std::map<std::string, Tensor> parameters_of(const Transformer& model) {
  std::map<std::string, Tensor> result;
  for (const auto& item : model->named_parameters()) result.emplace(item.key(), item.value().detach().clone());
  return result;
}

}  // namespace

TEST_CASE("weights are saved and loaded back exactly, in any type") {
  const TemporaryDirectory folder;
  torch::manual_seed(1);
  for (const auto positions : {ModelSettings::Positions::sinusoidal, ModelSettings::Positions::learned}) {
    auto settings = tiny();
    settings.positions = positions;
    Transformer model(settings), other(settings);
    const auto saved = parameters_of(model);
    CHECK(difference(other->projection_weight(), model->projection_weight()) > 0);

    save_weights(*model, folder / "a.safetensors");
    load_weights(*other, folder / "a.safetensors");
    for (const auto& [name, tensor] : parameters_of(other)) CHECK(difference(tensor, saved.at(name)) == 0);
    CHECK(other->projection_weight().requires_grad());
    const auto ids = torch::tensor({{3, 4, 0}}, torch::kInt64);
    model->eval();
    other->eval();
    CHECK(difference(other->forward(ids, ids), model->forward(ids, ids)) == 0);

    // Half the size, read back into a model of another type.
    save_weights(*model, folder / "half.safetensors", torch::kBFloat16);
    CHECK(std::filesystem::file_size(folder / "half.safetensors") <
          0.7 * static_cast<double>(std::filesystem::file_size(folder / "a.safetensors")));
    other->to(torch::kFloat64);
    load_weights(*other, folder / "half.safetensors");
    for (const auto& [name, tensor] : parameters_of(other)) {
      CHECK(difference(tensor, saved.at(name).to(torch::kBFloat16).to(torch::kFloat64)) == 0);
    }
  }
}

TEST_CASE("Python's safetensors reads our weights, and we read its") {
  const TemporaryDirectory folder;
  Transformer model(tiny());
  const auto saved = parameters_of(model);
  const std::pair<torch::ScalarType, std::string> types[] = {{torch::kFloat32, "float32"},
                                                             {torch::kBFloat16, "bfloat16"}};
  std::string arguments;
  for (const auto& [type, name] : types) {
    save_weights(*model, folder / name, type);
    arguments += fmt::format("'{0}' '{0}.theirs' {1} ", (folder / name).string(), name);
  }
  run_reference("weights.py", arguments);
  for (const auto& [type, name] : types) {
    load_weights(*model, (folder / name).string() + ".theirs");
    for (const auto& [key, tensor] : parameters_of(model)) {
      CHECK(difference(tensor, -saved.at(key).to(type).to(torch::kFloat32)) == 0);
    }
  }
}

TEST_CASE("weights that do not fit are refused by name, and leave the model as it was") {
  const TemporaryDirectory folder;
  const auto file = folder / "model.safetensors";
  Transformer model(tiny());
  save_weights(*model, file);
  const auto good = read_tensors(file).tensors;
  const auto before = parameters_of(model);

  const auto refused = [&](const TensorMap& tensors) {
    TensorMap doubled;
    for (const auto& [name, tensor] : tensors) doubled.emplace(name, tensor * 2);
    write_tensors(file, doubled);
    const auto message = message_of<Error>([&] { load_weights(*model, file); });
    CHECK_THAT(message, Contains(file.string()));
    for (const auto& [name, tensor] : parameters_of(model)) CHECK(difference(tensor, before.at(name)) == 0);
    return message;
  };
  const std::string name = "decoder.layers.0.memory_attention.output.weight", quoted = fmt::format("'{}'", name);
  auto tensors = good;
  tensors.erase(name);
  CHECK_THAT(refused(tensors), Contains(quoted) && Contains("missing"));
  tensors = good;
  tensors[name] = torch::zeros({8, 9});
  CHECK_THAT(refused(tensors), Contains(quoted) && Contains("[8, 9]") && Contains("[8, 8]"));
  tensors[name] = torch::zeros({64});
  CHECK_THAT(refused(tensors), Contains(quoted) && Contains("[64]"));
  tensors = good;
  tensors["decoder.layers.1.feed_forward.inner.weight"] = torch::zeros({12, 8});
  CHECK_THAT(refused(tensors), Contains("'decoder.layers.1.feed_forward.inner.weight'"));
  tensors = good;
  tensors[name] = torch::full({8, 8}, 3, torch::kInt64);
  CHECK_THAT(refused(tensors), Contains(quoted));

  // A file cut short.
  save_weights(*model, file);
  auto bytes = read_file(file);
  write_file(file, bytes.substr(0, bytes.size() - 5));
  CHECK_THAT(message_of<Error>([&] { load_weights(*model, file); }), Contains(file.string()));
  CHECK_THAT(message_of<Error>([&] { load_weights(*model, folder / "none"); }), Contains("none"));
}

TEST_CASE(
    "a shallower model takes layers of a deeper one bit for bit, spread evenly, the first and the last among them") {
  CHECK(layers_kept(1, 6) == std::vector<int64_t>{0});
  CHECK(layers_kept(2, 6) == std::vector<int64_t>{0, 5});
  CHECK(layers_kept(3, 6) == std::vector<int64_t>{0, 3, 5});
  CHECK(layers_kept(3, 5) == std::vector<int64_t>{0, 2, 4});
  CHECK(layers_kept(6, 6) == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
  for (int64_t deep = 1; deep <= 40; ++deep) {
    for (int64_t shallow = 2; shallow <= deep; ++shallow) {
      const auto kept = layers_kept(shallow, deep);
      REQUIRE(std::ssize(kept) == shallow);
      REQUIRE((kept.front() == 0 && kept.back() == deep - 1));
      const int64_t least = (deep - 1) / (shallow - 1);
      for (int64_t i = 1; i < shallow; ++i) {
        REQUIRE((kept[i] - kept[i - 1] == least || kept[i] - kept[i - 1] == least + 1));
      }
    }
  }
  CHECK_THROWS_AS(layers_kept(7, 6), std::invalid_argument);
  CHECK_THROWS_AS(layers_kept(0, 6), std::invalid_argument);

  const TemporaryDirectory folder;
  const auto file = folder / "model.safetensors";
  for (const auto normalization : {ModelSettings::Normalization::post, ModelSettings::Normalization::pre}) {
    auto deep = tiny(), shallow = tiny();
    deep.normalization = shallow.normalization = normalization;
    deep.encoder_layers = 5;
    deep.decoder_layers = 4;
    shallow.encoder_layers = 3;
    Transformer teacher(deep), student(shallow);
    save_weights(*teacher, file);
    load_layers(student, file, deep.resolved());
    auto deeper = deep;
    deeper.decoder_layers = 5;
    Transformer too_deep(deeper);
    CHECK_THAT(message_of<Error>([&] { load_layers(too_deep, file, deep.resolved()); }),
               Contains(file.string()) && Contains("4 layers of the decoder"));
    const auto theirs = parameters_of(teacher);
    size_t layers = 0;
    for (const auto& [name, tensor] : parameters_of(student)) {
      auto from = name;
      for (const auto& [ours, other] :
           {std::pair{"encoder.layers.1.", "encoder.layers.2."}, std::pair{"encoder.layers.2.", "encoder.layers.4."}}) {
        if (name.starts_with(ours)) from = other + name.substr(std::string(ours).size());
      }
      layers += from != name;
      CHECK(torch::equal(tensor, theirs.at(from)));
    }
    CHECK(layers > 10);
    // What does not fit is refused by name, and nothing is changed.
    const auto before = parameters_of(student);
    auto wide = deep;
    wide.d_ff = 20;
    Transformer other(wide);
    save_weights(*other, file);
    CHECK_THAT(message_of<Error>([&] { load_layers(student, file, deep.resolved()); }), Contains("feed_forward.inner"));
    CHECK_THAT(message_of<Error>([&] { load_layers(student, file, wide.resolved()); }), Contains("feed_forward.inner"));
    for (const auto& [name, tensor] : parameters_of(student)) CHECK(torch::equal(tensor, before.at(name)));
  }
}

TEST_CASE("a model with recurrent units begins with all else of one with self-attention, and not the other way round") {
  const TemporaryDirectory folder;
  const auto file = folder / "model.safetensors";
  auto attending = tiny(), recurrent = tiny();
  recurrent.decoder_layers = 1;
  recurrent.decoder_self_attention = ModelSettings::DecoderSelfAttention::ssru;
  Transformer teacher(attending), student(recurrent);
  save_weights(*teacher, file);
  const auto before = parameters_of(student), theirs = parameters_of(teacher);
  load_layers(student, file, attending.resolved());
  size_t fresh = 0;
  for (const auto& [name, tensor] : parameters_of(student)) {
    INFO(name);
    const bool is_new = name.find("recurrence") != std::string::npos;
    CHECK(torch::equal(tensor, is_new ? before.at(name) : theirs.at(name)));
    fresh += is_new;
  }
  CHECK(fresh == 2);
  // Between two with recurrent units these are taken as well.
  save_weights(*student, file);
  Transformer second(recurrent), attends(attending);
  load_layers(second, file, recurrent.resolved());
  const auto first = parameters_of(student);
  for (const auto& [name, tensor] : parameters_of(second)) CHECK(torch::equal(tensor, first.at(name)));
  CHECK_THROWS_AS(load_layers(attends, file, recurrent.resolved()), std::exception);
}

TEST_CASE("a model directory is loaded as it was trained, ready to translate") {
  const TemporaryDirectory folder;
  Transformer model(tiny());
  model->eval();
  auto settings = model->settings();
  Settings yaml;
  yaml.section("model", settings, "The model");

  CHECK_THAT(message_of<Error>([&] { load_transformer(folder / "absent"); }), Contains("no such folder"));
  CHECK_THAT(message_of<Error>([&] { load_transformer(folder.path()); }), Contains("config.yaml is missing"));
  // Sections of other rooms are none of the model's business.
  write_file(folder / "config.yaml", yaml.yaml() + "\ntraining:\n  steps: 3\n");
  CHECK_THAT(message_of<Error>([&] { load_transformer(folder.path()); }), Contains("model.safetensors is missing"));
  save_weights(*model, folder / "model.safetensors");

  auto loaded = load_transformer(folder.path());
  CHECK_FALSE(loaded->is_training());
  CHECK(loaded->settings().d_model == 8);
  const auto ids = torch::tensor({{3, 4, 0}, {5, 1, 2}}, torch::kInt64);
  CHECK(difference(loaded->forward(ids, ids), model->forward(ids, ids)) == 0);
}

TEST_CASE("weights that are finite in their file's type alone are refused both ways") {
  const TemporaryDirectory folder;
  const auto file = folder / "model.safetensors";
  Transformer model(tiny());
  const auto before = parameters_of(model);
  auto weights = weights_of(*model);
  const std::string name = "decoder.layers.0.feed_forward.inner.weight";
  for (auto& [key, tensor] : weights) tensor = tensor.to(torch::kFloat64) * 2;
  weights.at(name)[3][5] = 1e300;
  write_weights(file, weights);
  const auto load = [&](Transformer& into) { return message_of<Error>([&] { load_weights(*into, file); }); };
  CHECK_THAT(load(model), Contains(file.string()) && Contains(name));
  CHECK_THAT(message_of<Error>([&] { load_layers(model, file, tiny().resolved()); }), Contains(name));
  for (const auto& [key, tensor] : parameters_of(model)) CHECK(torch::equal(tensor, before.at(key)));
  Transformer exact(tiny());
  exact->to(torch::kFloat64);
  CHECK_NOTHROW(load_weights(*exact, file));
  CHECK_THAT(message_of<Error>([&] { save_weights(*exact, folder / "rounded"); }), Contains(name));

  weights.at(name)[3][5] = 1e6;
  write_weights(file, weights, torch::kFloat32);
  Transformer half(tiny());
  half->to(torch::kHalf);
  CHECK_THAT(load(half), Contains(name));
  CHECK_NOTHROW(load_weights(*model, file));
  CHECK_THAT(message_of<Error>([&] { save_weights(*model, folder / "rounded", torch::kHalf); }), Contains(name));
  CHECK_THROWS_AS(save_weights(*model, folder / "rounded", torch::kChar), std::invalid_argument);
  CHECK_FALSE(std::filesystem::exists(folder / "rounded"));
}
