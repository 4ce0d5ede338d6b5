#include "transformer/architecture/parameter_count.h"

#include "model/reference.h"
#include "model/variations.h"
#include "transformer/base/error.h"
#include "transformer/model/transformer.h"

using namespace transformer;
using namespace transformer::test;

TEST_CASE("parameters are counted without being made") {
  auto list = variations();
  for (const auto shared : {ModelSettings::SharedEmbeddings::target, ModelSettings::SharedEmbeddings::none}) {
    auto settings = list.front().second;
    settings.shared_embeddings = shared;
    settings.source_vocabulary_size = 23;
    settings.positions = ModelSettings::Positions::learned;
    settings.max_positions = 11;
    settings.encoder_layers = 1;
    settings.projection_bias = true;
    list.emplace_back("own embeddings, learned positions, biases", settings);
  }
  for (const auto& [name, settings] : list) {
    INFO(name);
    const Transformer model(settings);
    CHECK(parameter_count(settings.resolved()) == model->parameter_count());
    std::map<std::string, int64_t> parts;
    for (const auto& item : model->named_parameters()) {
      parts[item.key().substr(0, item.key().find('.'))] += item.value().numel();
    }
    CHECK(parameter_counts(settings.resolved()) == parts);
  }
  CHECK(parameter_count(ModelSettings().resolved()) == 63045632);
}

TEST_CASE("a model too large to be real is refused before any of it is made") {
  const auto refused = [](auto change) {
    ModelSettings settings;
    change(settings);
    const auto message = message_of<Error>([&] { settings.resolved(); });
    CHECK(message_of<Error>([&] { Transformer model(settings); }) == message);
    return message;
  };
  // Each of these passed comparisons with small numbers by overflowing.
  CHECK_THAT(refused([](auto& s) { s.heads = 4611686018427387905, s.d_k = s.d_v = 4; }),
             Contains("model.heads") && Contains("from 1 to 4096"));
  CHECK_THAT(refused([](auto& s) { s.d_k = 9000000000000000000; }), Contains("model.d_k"));
  CHECK_THAT(refused([](auto& s) { s.encoder_layers = 1000000000; }), Contains("model.encoder_layers"));
  CHECK_THAT(refused([](auto& s) { s.d_model = 1000000; }), Contains("model.d_model"));
  CHECK_THAT(refused([](auto& s) { s.dropout = 1; }), Contains("model.dropout"));
  // Each number is possible, together they are not.
  CHECK_THAT(refused([](auto& s) { s.d_model = 65536, s.heads = 4096, s.d_k = 65536; }),
             Contains("more than 100 billion parameters") && Contains("d_model 65536"));
  CHECK_THAT(refused([](auto& s) { s.encoder_layers = s.decoder_layers = 1000, s.d_model = 8192, s.d_ff = 1 << 20; }),
             Contains("more than 100 billion parameters"));
}
