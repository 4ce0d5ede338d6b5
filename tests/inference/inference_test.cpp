#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "inference/tiny_model.h"
#include "error_of.h"
#include "model/variations.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/inference_batch.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/translator.h"
#include "transformer/evaluation/bleu.h"
#include "transformer/text/lines.h"

namespace transformer::test {

namespace {

using Ids = std::vector<int64_t>;
using Shared = ModelSettings::SharedEmbeddings;

constexpr int64_t pieces = 40;

std::vector<Ids> random_sources(size_t count, unsigned seed, size_t longest = 9) {
  auto sources = random_sentences(count, seed, pieces, longest);
  for (auto& source : sources) source.push_back(Vocabulary::end);
  return sources;
}

/// Models of every kind of settings that packed inference claims to support.
std::map<std::string, ModelSettings> every_kind() {
  std::map<std::string, ModelSettings> kinds;
  const auto tiny = tiny_settings(pieces);
  kinds["three embeddings"] = tiny;
  auto& all = kinds["one embedding"] = tiny;
  all.shared_embeddings = Shared::all;
  auto& target = kinds["two embeddings, two vocabularies"] = tiny;
  target.shared_embeddings = Shared::target;
  target.source_vocabulary_size = pieces + 3;
  auto& learned = kinds["learned positions"] = tiny;
  learned.positions = ModelSettings::Positions::learned;
  learned.max_positions = 40;
  auto& widths = kinds["odd widths, biases"] = tiny;
  widths.d_model = 21;
  widths.d_ff = 35;
  widths.heads = 3;
  widths.d_k = 5;
  widths.d_v = 9;
  widths.projection_bias = true;
  auto& before = kinds["normalisation before the sub-layers"] = tiny;
  before.normalization = ModelSettings::Normalization::pre;
  auto& layers = kinds["more decoder layers, epsilon"] = tiny;
  layers.encoder_layers = 1;
  layers.decoder_layers = 3;
  layers.layer_norm_epsilon = 1e-2;
  return kinds;
}

std::vector<std::vector<Hypothesis>> by_modules(Transformer model, const std::vector<Ids>& sources, const Ids& lengths,
                                                const DecodingSettings& settings) {
  std::vector<std::vector<Hypothesis>> results;
  for (size_t i = 0; i < sources.size(); ++i) {
    results.push_back(beam_search(transformer_step(model, torch::tensor(sources[i]).unsqueeze(0)), Ids{lengths[i]},
                                  Vocabulary::begin, Vocabulary::end, settings)
                          .at(0));
  }
  return results;
}

Ids lengths_of(const std::vector<Ids>& sources, int64_t extra) {
  Ids lengths;
  for (const auto& source : sources) lengths.push_back(static_cast<int64_t>(source.size()) + extra);
  return lengths;
}

void randomise_biases(Transformer& model) {
  torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    const bool of_sublayer =
        item.key().find("attention") != std::string::npos || item.key().find("inner") != std::string::npos;
    if (item.value().dim() == 1 && of_sublayer && item.key().find("norm") == std::string::npos)
      item.value().normal_(0, 0.3);
  }
}

void check_equal_bits(const std::vector<std::vector<Hypothesis>>& found,
                      const std::vector<std::vector<Hypothesis>>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    REQUIRE(found[i].size() == expected[i].size());
    for (size_t k = 0; k < found[i].size(); ++k) {
      CHECK(found[i][k].tokens == expected[i][k].tokens);
      CHECK(found[i][k].log_probability == expected[i][k].log_probability);
      CHECK(found[i][k].finished == expected[i][k].finished);
    }
  }
}

}  // namespace

TEST_CASE("packed float32 inference finds what the modules find, for every kind of model and instruction set") {
  const auto sources = random_sources(12, 3);
  const auto lengths = lengths_of(sources, 5);
  for (const auto& [name, settings] : every_kind()) {
    auto model = tiny_transformer(settings, 5);
    randomise_biases(model);
    REQUIRE(InferenceModel::supports(model->settings()));
    for (const int64_t beam : {1, 3}) {
      const DecodingSettings decoding{.beam = beam, .n_best = beam, .batch_sentences = 5};
      const auto expected = by_modules(model, sources, lengths, decoding);
      for (const auto* kernels : available_kernels()) {
        const InferenceModel packed(settings, stored_weights(weights_of(*model)), Precision::float32, "", *kernels);
        const auto found = continuous_search(packed, sources, lengths, decoding);
        INFO(name << ", beam " << beam << ", " << kernels->name);
        REQUIRE(found.size() == expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          REQUIRE(found[i].size() == expected[i].size());
          for (size_t k = 0; k < found[i].size(); ++k) {
            CHECK(found[i][k].tokens == expected[i][k].tokens);
            CHECK(found[i][k].finished == expected[i][k].finished);
            CHECK(std::abs(found[i][k].log_probability - expected[i][k].log_probability) < 2e-4);
          }
        }
      }
    }
  }
}

