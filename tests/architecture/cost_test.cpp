#include "transformer/architecture/cost.h"

#include <nlohmann/json.hpp>

#include "support.h"
#include "transformer/base/error.h"

using namespace transformer;
using namespace transformer::test;

namespace {

ModelSettings sized(int64_t d_model, int64_t d_ff, int64_t heads, int64_t encoder_layers, int64_t decoder_layers) {
  ModelSettings settings;
  settings.d_model = d_model;
  settings.d_ff = d_ff;
  settings.heads = heads;
  settings.encoder_layers = encoder_layers;
  settings.decoder_layers = decoder_layers;
  return settings;
}

ModelSettings base() {
  return {};
}

ModelSettings big() {
  return sized(1024, 4096, 16, 6, 6);
}

// Every width differs from the others, and heads · d_k is not d_model.
ModelSettings odd() {
  auto settings = sized(7, 11, 3, 1, 2);
  settings.d_k = 5;
  settings.d_v = 2;
  settings.source_vocabulary_size = 17;
  settings.target_vocabulary_size = 19;
  settings.shared_embeddings = ModelSettings::SharedEmbeddings::none;
  return settings;
}

}  // namespace

TEST_CASE("counted operations are those that PyTorch's counter counts") {
  struct Case {
    ModelSettings settings;
    BatchShape batch;
  };
  auto narrow_heads = base();  // Table 3 (B)
  narrow_heads.d_k = 16;
  using Settings = ModelSettings;
  const auto varied = [](ModelSettings settings, auto change) {
    change(settings);
    return settings;
  };
  const auto over_parameters = [](Settings& s) { s.feed_forward = Settings::FeedForward::attention_over_parameters; };
  const auto swiglu = [](Settings& s) { s.activation = Settings::Activation::swiglu; };
  const auto additive = [](Settings& s) { s.compatibility = Settings::Compatibility::additive; };
  const auto recurrent = [](Settings& s) { s.decoder_self_attention = Settings::DecoderSelfAttention::ssru; };
  const std::vector<Case> cases = {
      {base(), {.rows = 1000, .source_length = 25, .target_length = 25}},
      {base(), {.rows = 3, .source_length = 100, .target_length = 7}},
      {big(), {.rows = 256, .source_length = 97, .target_length = 103}},
      {sized(16, 36, 4, 2, 3), {.rows = 4, .source_length = 9, .target_length = 8}},
      {narrow_heads, {.rows = 10, .source_length = 30, .target_length = 20}},
      {odd(), {.rows = 5, .source_length = 13, .target_length = 6}},
      {odd(), {.rows = 1, .source_length = 1, .target_length = 1}},
      {varied(base(), over_parameters), {.rows = 10, .source_length = 30, .target_length = 20}},
      {varied(odd(), over_parameters), {.rows = 5, .source_length = 13, .target_length = 6}},
      {varied(base(), swiglu), {.rows = 10, .source_length = 30, .target_length = 20}},
      {varied(odd(), additive), {.rows = 5, .source_length = 13, .target_length = 6}},
      {varied(base(), [](Settings& s) { s.attention_window = 8; }),
       {.rows = 10, .source_length = 30, .target_length = 20}},
      {varied(odd(), [](Settings& s) { s.attention_window = 11; }),
       {.rows = 5, .source_length = 13, .target_length = 6}},
      {varied(varied(odd(), swiglu), [](Settings& s) { s.attention_window = 1; }),
       {.rows = 5, .source_length = 13, .target_length = 6}},
      {varied(base(), recurrent), {.rows = 10, .source_length = 30, .target_length = 20}},
      {varied(varied(odd(), recurrent), over_parameters), {.rows = 5, .source_length = 13, .target_length = 6}},
  };
  nlohmann::json asked;
  for (const auto& [given, batch] : cases) {
    const auto s = given.resolved();
    asked.push_back({{"d_model", s.d_model},
                     {"d_ff", s.d_ff},
                     {"heads", s.heads},
                     {"d_k", s.d_k},
                     {"d_v", s.d_v},
                     {"encoder_layers", s.encoder_layers},
                     {"decoder_layers", s.decoder_layers},
                     {"vocabulary", s.target_vocabulary_size},
                     {"window", s.attention_window},
                     {"recurrent", s.decoder_self_attention == Settings::DecoderSelfAttention::ssru},
                     {"additive", s.compatibility == Settings::Compatibility::additive},
                     {"swiglu", s.activation == Settings::Activation::swiglu},
                     {"over_parameters", s.feed_forward == Settings::FeedForward::attention_over_parameters},
                     {"parameter_heads", s.parameter_heads},
                     {"parameter_d_k", s.parameter_d_k},
                     {"parameter_d_v", s.parameter_d_v},
                     {"parameter_pairs", s.parameter_pairs},
                     {"rows", batch.rows},
                     {"source_length", batch.source_length},
                     {"target_length", batch.target_length}});
  }
  TemporaryDirectory directory;
  write_file(directory / "cases.json", asked.dump());
  run_reference("flops.py",
                fmt::format("'{}' '{}'", (directory / "cases.json").string(), (directory / "flops.json").string()));
  const auto counted = nlohmann::json::parse(read_file(directory / "flops.json"));
  REQUIRE(counted.size() == cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(asked[i].dump());
    const auto flops = count_flops(cases[i].settings, cases[i].batch);
    CHECK(flops.forward() == counted[i]["forward"].get<int64_t>());
    CHECK(flops.training() == counted[i]["training"].get<int64_t>());
    CHECK(flops.vocabulary_projection == counted[i]["vocabulary_projection"].get<int64_t>());
    CHECK(flops.feed_forward == counted[i]["feed_forward"].get<int64_t>());
    CHECK(flops.attention_products == counted[i]["attention_products"].get<int64_t>());
    CHECK(flops.attention_projections == counted[i]["attention_projections"].get<int64_t>());
  }
}

