#pragma once

#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/settings.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/inference/beam_search.h"
#include "transformer/inference/inference_model.h"
#include "transformer/model/transformer.h"
#include "transformer/text/vocabulary.h"

namespace transformer::test {

/// The weights as they are now, packed in float32.
inline std::shared_ptr<const InferenceModel> packed_model(const Transformer& model) {
  return std::make_shared<InferenceModel>(model->settings(), stored_weights(weights_of(*model)), Precision::float32,
                                          "");
}

/// Sentences of made-up words, the same for the same seed.
inline std::vector<std::string> made_up_sentences(size_t count, unsigned seed, size_t longest = 12) {
  std::mt19937 random(seed);
  const std::vector<std::string> syllables = {"ba", "do", "ki", "lu", "mé", "no", "ra", "si", "tu", "vo", "ß", "er"};
  std::vector<std::string> sentences;
  for (size_t i = 0; i < count; ++i) {
    std::string sentence;
    const size_t words = 1 + random() % longest;
    for (size_t word = 0; word < words; ++word) {
      if (word > 0) sentence += ' ';
      for (size_t k = 1 + random() % 3; k > 0; --k) sentence += syllables[random() % syllables.size()];
    }
    sentences.push_back(sentence + (random() % 2 ? "." : "?"));
  }
  return sentences;
}

/// Sentences of random ids below `pieces`, without the reserved ones and without an end, the same for the same seed.
inline std::vector<std::vector<int64_t>> random_sentences(size_t count, unsigned seed, int64_t pieces,
                                                          size_t longest = 9) {
  std::mt19937 random(seed);
  std::vector<std::vector<int64_t>> sentences(count);
  for (auto& sentence : sentences) {
    sentence.resize(1 + random() % longest);
    for (auto& id : sentence) id = 4 + static_cast<int64_t>(random() % static_cast<uint64_t>(pieces - 4));
  }
  return sentences;
}

/// Untrained weights, spread so that outputs differ from input to input, and with an end likely enough that they differ
/// in length.
inline Transformer tiny_transformer(const ModelSettings& settings, uint64_t seed = 1) {
  torch::manual_seed(seed);
  Transformer model(settings);
  torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) {
    if (parameter.dim() > 1) parameter.normal_(0, 0.5);
  }
  // A normalised vector sums to 0, so that a constant row meets its bias alone: the end's logit is 4 everywhere, in
  // the upper range of the others.
  for (auto& parameter : model->named_parameters()) {
    if (parameter.key().ends_with("after_feed_forward.norm.bias")) parameter.value().fill_(0.5);
  }
  auto projection = model->projection_weight();
  projection.normal_(0, 0.4)[Vocabulary::end].fill_(8.0 / static_cast<double>(settings.d_model));
  model->eval();
  return model;
}

inline ModelSettings tiny_settings(int64_t vocabulary_size) {
  ModelSettings settings;
  settings.d_model = 16;
  settings.d_ff = 32;
  settings.heads = 2;
  settings.encoder_layers = settings.decoder_layers = 2;
  settings.vocabulary_size = vocabulary_size;
  // With one matrix for all, an untrained model mostly repeats its last token.
  settings.shared_embeddings = ModelSettings::SharedEmbeddings::none;
  return settings;
}

/// Writes a whole model directory with untrained weights; with `two_vocabularies`, one for each language; with so many
/// learned positions, or sinusoids.
inline void write_tiny_model(const std::filesystem::path& directory, const DecodingSettings& given = {},
                             bool two_vocabularies = false, int64_t learned_positions = 0) {
  std::filesystem::create_directories(directory);
  std::string text;
  for (const auto& sentence : made_up_sentences(400, 7)) text += sentence + '\n';
  write_atomically(directory / "text.txt", text);
  auto model_settings = tiny_settings(320);
  if (learned_positions > 0) {
    model_settings.positions = ModelSettings::Positions::learned;
    model_settings.max_positions = learned_positions;
  }
  if (two_vocabularies) {
    model_settings.target_vocabulary_size = 330;
    Vocabulary::train({directory / "text.txt"}, 320, {}, directory / "source.model");
    Vocabulary::train({directory / "text.txt"}, 330, {}, directory / "target.model");
  } else {
    Vocabulary::train({directory / "text.txt"}, 320, {}, directory / "vocabulary.model");
  }
  std::filesystem::remove(directory / "text.txt");
  save_weights(*tiny_transformer(model_settings), directory / "model.safetensors");
  auto decoding = given;
  VocabularySettings vocabulary;
  vocabulary.joint = !two_vocabularies;
  Settings settings;
  settings.section("model", model_settings, "The model");
  settings.section("vocabulary", vocabulary, "The vocabulary");
  settings.section("decoding", decoding, "Decoding");
  write_atomically(directory / "config.yaml", settings.yaml());
}

/// What tiny models' vocabularies have, where a test is about no other number.
constexpr int64_t pieces = 40;

/// Bit for bit.
inline void check_same(const std::vector<Hypothesis>& found, const std::vector<Hypothesis>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].tokens == expected[i].tokens);
    CHECK(found[i].log_probability == expected[i].log_probability);
    CHECK(found[i].score == expected[i].score);
    CHECK(found[i].token_log_probabilities == expected[i].token_log_probabilities);
    CHECK(found[i].finished == expected[i].finished);
  }
}

inline void check_same(const std::vector<std::vector<Hypothesis>>& found,
                       const std::vector<std::vector<Hypothesis>>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) check_same(found[i], expected[i]);
}

}  // namespace transformer::test