TEST_CASE("sinusoids go on past those that are stored") {
  auto settings = tiny_settings(pieces);
  const auto model = tiny_transformer(settings, 2);
  const InferenceModel packed(settings, stored_weights(weights_of(*model)), Precision::float32, "");
  Ids source(530, 7);
  source.push_back(Vocabulary::end);
  const DecodingSettings decoding{.beam = 2, .batch_sentences = 1};
  const auto expected = by_modules(model, {source}, {3}, decoding);
  const auto found = continuous_search(packed, std::vector<Ids>{source}, Ids{3}, decoding);
  CHECK(found[0][0].tokens == expected[0][0].tokens);
  CHECK(found[0][0].log_probability == Approx(expected[0][0].log_probability).epsilon(1e-4));
}

TEST_CASE("a step gives the modules' continuations however hypotheses are reordered and sentences come and go") {
  auto model = tiny_transformer(tiny_settings(pieces), 9);
  const InferenceModel packed(model->settings(), stored_weights(weights_of(*model)), Precision::float32, "");
  constexpr int64_t beam = 3, width = 6;
  InferenceBatch batch(packed);
  struct Live {
    int64_t place;
    Ids source;
    std::vector<Ids> prefixes;
  };
  std::vector<Live> live;
  std::mt19937 random(4);
  const auto sources = random_sources(30, 6);
  size_t next = 0;
  torch::NoGradGuard no_grad;
  for (int time = 0; time < 25; ++time) {
    if (!live.empty() && random() % 3 == 0) {
      const size_t gone = random() % live.size();
      batch.remove(live[gone].place);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    while (live.size() < 4 && next < sources.size()) {
      const size_t count = 1 + random() % 2;
      const auto chosen = std::span(sources).subspan(next, std::min(count, sources.size() - next));
      std::vector<InferenceBatch::Source> given;
      for (const auto& source : chosen) given.push_back({.pieces = source, .beam = beam});
      const auto places = batch.add(given);
      for (size_t i = 0; i < places.size(); ++i) live.push_back({places[i], chosen[i], {}});
      next += chosen.size();
    }
    std::vector<InferenceBatch::Row> rows;
    for (auto& sentence : live) {
      std::vector<Ids> prefixes;
      const size_t count = sentence.prefixes.empty() ? 1 : 1 + random() % beam;
      for (size_t i = 0; i < count; ++i) {
        if (sentence.prefixes.empty()) {
          prefixes.push_back({Vocabulary::begin});
          rows.push_back({sentence.place, 0, Vocabulary::begin});
          continue;
        }
        const auto parent = random() % sentence.prefixes.size();
        prefixes.push_back(sentence.prefixes[parent]);
        prefixes.back().push_back(4 + static_cast<int64_t>(random() % (pieces - 4)));
        rows.push_back({sentence.place, static_cast<int64_t>(parent), prefixes.back().back()});
      }
      sentence.prefixes = prefixes;
    }
    const auto found = batch.step(rows, width);
    REQUIRE(found.width == width);
    size_t row = 0;
    for (const auto& sentence : live) {
      for (const auto& prefix : sentence.prefixes) {
        auto expected =
            model->forward(torch::tensor(sentence.source).unsqueeze(0), torch::tensor(prefix).unsqueeze(0))[0][-1]
                .log_softmax(-1);
        CHECK(found.tokens[row * width] == 2 + expected.narrow(0, 2, pieces - 2).argmax().item<int64_t>());
        for (size_t k = 0; k < width; ++k) {
          const int64_t token = found.tokens[row * width + k];
          CHECK(token >= Vocabulary::end);
          CHECK(std::abs(found.log_probabilities[row * width + k] - expected[token].item<double>()) < 2e-5);
        }
        ++row;
      }
    }
  }
}

TEST_CASE("batches, threads and waiting sentences change nothing, bit for bit") {
  const auto sources = random_sources(60, 12, 14);
  const auto lengths = lengths_of(sources, 8);
  auto model = tiny_transformer(tiny_settings(320), 4);
  for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
    const InferenceModel packed(model->settings(), stored_weights(weights_of(*model)), precision, "");
    std::vector<std::vector<Hypothesis>> alone;
    // Longer output is favoured, so that sentences take many steps.
    DecodingSettings decoding{.beam = 4,
                              .alpha = 3,
                              .length_penalty = DecodingSettings::LengthPenalty::power,
                              .n_best = 2,
                              .batch_sentences = 1};
    for (size_t i = 0; i < sources.size(); ++i) {
      alone.push_back(
          continuous_search(packed, std::span(sources).subspan(i, 1), std::span(lengths).subspan(i, 1), decoding)
              .at(0));
    }
    std::set<double> different;
    size_t tokens = 0;
    for (const auto& hypotheses : alone) {
      different.insert(hypotheses.at(0).log_probability);
      tokens += hypotheses.at(0).tokens.size();
    }
    CHECK(different.size() > 20);  // a model that says the same to everything would prove nothing
    CHECK(tokens > 60);
    for (const int64_t batch : {1, 3, 16, 100}) {
      for (const int64_t threads : {1, 3}) {
        decoding.batch_sentences = batch;
        INFO("precision " << static_cast<int>(precision) << " batch " << batch << " threads " << threads);
        check_equal_bits(continuous_search(packed, sources, lengths, decoding, {.threads = threads}), alone);
        // A budget that holds one sentence or two.
        check_equal_bits(
            continuous_search(packed, sources, lengths, decoding, {.threads = threads, .cache_bytes = 20000}), alone);
      }
    }
  }
}

