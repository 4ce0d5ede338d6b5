#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "error_of.h"
#include "inference/tiny_model.h"
#include "model/variations.h"
#include "support.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/error.h"
#include "transformer/base/read_file.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/decoding/perplexity.h"
#include "transformer/evaluation/bleu.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/ensemble_batch.h"
#include "transformer/inference/inference_batch.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/packed_matrix.h"
#include "transformer/inference/perplexity.h"
#include "transformer/inference/translator.h"
#include "transformer/model/quantization.h"
#include "transformer/text/lines.h"

namespace transformer::test {

namespace {

using Ids = std::vector<int64_t>;
using Shared = ModelSettings::SharedEmbeddings;

std::vector<Ids> random_sources(size_t count, unsigned seed, int64_t vocabulary_size = pieces, size_t longest = 9) {
  auto sources = random_sentences(count, seed, vocabulary_size, longest);
  for (auto& source : sources) source.push_back(Vocabulary::end);
  return sources;
}

/// Models of every kind of settings: sizes and what is shared here, variations in variations.h.
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
  for (const auto& list : {variations(), pairs_of_variations()}) {
    for (const auto& [name, settings] : list) {
      REQUIRE(kinds.emplace(name, settings).second);
      kinds[name].shared_embeddings = Shared::none;
    }
  }
  // Wider than a vector of any processor, with parts of one left.
  auto& wide = kinds["wide, additive, swiglu"] = tiny;
  wide.d_k = 35;
  wide.d_v = 18;
  wide.d_ff = 75;
  wide.compatibility = ModelSettings::Compatibility::additive;
  wide.activation = ModelSettings::Activation::swiglu;
  auto& parameters = kinds["wide, attention over parameters"] = tiny;
  parameters.feed_forward = ModelSettings::FeedForward::attention_over_parameters;
  parameters.projection_bias = true;
  parameters.parameter_heads = 3;
  parameters.parameter_d_k = 33;
  parameters.parameter_d_v = 70;
  parameters.parameter_pairs = 21;
  return kinds;
}

std::vector<std::vector<Hypothesis>> by_modules(Transformer model, const std::vector<Ids>& sources, const Ids& lengths,
                                                const DecodingSettings& settings, int64_t end = Vocabulary::end) {
  std::vector<std::vector<Hypothesis>> results;
  for (size_t i = 0; i < sources.size(); ++i) {
    results.push_back(beam_search(transformer_step(model, torch::tensor(sources[i]).unsqueeze(0)), Ids{lengths[i]},
                                  Vocabulary::begin, end, settings)
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
    const auto has = [&](const char* part) { return item.key().find(part) != std::string::npos; };
    const bool of_sublayer = has("attention") || has("inner") || has("forget");
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
  std::set<std::vector<double>> different;  // log-probabilities of the best
  for (const auto& [name, settings] : every_kind()) {
    const auto sources = random_sources(6, 3, settings.resolved().source_vocabulary_size);
    const auto lengths = lengths_of(sources, 5);
    auto model = tiny_transformer(settings, 5);
    randomise_biases(model);
    for (const int64_t beam : {1, 3}) {
      const DecodingSettings decoding{.beam = beam, .n_best = beam, .batch_sentences = 5};
      const auto expected = by_modules(model, sources, lengths, decoding);
      std::vector<double> outputs;
      for (const auto& hypotheses : expected) outputs.push_back(hypotheses.at(0).log_probability);
      different.insert(outputs);
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
  CHECK(different.size() > every_kind().size());  // a setting without effect would prove nothing
}

TEST_CASE("quantization-aware training rounds factors as decoding in int8 does") {
  torch::manual_seed(5);
  const int64_t rows = 7, depth = 83, outputs = 130;
  const auto x = torch::randn({rows, depth}) * torch::rand({rows, 1}).add(0.01),
             weight = torch::randn({outputs, depth}) * torch::rand({outputs, 1}).add(0.01),
             bias = torch::randn({outputs});
  struct Layer : QuantizationAware {
    using QuantizationAware::linear;
  } layer;
  layer.set_quantization(true);
  const auto expected = layer.linear(x, weight, bias, /*trains=*/true), plain = torch::linear(x, weight, bias);
  CHECK(torch::equal(layer.linear(x, weight, bias, /*trains=*/false), plain));
  for (const auto* kernels : available_kernels()) {
    const PackedMatrix matrix(*kernels, Precision::int8, weight.data_ptr<float>(), outputs, depth,
                              bias.data_ptr<float>());
    Activations activations(*kernels, Precision::int8);
    activations.set(x.data_ptr<float>(), rows, depth, depth);
    const int64_t stride = PackedMatrix::padded(outputs);
    std::vector<float> y(static_cast<size_t>(rows * stride));
    matrix.multiply(activations, y.data(), stride);
    const auto found = torch::from_blob(y.data(), {rows, outputs}, {stride, 1});
    const auto apart = [&](const torch::Tensor& other) { return (found - other).abs().mean().item<double>(); };
    CHECK(apart(expected) < 1e-5);
    CHECK(apart(plain) > 1e-3);
    std::vector<float> embedding(static_cast<size_t>(depth));
    matrix.row(3, 2, embedding.data());
    const auto row = torch::from_blob(embedding.data(), {depth});
    CHECK((row - 2 * rounded_to_int8(weight[3])).abs().max().item<double>() < 1e-5);
  }
}

TEST_CASE("every variation in bf16 and int8: close to float32, and the same in any batch, bit for bit") {
  for (const auto& [name, varied] : variations()) {
    const auto& settings = varied;  // Clang 14 captures no part of a pair
    const auto model = tiny_transformer(settings, 8);
    const auto sources = random_sources(8, 21, settings.vocabulary_size),
               outputs = random_sources(8, 22, settings.vocabulary_size);
    // log p of every output's tokens.
    const auto log_probabilities = [&](Precision precision, size_t at_once) {
      const InferenceModel packed(settings, stored_weights(weights_of(*model)), precision, "");
      std::vector<std::vector<double>> found;
      for (size_t first = 0; first < sources.size(); first += at_once) {
        InferenceBatch batch(packed);
        std::vector<InferenceBatch::Source> given;
        for (const auto& source : std::span(sources).subspan(first, std::min(at_once, sources.size() - first))) {
          given.push_back({.pieces = source, .beam = 2});
        }
        const auto places = batch.add(given);
        std::vector<Ids> read;
        for (size_t i = 0; i < places.size(); ++i) {
          read.push_back(outputs[first + i]);
          read.back().insert(read.back().begin(), Vocabulary::begin);
          read.back().pop_back();
        }
        std::vector<InferenceBatch::Target> targets;
        for (size_t i = 0; i < places.size(); ++i) targets.push_back({places[i], read[i], outputs[first + i]});
        for (auto& scores : batch.score(targets)) found.push_back(std::move(scores));
        // Token by token it is the same, to the last bit.
        for (size_t i = 0; i < places.size(); ++i) {
          const auto& output = outputs[first + i];
          for (size_t position = 0; position < output.size(); ++position) {
            const InferenceBatch::Row row{places[i], 0, read[i][position]};
            const auto best = batch.step({&row, 1}, settings.vocabulary_size);
            const auto at = std::find(best.tokens.begin(), best.tokens.end(), output[position]) - best.tokens.begin();
            REQUIRE(best.log_probabilities.at(static_cast<size_t>(at)) == found[first + i][position]);
          }
        }
      }
      return found;
    };
    const auto in_float32 = log_probabilities(Precision::float32, 8);
    for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
      const auto found = log_probabilities(precision, 8);
      INFO(name << " precision " << static_cast<int>(precision));
      CHECK(log_probabilities(precision, 1) == found);
      CHECK(log_probabilities(precision, 3) == found);
      if (precision == Precision::float32) continue;
      CHECK(found != in_float32);
      double difference = 0, tokens = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        difference += std::abs(std::accumulate(found[i].begin(), found[i].end(), 0.0) -
                               std::accumulate(in_float32[i].begin(), in_float32[i].end(), 0.0));
        tokens += static_cast<double>(outputs[i].size());
      }
      CHECK(difference / tokens < (precision == Precision::bf16 ? 0.03 : 0.1));
    }
  }
}

TEST_CASE("weights packed into a file are those that are packed at loading, bit for bit, in every variation") {
  for (const auto& [name, varied] : variations()) {
    const auto& settings = varied;  // Clang 14 captures no part of a pair
    const auto model = tiny_transformer(settings, 8);
    const test::TemporaryDirectory folder;
    save_weights(*model, folder / "model.safetensors");
    auto section = settings;
    Settings file;
    file.section("model", section, "");
    write_file(folder / "config.yaml", file.yaml());
    const auto sources = random_sentences(4, 21, settings.vocabulary_size),
               targets = random_sentences(4, 22, settings.vocabulary_size);
    for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
      INFO(name << " " << precision_name(precision));
      const test::TemporaryDirectory packed;
      write_file(packed / "config.yaml", file.yaml());
      InferenceModel::pack(folder.path(), settings, precision, packed / "model.safetensors");
      const auto trained = InferenceModel::load(folder.path(), settings, precision),
                 stored = InferenceModel::load(packed.path(), read_model_settings(packed.path())),
                 copied = InferenceModel::load(packed.path(), settings, {}, PackedIn::memory);
      CHECK(stored->precision() == precision);
      CHECK(stored->bytes() == trained->bytes());
      CHECK(log_probabilities(*stored, sources, targets) == log_probabilities(*trained, sources, targets));
      CHECK(log_probabilities(*copied, sources, targets) == log_probabilities(*trained, sources, targets));

      // For nothing else, and in no other precision.
      CHECK_THAT(error_of([&] { load_transformer(packed.path()); }), Contains("packed for decoding"));
      const auto other = precision == Precision::int8 ? Precision::bf16 : Precision::int8;
      CHECK_THAT(error_of([&] { InferenceModel::load(packed.path(), settings, other); }),
                 Contains(std::string("packed as ") + precision_name(precision)));
      CHECK_THAT(
          error_of([&] { InferenceModel::pack(packed.path(), settings, precision, folder / "again.safetensors"); }),
          Contains("packed for decoding"));
    }
  }
}

TEST_CASE("a file of packed weights that is another model's, or damaged, is refused by name") {
  const auto settings = tiny_settings(pieces).resolved();
  const test::TemporaryDirectory folder, packed;
  for (const auto* directory : {&folder, &packed}) {
    auto section = settings;
    Settings file;
    file.section("model", section, "");
    write_file(*directory / "config.yaml", file.yaml());
  }
  save_weights(*tiny_transformer(settings), folder / "model.safetensors");
  InferenceModel::pack(folder.path(), settings, Precision::int8, packed / "model.safetensors");
  const auto text = read_file(packed / "model.safetensors");
  const auto refused = [&](const std::string& from, const std::string& to, ModelSettings given) {
    auto changed = text;
    for (size_t at = changed.find(from); !from.empty() && at != std::string::npos; at = changed.find(from)) {
      changed.replace(at, from.size(), to);
    }
    write_file(packed / "model.safetensors", changed);
    return error_of([&] { InferenceModel::load(packed.path(), given); });
  };
  CHECK(refused("", "", settings).empty());
  CHECK_THAT(refused("\"packed\":\"int8\"", "\"packed\":\"int9\"", settings), Contains("'int9'"));
  CHECK_THAT(refused("\"packed\":\"int8\"", "\"packed\":\"bf16\"", settings), Contains("packed as bf16 asks for"));
  CHECK_THAT(refused("decoder.layers.0.self_attention.output.weight.scales",
                     "decoder.layers.0.self_attention.output.weight.scalex", settings),
             Contains("scales' are missing"));
  auto narrower = settings;
  narrower.encoder_layers = 1;
  CHECK_THAT(refused("", "", narrower), Contains("is no part of this model"));
  auto wider = settings;
  wider.d_ff = 33;
  CHECK_THAT(refused("", "", wider), Contains("feed_forward.inner") && Contains("asks for"));
  // Half a panel less.
  write_file(packed / "model.safetensors", text.substr(0, text.size() - 1000));
  CHECK_THAT(error_of([&] { InferenceModel::load(packed.path(), settings); }), Contains("bytes of data"));
}

TEST_CASE("windows of long texts: the modules' outputs, in pages that sentences hand on") {
  auto settings = tiny_settings(pieces);
  settings.attention_window = 7;
  settings.compatibility =
      GENERATE(ModelSettings::Compatibility::scaled_dot_product, ModelSettings::Compatibility::additive);
  settings.decoder_self_attention =
      GENERATE(ModelSettings::DecoderSelfAttention::attention, ModelSettings::DecoderSelfAttention::ssru);
  const auto model = tiny_transformer(settings, 6);
  const InferenceModel packed(settings, stored_weights(weights_of(*model)), Precision::float32, "");
  auto sources = random_sources(3, 14, pieces, 6);
  auto& longest = sources.emplace_back();
  for (int64_t i = 0; i < 5000; ++i) longest.push_back(4 + i * i % (pieces - 4));
  longest.push_back(Vocabulary::end);
  const Ids lengths = {300, 150, 220, 3};
  const DecodingSettings decoding{.beam = 3, .n_best = 3, .batch_sentences = 4};
  const auto expected = by_modules(model, sources, lengths, decoding, SentenceSearch::no_end);
  const auto found = continuous_search(packed, sources, lengths, decoding, {.end = SentenceSearch::no_end});
  for (size_t i = 0; i < sources.size(); ++i) {
    INFO("sentence " << i);
    REQUIRE(found[i].size() == expected[i].size());
    for (size_t k = 0; k < found[i].size(); ++k) {
      CHECK(found[i][k].tokens == expected[i][k].tokens);
      CHECK(found[i][k].log_probability == Approx(expected[i][k].log_probability).epsilon(1e-4));
    }
  }
}

TEST_CASE("of what sentences that are gone leave, little is kept, wherever they were and whatever beams they had") {
  auto settings = tiny_settings(pieces);
  settings.attention_window = 2;
  const auto packed = packed_model(tiny_transformer(settings, 6));
  InferenceBatch batch(*packed);
  const Ids piece(5000, 7), few(3, 7);
  int64_t most = 0;
  for (int64_t round = 0; round < 30; ++round) {
    // The long one lies in another place each time.
    std::vector<InferenceBatch::Source> sources(static_cast<size_t>(round % 15), {.pieces = few});
    sources.push_back({.pieces = piece, .beam = 1 + round});
    const auto places = batch.add(sources);
    for (int64_t step = 0; step < 70; ++step) {
      const std::vector<InferenceBatch::Row> rows(step == 0 ? 1 : static_cast<size_t>(1 + round),
                                                  {places.back(), 0, step == 0 ? Vocabulary::begin : 7});
      static_cast<void>(batch.step(rows, 1, {}));
    }
    most = std::max(most, batch.cache_bytes());
    for (const int64_t place : places) batch.remove(place);
    CHECK(batch.cache_bytes() == 0);
    CHECK(batch.kept_bytes() > 0);
    CHECK(batch.kept_bytes() <= int64_t{8} << 20);
  }
  CHECK(most > 1'000'000);
  batch.release();
  CHECK(batch.kept_bytes() == 0);

  // A sentence beside others takes what those left.
  const std::vector<InferenceBatch::Source> twice(2, {.pieces = few});
  const auto places = batch.add(twice);
  batch.remove(places[0]);
  const int64_t used = batch.cache_bytes(), kept = batch.kept_bytes();
  CHECK(kept > 0);
  static_cast<void>(batch.add(std::span(twice).first(1)));
  CHECK(batch.kept_bytes() == 0);
  CHECK(batch.cache_bytes() == used + kept);
}

TEST_CASE("processes that share a corpus find one perplexity, to the bit, and packed weights find it too") {
  const auto settings = tiny_settings(pieces);
  auto model = tiny_transformer(settings, 5);
  const auto corpus = Corpus::of(random_sentences(50, 1, pieces), random_sentences(50, 2, pieces));
  constexpr int64_t batch_tokens = 64;
  const auto alone = perplexity(model, corpus, {.batch_tokens = batch_tokens}).value();
  for (const int64_t ranks : {2, 3, 50}) {
    std::vector<double> sums;
    size_t own = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto add = [&](std::vector<double>& values) {
        sums.resize(values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          own += values[i] != 0;
          sums[i] += values[i];
        }
        values = sums;
      };
      const auto found =
          perplexity(model, corpus, {.batch_tokens = batch_tokens, .rank = rank, .ranks = ranks, .sum = add});
      REQUIRE(found);
      CHECK(found->tokens == alone.tokens);
      if (rank + 1 == ranks) CHECK(found->loss == alone.loss);
    }
    CHECK(own + 1 == sums.size());  // each batch once, and none was told to stop
    CHECK(sums.size() > 3);
  }
  CHECK(std::abs(perplexity(*packed_model(model), corpus).loss - alone.loss) < 1e-5);
}

TEST_CASE("no process finds a perplexity where one of them was told to stop, and that one computes no more") {
  auto model = tiny_transformer(tiny_settings(pieces), 5);
  const auto corpus = Corpus::of(random_sentences(50, 1, pieces), random_sentences(50, 2, pieces));
  PerplexityOptions options{.batch_tokens = 64, .rank = 1, .ranks = 2, .sum = [](auto& values) { ++values.back(); }};
  CHECK_FALSE(perplexity(model, corpus, options));  // another was
  const std::atomic<bool> stop = true;
  options.stop = &stop;
  std::vector<double> told;
  options.sum = [&](const auto& values) { told = values; };
  CHECK_FALSE(perplexity(model, corpus, options));
  REQUIRE(told.size() > 4);
  CHECK(std::count(told.begin(), told.end(), 0) == std::ssize(told) - 1);
  CHECK(batch_losses(model, corpus, options).batches + 1 == std::ssize(told));  // as many for every process
}

TEST_CASE("a model in training is left so, also where its perplexity cannot be computed") {
  auto model = tiny_transformer(tiny_settings(pieces), 5);
  model->train();
  const auto sources = random_sentences(3, 1, pieces), targets = random_sentences(3, 2, pieces);
  (void)perplexity(model, Corpus::of(sources, targets));
  CHECK(model->is_training());
  CHECK_THROWS(perplexity(model, Corpus::of(random_sentences(3, 1, 100 * pieces), targets)));
  CHECK(model->is_training());
  model->eval();
  (void)perplexity(model, Corpus::of(sources, targets));
  CHECK_FALSE(model->is_training());
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

TEST_CASE("many continuations of a row begin with those that few are, bit for bit, equal ones too") {
  constexpr int64_t outputs = 300, few = 60, many = 200;
  auto transformer = tiny_transformer(tiny_settings(outputs), 9);
  {
    torch::NoGradGuard no_grad;
    auto projection = transformer->projection_weight();
    for (int64_t token = 100; token < outputs; token += 2) projection[token].copy_(projection[token + 1]);
  }
  const auto a = packed_model(transformer), b = packed_model(tiny_transformer(tiny_settings(outputs), 10));
  using Average = Ensemble::Average;
  const std::vector<Ensemble> ensembles = {{.models = {a}},
                                           {.models = {a, b}, .average = Average::probabilities},
                                           {.models = {a, b}, .average = Average::log_probabilities}};
  std::vector<int32_t> candidates;
  for (int32_t token = Vocabulary::end; token < outputs; token += token % 3 + 1) candidates.push_back(token);
  REQUIRE(candidates.size() > few);
  const auto sources = random_sources(4, 6, outputs);
  size_t equal = 0;
  for (size_t kind = 0; kind < ensembles.size(); ++kind) {
    const auto ensemble = ensembles[kind].validated();
    for (const size_t listed : {size_t{0}, size_t{1}, sources.size()}) {
      INFO("kind " << kind << ", listed " << listed);
      const auto step = [&](int64_t width) {
        EnsembleBatch batch(ensemble);
        std::vector<InferenceBatch::Source> given;
        for (const auto& source : sources) given.push_back({.pieces = source});
        for (size_t i = 0; i < listed; ++i) given[i].candidates = candidates;
        std::vector<InferenceBatch::Row> rows;
        for (const int64_t place : batch.add(given)) rows.push_back({place, 0, Vocabulary::begin});
        return batch.step(rows, width, {});
      };
      const auto some = step(few), more = step(many);
      REQUIRE(some.width == few);
      REQUIRE(more.width == many);
      for (size_t row = 0; row < sources.size(); ++row) {
        const auto of = [&](const Continuations& all) {
          const auto first = static_cast<std::ptrdiff_t>(row) * all.width;
          return std::pair(
              Ids(all.tokens.begin() + first, all.tokens.begin() + first + few),
              std::vector<double>(all.log_probabilities.begin() + first, all.log_probabilities.begin() + first + few));
        };
        CHECK(of(more) == of(some));
        // The rest goes on in the same order, each token once.
        const auto first = row * many;
        std::set<int64_t> seen;
        for (size_t i = first; i < first + many; ++i) {
          if (std::isinf(more.log_probabilities[i])) continue;
          CHECK(seen.insert(more.tokens[i]).second);
          CHECK(more.tokens[i] >= Vocabulary::end);
          if (i == first) continue;
          const double before = more.log_probabilities[i - 1], now = more.log_probabilities[i];
          CHECK((before > now || (before == now && more.tokens[i - 1] < more.tokens[i])));
          equal += before == now ? 1 : 0;
        }
        CHECK(seen.size() == (row < listed ? std::min<size_t>(many, candidates.size()) : many));
      }
    }
  }
  CHECK(equal > 0);
}

TEST_CASE("batches, threads and waiting sentences change nothing, bit for bit") {
  const auto sources = random_sources(60, 12, pieces, 14);
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
  const auto plain = tiny_settings(pieces);
  auto additive = plain, parameters = plain;
  additive.compatibility = ModelSettings::Compatibility::additive;
  additive.activation = ModelSettings::Activation::swiglu;
  additive.projection_bias = true;
  parameters.feed_forward = ModelSettings::FeedForward::attention_over_parameters;
  using Named = std::pair<const ModelSettings*, const char*>;
  for (const auto& [settings, name] :
       {Named{&plain, "encoder.layers.1.feed_forward.inner.weight"},
        Named{&plain, "decoder.layers.0.self_attention.output.weight"},
        Named{&plain, "encoder.layers.0.feed_forward.outer.bias"},
        Named{&plain, "decoder.layers.1.after_self_attention.norm.bias"}, Named{&plain, "projection.weight"},
        Named{&additive, "encoder.layers.0.self_attention.input_weight"},
        Named{&additive, "decoder.layers.0.memory_attention.input_bias"},
        Named{&additive, "encoder.layers.1.self_attention.additive_query"},
        Named{&additive, "decoder.layers.1.self_attention.additive_key"},
        Named{&additive, "decoder.layers.0.memory_attention.additive_vector"},
        Named{&additive, "decoder.layers.0.feed_forward.gate.weight"},
        Named{&parameters, "encoder.layers.0.feed_forward.keys"},
        Named{&parameters, "decoder.layers.1.feed_forward.values"},
        Named{&parameters, "decoder.layers.1.feed_forward.query.weight"}}) {
    for (const double bad : {double(NAN), double(INFINITY)}) {
      const auto model = tiny_transformer(*settings);
      {
        torch::NoGradGuard no_grad;
        model->named_parameters()[name].view({-1})[1] = bad;
      }
      const test::TemporaryDirectory folder;
      save_weights(*model, folder / "model.safetensors");
      Transformer modules(*settings);
      const std::string refused_name = name;
      const auto check = [&](const std::string& refusal) {
        CHECK_THAT(refusal, Contains("model.safetensors") && Contains(refused_name) && Contains("finite"));
      };
      check(error_of([&] { load_weights(*modules, folder / "model.safetensors"); }));
      for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
        const auto weights = stored_weights(weights_of(*model));
        check(error_of([&, of = settings] { InferenceModel(*of, weights, precision, "model.safetensors"); }));
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
  auto settings = tiny_settings(pieces);
  settings.positions = ModelSettings::Positions::learned;
  settings.max_positions = 3;
  const InferenceModel packed(settings, stored_weights(weights_of(*tiny_transformer(settings))), Precision::float32,
                              "");
  const auto refusal = [&](const Ids& source) {
    return error_of([&] { continuous_search(packed, std::vector<Ids>{source}, Ids{1}, {}); });
  };
  CHECK(refusal({5, 6, 2}).empty());
  CHECK_THAT(refusal({5, 6, 7, 2}), StartsWith("model.max_positions: a sequence of 4 tokens"));
  CHECK_THAT(refusal({pieces, 2}), StartsWith("word piece 40: is not one of the vocabulary's 40"));
  CHECK_THAT(refusal({-1, 2}), StartsWith("word piece -1"));
  // The modules say the same.
  const ModuleBackend modules(tiny_transformer(settings));
  const auto modules_refusal = [&](const Ids& source, int64_t max_length) {
    return error_of([&] { modules.decode({DecodingRequest{.source = source, .max_length = max_length}}); });
  };
  CHECK(modules_refusal({5, 6, 2}, 2).empty());
  CHECK_THAT(modules_refusal({5, 6, 7, 2}, 2), StartsWith("model.max_positions: a sequence of 4 tokens"));
  CHECK_THAT(modules_refusal({5, 2}, 3), StartsWith("model.max_positions: a sequence of 4 tokens"));
  CHECK_THAT(modules_refusal({pieces, 2}, 2), StartsWith("word piece 40: is not one of the vocabulary's 40"));
  CHECK_THAT(modules_refusal({}, 2), StartsWith("source: is empty"));
}

TEST_CASE("on a CPU a model directory of any settings is packed, in every precision") {
  const TemporaryDirectory directory;
  write_tiny_model(directory.path(), {.max_extra_length = 4});
  auto config = read_file(directory / "config.yaml");
  for (const auto& [from, to] : {std::pair{"attention_window: 0", "attention_window: 3"},
                                 {"activation: relu", "activation: gelu"},
                                 {"compatibility: scaled_dot_product", "compatibility: dot_product"}}) {
    REQUIRE(config.find(from) != std::string::npos);
    config.replace(config.find(from), std::string(from).size(), to);
  }
  write_file(directory / "config.yaml", config);
  const auto lines = made_up_sentences(8, 3);
  const Translator translator(directory.path());
  REQUIRE(translator.packed());
  const auto modules = module_translator(load_transformer(directory.path()),
                                         Vocabularies::load(directory.path(), 320, 320), translator.settings());
  const auto found = translator.translate(lines), expected = modules.translate(lines);
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(found[i].at(0).text == expected[i].at(0).text);
    CHECK(found[i].at(0).score == Approx(expected[i].at(0).score));
  }
  for (const auto precision : {Precision::bf16, Precision::int8}) {
    const Translator rounded(directory.path(), "cpu", {.precision = precision});
    REQUIRE(rounded.packed());
    CHECK(rounded.packed()->precision() == precision);
    const auto of_rounded = rounded.translate(lines);
    CHECK(std::any_of(lines.begin(), lines.end(), [&, i = size_t{0}](const auto&) mutable {
      const size_t line = i++;
      return of_rounded[line].at(0).score != found[line].at(0).score;
    }));
  }
}

TEST_CASE("modules on a CPU decode in their own precisions") {
  const TemporaryDirectory directory;
  write_tiny_model(directory.path());
  for (const auto precision : {Precision::fp16, Precision::int8}) {
    CHECK_THAT(error_of([&] { load_module_backend(directory.path(), torch::kCPU, precision); }),
               StartsWith("precision: the modules decode in float32 or bf16"));
  }
  const std::vector<Ids> sources = {{7, 30, 12, Vocabulary::end}};
  const auto decoded = [&](Precision precision) {
    return load_module_backend(directory.path(), torch::kCPU, precision)->decode({{sources[0], 6}}).at(0).at(0);
  };
  auto model = load_transformer(directory.path());
  CHECK(decoded(Precision::float32).log_probability == by_modules(model, sources, {6}, {}).at(0).at(0).log_probability);
  model->to(torch::kBFloat16);
  CHECK(decoded(Precision::bf16).log_probability == by_modules(model, sources, {6}, {}).at(0).at(0).log_probability);
}

TEST_CASE("fp16 is for GPUs") {
  const TemporaryDirectory directory;
  write_tiny_model(directory.path());
  CHECK_THAT(error_of([&] { Translator(directory.path(), "cpu", {.precision = Precision::fp16}); }),
             StartsWith("precision: fp16 is for decoding on a GPU"));
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
  const auto modules =
      module_translator(model, Vocabularies::load(data / "model-en-de", vocabulary_size, vocabulary_size), {});
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
