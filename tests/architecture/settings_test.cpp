#include "transformer/architecture/settings.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "catch.h"
#include "error_of.h"
#include "model/reference.h"
#include "transformer/architecture/longest_text.h"
#include "transformer/base/error.h"

using namespace transformer;
using namespace transformer::test;
using Shared = ModelSettings::SharedEmbeddings;

TEST_CASE("defaults are the base model's") {
  const auto resolved = ModelSettings().resolved();
  CHECK(resolved.d_k == 64);
  CHECK(resolved.d_v == 64);
  CHECK(resolved.source_vocabulary_size == resolved.vocabulary_size);
  CHECK(resolved.target_vocabulary_size == resolved.vocabulary_size);
  // Resolving again changes nothing.
  CHECK(resolved.resolved().d_k == 64);
}

TEST_CASE("sizes that contradict each other are refused") {
  ModelSettings settings;
  settings.d_model = 100;
  CHECK_THAT(message_of<Error>([&] { settings.resolved(); }),
             Contains("model.d_k") && Contains("heads (8)") && Contains("d_model (100)"));
  settings.d_k = 12;
  CHECK_THAT(message_of<Error>([&] { settings.resolved(); }), Contains("model.d_v"));
  settings.d_v = 7;
  CHECK(settings.resolved().d_k == 12);
  CHECK(settings.resolved().d_v == 7);

  settings.source_vocabulary_size = 1000;
  CHECK_THAT(message_of<Error>([&] { settings.resolved(); }),
             Contains("model.shared_embeddings") && Contains("1000") && Contains("37000"));
  settings.target_vocabulary_size = 1000;
  CHECK_NOTHROW(settings.resolved());
  settings.target_vocabulary_size = 0;
  for (const auto shared : {Shared::target, Shared::none}) {
    settings.shared_embeddings = shared;
    CHECK(settings.resolved().source_vocabulary_size == 1000);
    CHECK(settings.resolved().target_vocabulary_size == 37000);
  }
}

TEST_CASE("sizes below 1 are refused by name") {
  const std::pair<const char*, int64_t ModelSettings::*> sizes[] = {
      {"model.d_model", &ModelSettings::d_model},
      {"model.d_ff", &ModelSettings::d_ff},
      {"model.heads", &ModelSettings::heads},
      {"model.encoder_layers", &ModelSettings::encoder_layers},
      {"model.decoder_layers", &ModelSettings::decoder_layers},
      {"model.vocabulary_size", &ModelSettings::vocabulary_size},
      {"model.max_positions", &ModelSettings::max_positions},
  };
  for (const auto& [name, member] : sizes) {
    for (const int64_t size : {0, -3}) {
      ModelSettings settings;
      settings.*member = size;
      CHECK_THAT(message_of<Error>([&] { settings.resolved(); }), Contains(name));
    }
  }
  ModelSettings settings;
  settings.d_v = -1;
  CHECK_THAT(message_of<Error>([&] { settings.resolved(); }), Contains("model.d_v"));
}

TEST_CASE("the model's section is read from YAML and --set, and saved completely") {
  const TemporaryDirectory folder;
  write_file(folder / "a.yaml",
             "model:\n  layers: 2\n  d_model: 96\n  positions: learned\n  shared_embeddings: target\n"
             "  projection_bias: true\n");
  ModelSettings model;
  Settings settings;
  settings.section("model", model, "The model");
  settings.load(folder / "a.yaml");
  settings.set({"model.decoder_layers=5", "model.dropout=0.25"});
  CHECK(model.encoder_layers == 2);
  CHECK(model.decoder_layers == 5);
  CHECK(model.d_model == 96);
  CHECK(model.d_ff == 2048);
  CHECK(model.positions == ModelSettings::Positions::learned);
  CHECK(model.shared_embeddings == Shared::target);
  CHECK(model.projection_bias);
  CHECK(model.dropout == 0.25);

  write_file(folder / "saved.yaml", settings.yaml());
  ModelSettings again;
  Settings reader;
  reader.section("model", again, "The model");
  reader.load(folder / "saved.yaml");
  CHECK(reader.yaml() == settings.yaml());
  CHECK(again.decoder_layers == 5);
  CHECK(again.shared_embeddings == Shared::target);

  for (const std::string wrong : {"model.heads=0", "model.dropout=1", "model.positions=none", "model.d_modle=3",
                                  "model.layer_norm_epsilon=0", "model.layer_norm_epsilon=1e-40", "model.layers=0"}) {
    INFO(wrong);
    CHECK_THROWS_AS(settings.set({wrong}), Error);
  }
}

TEST_CASE("texts are as long as positions go, and no longer than memory does") {
  using Positions = ModelSettings::Positions;
  CHECK(longest_text({.positions = Positions::sinusoidal}) == 5000);
  CHECK(longest_text({.positions = Positions::sinusoidal, .max_positions = 10}) == 5000);
  CHECK(longest_text({.positions = Positions::learned, .max_positions = 10}) == 9);
  CHECK(longest_text({.positions = Positions::learned, .max_positions = 1000000}) == 5000);
  CHECK(most_tokens({.positions = Positions::sinusoidal, .max_positions = 10}) == std::numeric_limits<int64_t>::max());
  CHECK(most_tokens({.positions = Positions::learned, .max_positions = 10}) == 9);
  CHECK(most_tokens({.positions = Positions::learned, .max_positions = 1000000}) == 999999);
}

TEST_CASE("what a model cannot read or write is refused, by what is wrong with it") {
  ModelSettings settings{.positions = ModelSettings::Positions::learned, .max_positions = 4};
  settings.source_vocabulary_size = 20;
  const auto refusal = [&](const std::vector<int64_t>& source, int64_t max_length) {
    return error_of([&] { check_sentence(settings, source, max_length); });
  };
  CHECK(refusal({4, 19, 0, 2}, 3).empty());
  CHECK_THAT(refusal({}, 3), StartsWith("source: is empty"));
  CHECK_THAT(refusal({4, 20, 2}, 3), StartsWith("word piece 20: is not one of the vocabulary's 20 pieces"));
  CHECK_THAT(refusal({4, -1, 2}, 3), StartsWith("word piece -1"));
  CHECK_THAT(refusal({4, 4, 4, 4, 2}, 3), StartsWith("model.max_positions: a sequence of 5 tokens"));
  CHECK_THAT(refusal({4, 2}, 4), StartsWith("model.max_positions: a sequence of 5 tokens"));
  settings.positions = ModelSettings::Positions::sinusoidal;
  CHECK(refusal({4, 4, 4, 4, 2}, std::numeric_limits<int64_t>::max()).empty());
}