TEST_CASE("one model serves several threads at once") {
  const TemporaryDirectory directory;
  write_tiny_model(directory.path(), {.max_extra_length = 6});
  const Translator translator(directory.path(), "cpu", {.precision = Precision::int8, .threads = 2});
  const auto lines = made_up_sentences(30, 5);
  const auto expected = translator.translate(lines);
  std::vector<std::vector<std::vector<Translation>>> found(3);
  {
    std::vector<std::jthread> threads;
    for (auto& result : found) threads.emplace_back([&] { result = translator.translate(lines); });
  }
  for (const auto& result : found) {
    REQUIRE(result.size() == lines.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      CHECK(result[i].at(0).text == expected[i].at(0).text);
      CHECK(result[i].at(0).score == expected[i].at(0).score);
    }
  }
}

TEST_CASE("weights that are not finite are refused by name, in every precision") {
  const auto settings = tiny_settings(pieces);
  for (const char* name : {"encoder.layers.1.feed_forward.inner.weight",
                           "decoder.layers.0.self_attention.output.weight", "encoder.layers.0.feed_forward.outer.bias",
                           "decoder.layers.1.after_self_attention.norm.bias", "projection.weight"}) {
    for (const double bad : {double(NAN), double(INFINITY)}) {
      const auto model = tiny_transformer(settings);
      {
        torch::NoGradGuard no_grad;
        model->named_parameters()[name].view({-1})[1] = bad;
      }
      const test::TemporaryDirectory folder;
      save_weights(*model, folder / "model.safetensors");
      Transformer modules(settings);
      const auto check = [&](const std::string& refusal) {
        CHECK_THAT(refusal, Catch::Contains("model.safetensors") && Catch::Contains(name) && Catch::Contains("finite"));
      };
      check(error_of([&] { load_weights(*modules, folder / "model.safetensors"); }));
      for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
        check(error_of([&] { InferenceModel(settings, stored_weights(weights_of(*model)), precision, "model.safetensors"); }));
      }
    }
  }
}

TEST_CASE("weights beyond measure end in a failure, in every precision and whichever thread meets them") {
  const auto sources = random_sources(9, 2);
  const auto lengths = lengths_of(sources, 2);
  for (const char* name : {"encoder.layers.1.feed_forward.outer.bias", "decoder.layers.0.self_attention.output.weight",
                           "projection.weight"}) {
    auto model = tiny_transformer(tiny_settings(pieces));
    {
      torch::NoGradGuard no_grad;
      model->named_parameters()[name].fill_(3e38);  // a number, of which sums are none
    }
    for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
      const InferenceModel packed(model->settings(), stored_weights(weights_of(*model)), precision, "");
      for (const int64_t threads : {1, 3}) {
        INFO(name << " precision " << static_cast<int>(precision));
        CHECK_THROWS_AS(continuous_search(packed, sources, lengths, {}, {.threads = threads}), Failure);
      }
    }
  }
}