TEST_CASE("target tokens that are not projected cost no projection") {
  const BatchShape batch{.rows = 8, .source_length = 10, .target_length = 12};
  auto less = batch;
  less.projected_tokens = 50;
  const auto all = count_flops(base(), batch), some = count_flops(base(), less);
  CHECK(some.vocabulary_projection == 2 * 512 * 37000 * 50);
  CHECK(all.forward() - some.forward() == 2 * 512 * 37000 * (96 - 50));
}

TEST_CASE("sharing embeddings changes no count, and settings that contradict each other are refused") {
  const BatchShape batch{.rows = 8, .source_length = 10, .target_length = 12};
  auto apart = base();
  apart.shared_embeddings = ModelSettings::SharedEmbeddings::none;
  CHECK(count_flops(apart, batch).forward() == count_flops(base(), batch).forward());
  auto wrong = base();
  wrong.heads = 7;
  CHECK_THROWS_AS(count_flops(wrong, batch), Error);
}

TEST_CASE("the paper's training costs follow from its hours, GPUs and their speed") {
  const double hour = 3600;
  // Table 2, to the two digits that it prints.
  CHECK(fmt::format("{:.1e}", paper_training_cost(12 * hour, 8, sustained_flops("P100"))) == "3.3e+18");
  CHECK(fmt::format("{:.1e}", paper_training_cost(3.5 * 24 * hour, 8, sustained_flops("P100"))) == "2.3e+19");
  // Steps times seconds a step (§5.2) give the big model's cost too; the base model's comes out lower than printed,
  // since 100,000 steps of about 0.4 s are 11.1 hours.
  CHECK(fmt::format("{:.1e}", paper_training_cost(300000 * 1.0, 8, sustained_flops("P100"))) == "2.3e+19");
  CHECK(fmt::format("{:.1e}", paper_training_cost(100000 * 0.4, 8, sustained_flops("P100"))) == "3.0e+18");
}

TEST_CASE("the GPUs of the paper have its estimates, and others are refused") {
  CHECK(sustained_flops("K80") == 2.8e12);
  CHECK(sustained_flops("K40") == 3.7e12);
  CHECK(sustained_flops("M40") == 6.0e12);
  CHECK(sustained_flops("P100") == 9.5e12);
  CHECK_THROWS_WITH(sustained_flops("H100"), Contains("'H100'") && Contains("K80, K40, M40, P100"));
}