TEST_CASE("weights of another model are refused by name") {
  using Catch::Matchers::Contains;
  const auto settings = tiny_settings(pieces);
  const auto weights = weights_of(*tiny_transformer(settings));
  const auto refusal = [&](const TensorMap& given) {
    return error_of([&] { InferenceModel(settings, stored_weights(given), Precision::float32, "model.safetensors"); });
  };
  CHECK(refusal(weights).empty());
  auto missing = weights;
  missing.erase("decoder.layers.1.feed_forward.outer.bias");
  CHECK_THAT(refusal(missing),
             Contains("model.safetensors: the weights of 'decoder.layers.1.feed_forward.outer.bias'"));
  auto unknown = weights;
  unknown["other"] = torch::zeros({2});
  CHECK_THAT(refusal(unknown), Contains("'other' is no parameter of this model"));
  auto shaped = weights;
  shaped["encoder.layers.0.self_attention.output.weight"] = torch::zeros({16, 3});
  CHECK_THAT(refusal(shaped), Contains("has shape [16, 3], the model's settings ask for [16, 16]"));
  auto integers = weights;
  integers["projection.weight"] = torch::zeros({pieces, 16}, torch::kInt64);
  CHECK_THAT(refusal(integers), Contains("'projection.weight' holds integers"));
}

TEST_CASE("word pieces that do not exist and positions that were not learned are refused") {
  using Catch::Matchers::StartsWith;
  auto settings = tiny_settings(pieces);
  settings.positions = ModelSettings::Positions::learned;
  settings.max_positions = 3;
  const InferenceModel packed(settings, stored_weights(weights_of(*tiny_transformer(settings))), Precision::float32, "");
  const auto refusal = [&](const Ids& source) {
    return error_of([&] { continuous_search(packed, std::vector<Ids>{source}, Ids{1}, {}); });
  };
  CHECK(refusal({5, 6, 2}).empty());
  CHECK_THAT(refusal({5, 6, 7, 2}), StartsWith("model.max_positions: a sequence of 4 tokens"));
  CHECK_THAT(refusal({pieces, 2}), StartsWith("word piece 40: is not one of the vocabulary's 40"));
  CHECK_THAT(refusal({-1, 2}), StartsWith("word piece -1"));
}

TEST_CASE("settings that packed inference does not know are refused, those of training are not") {
  auto settings = tiny_settings(pieces);
  settings.dropout = 0.4;
  settings.relu_dropout = 0.2;
  settings.max_positions = 77;
  CHECK(InferenceModel::supports(settings));
  settings.attention_window = 5;
  CHECK_FALSE(InferenceModel::supports(settings));
  settings = tiny_settings(pieces);
  settings.compatibility = ModelSettings::Compatibility::additive;
  CHECK_FALSE(InferenceModel::supports(settings));
}

TEST_CASE("a model that packed inference does not know is translated by its modules") {
  const TemporaryDirectory directory;
  write_tiny_model(directory.path(), {.max_extra_length = 4});
  auto config = read_file(directory / "config.yaml");
  const std::string full = "attention_window: 0";
  REQUIRE(config.find(full) != std::string::npos);
  write_file(directory / "config.yaml", config.replace(config.find(full), full.size(), "attention_window: 3"));
  const auto lines = made_up_sentences(8, 3);
  const Translator translator(directory.path());
  const auto modules = module_translator(load_transformer(directory.path()), Vocabularies::load(directory.path(), 320, 320),
                           translator.settings());
  const auto found = translator.translate(lines), expected = modules.translate(lines);
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(found[i].at(0).text == expected[i].at(0).text);
    CHECK(found[i].at(0).score == Approx(expected[i].at(0).score));
  }
  const auto in_bf16 = Translator(directory.path(), "cpu", {.precision = Precision::bf16}).translate(lines);
  auto rounded = load_transformer(directory.path());
  rounded->to(torch::kBFloat16);
  const auto by_hand = module_translator(rounded, Vocabularies::load(directory.path(), 320, 320), translator.settings());
  const auto expected_in_bf16 = by_hand.translate(lines);
  bool differs = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(in_bf16[i].at(0).text == expected_in_bf16[i].at(0).text);
    CHECK(in_bf16[i].at(0).score == expected_in_bf16[i].at(0).score);
    differs = differs || in_bf16[i].at(0).score != found[i].at(0).score;
  }
  CHECK(differs);
  for (const auto precision : {Precision::fp16, Precision::int8}) {
    CHECK_THAT(error_of([&] { Translator(directory.path(), "cpu", {.precision = precision}); }),
               Catch::Matchers::StartsWith("precision: the modules decode in float32 or bf16"));
  }
}

TEST_CASE("fp16 is for GPUs") {
  const TemporaryDirectory directory;
  write_tiny_model(directory.path());
  CHECK_THAT(error_of([&] { Translator(directory.path(), "cpu", {.precision = Precision::fp16}); }),
             Catch::Matchers::StartsWith("precision: fp16 is for decoding on a GPU"));
}

TEST_CASE("modules decode in bf16 and fp16 what they do in float32, in every variation") {
  for (const auto& [name, settings] : variations()) {
    auto model = tiny_transformer(settings, 3);
    const auto source = torch::tensor(Ids{5, 9, 11, 4, 8, 17, Vocabulary::end}).unsqueeze(0);
    const Ids output = {7, 12, 5, 18, 9};
    // log p of each token of the output, from cached steps.
    const auto log_probabilities = [&, vocabulary_size = settings.vocabulary_size] {
      std::vector<double> result;
      const auto step = transformer_step(model, source);
      int64_t previous = Vocabulary::begin;
      for (const int64_t token : output) {
        const auto best = step(Ids{previous}, Ids{0}, vocabulary_size);
        const auto place = std::find(best.tokens.begin(), best.tokens.end(), token) - best.tokens.begin();
        result.push_back(best.log_probabilities.at(static_cast<size_t>(place)));
        previous = token;
      }
      return result;
    };
    const auto expected = log_probabilities();
    for (const auto type : {torch::kBFloat16, torch::kHalf}) {
      model->to(type);
      const auto found = log_probabilities();
      CHECK(found != expected);
      for (size_t i = 0; i < expected.size(); ++i) {
        INFO(name << " token " << i << " " << type);
        CHECK(found[i] == Approx(expected[i]).margin(0.15));
      }
      model = tiny_transformer(settings, 3);
    }
  }
}

TEST_CASE("the shipped model: float32 says what the modules say, bf16 and int8 lose next to nothing") {
  const std::filesystem::path data = std::filesystem::path(TRANSFORMER_SOURCE_DIR) / "data";
  const auto read = [&](const char* name, size_t count) {
    LineReader reader(data / "tatoeba-en-de" / name);
    std::vector<std::string> lines;
    for (std::string line; lines.size() < count && reader.next(line);) lines.push_back(line);
    return lines;
  };
  constexpr size_t all = 1500, some = 500;
  const auto lines = read("valid.en.gz", all), references = read("valid.de.gz", all);
  REQUIRE(lines.size() == all);
  const auto translate = [&](Precision precision) {
    return Translator(data / "model-en-de", "cpu", {.precision = precision}).translate(lines);
  };
  const auto bleu = [&](const std::vector<std::vector<Translation>>& translations) {
    std::vector<std::string> texts;
    for (const auto& alternatives : translations) texts.push_back(alternatives.at(0).text);
    return corpus_bleu(texts, {references}).score;
  };
  const auto found = translate(Precision::float32);
  auto model = load_transformer(data / "model-en-de");
  const auto vocabulary_size = model->settings().target_vocabulary_size;
  const auto modules = module_translator(model, Vocabularies::load(data / "model-en-de", vocabulary_size, vocabulary_size), {});
  const auto expected = modules.translate({lines.begin(), lines.begin() + some});
  for (size_t i = 0; i < some; ++i) {
    INFO(lines[i]);
    CHECK(found[i].at(0).text == expected[i].at(0).text);
    CHECK(std::abs(found[i].at(0).score - expected[i].at(0).score) < 1e-4);
  }
  const double reference = bleu(found);
  CHECK(std::abs(reference - 42.78) < 0.3);  // as its README says
  for (const auto precision : {Precision::bf16, Precision::int8}) {
    const double rounded = bleu(translate(precision));
    INFO("precision " << static_cast<int>(precision) << ": " << rounded << " of " << reference);
    CHECK(rounded > reference - 0.2);
  }
}

}  // namespace transformer::test
