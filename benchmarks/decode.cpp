// Output tokens a second of a random model on one thread: packed inference, and the torch::nn modules for comparison.
// Every sentence has as many source tokens, the end included, as it gets output tokens: no token ends a hypothesis, so
// that a batch takes exactly that many steps.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/benchmark.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char* name_of(Precision precision) {
  return precision == Precision::float32 ? "float32" : precision == Precision::bf16 ? "bf16" : "int8";
}

struct Case {
  int64_t batch, beam;
};

/// What each of decoding's features costs beside plain beam search of 4, both taking turns in batches of `batch`.
void measure_features(const std::shared_ptr<const InferenceModel>& model,
                      const std::vector<std::vector<int64_t>>& sources, int64_t length, int64_t batch) {
  const auto requests = [&](const DecodingSettings& settings, const OutputControl& control) {
    std::vector<DecodingRequest> all;
    for (const auto& source : sources) {
      all.push_back({.source = source,
                     .max_length = length,
                     .settings = settings.validated(),
                     .end = SentenceSearch::no_end,
                     .control = control});
    }
    return all;
  };
  const Engine::Options options{.threads = 1, .batch_sentences = batch};
  Engine one(model, options), two(Ensemble{.models = {model, model}}, options);
  const DecodingSettings plain;
  struct Feature {
    const char* name;
    DecodingSettings settings;
    OutputControl control = {};
    bool ensemble = false;
  };
  const auto with = [](auto change) {
    DecodingSettings settings;
    change(settings);
    return settings;
  };
  using Search = DecodingSettings::Search;
  const std::vector<Feature> features = {
      {"greedy", with([](auto& s) { s.beam = 1; })},
      {"one sample", with([](auto& s) { s.search = Search::sampling; })},
      {"4 samples", with([](auto& s) { s.search = Search::sampling, s.n_best = 4; })},
      {"4 samples, top_p 0.9", with([](auto& s) { s.search = Search::sampling, s.n_best = 4, s.top_p = 0.9; })},
      {"no_repeat_ngram 3", with([](auto& s) { s.no_repeat_ngram = 3; })},
      {"repetition_penalty 1.2", with([](auto& s) { s.repetition_penalty = 1.2; })},
      {"write_unknown false", with([](auto& s) { s.write_unknown = false; })},
      {"coverage_penalty 0.2", with([](auto& s) { s.coverage_penalty = 0.2; })},
      {"2 groups", with([](auto& s) { s.beam_groups = 2; })},
      {"bias", plain, {.bias = {{7, 1.0}}}},
      {"2 required phrases of 2", plain, {.required = {{11, 12}, {13, 14}}}},
      {"2 models", plain, {}, true},
  };
  const auto seconds_of = [&](Engine& engine, const std::vector<DecodingRequest>& all) {
    const double start = seconds();
    decode_all(engine, all);
    return seconds() - start;
  };
  for (const auto& feature : features) {
    const auto without = requests(plain, {}), with_it = requests(feature.settings, feature.control);
    double before = 1e9, after = 1e9;
    for (int round = 0; round < 3; ++round) {
      before = std::min(before, seconds_of(one, without));
      after = std::min(after, seconds_of(feature.ensemble ? two : one, with_it));
    }
    fmt::print("batch {:2}  {:24} {:5.2f} times beam 4\n", batch, feature.name, after / before);
  }
}

/// A model of the first `layers` of each of a model's stacks, whose others then hardly change what comes out: the two
/// mostly agree, as a model and a trained draft do, and cost what models of their sizes cost.
Transformer draft_of(Transformer& model, const ModelSettings& settings, int64_t layers, double others) {
  torch::NoGradGuard no_grad;
  auto of_draft = settings;
  of_draft.encoder_layers = of_draft.decoder_layers = layers;
  Transformer draft(of_draft);
  auto copies = draft->named_parameters();
  for (auto& parameter : model->named_parameters()) {
    const auto& name = parameter.key();
    if (auto* const copy = copies.find(name)) {
      copy->copy_(parameter.value());
    } else if (name.ends_with("output.weight") || name.ends_with("outer.weight")) {
      parameter.value().mul_(others);
    }
  }
  draft->eval();
  return draft;
}

/// Greedy decoding with and without a draft, taking turns.
void measure_draft(const std::shared_ptr<const InferenceModel>& model,
                   const std::shared_ptr<const InferenceModel>& draft, const std::vector<std::vector<int64_t>>& sources,
                   int64_t length, int64_t batch) {
  DecodingSettings settings;
  settings.beam = 1;
  std::vector<DecodingRequest> requests;
  for (const auto& source : sources) {
    requests.push_back({.source = source, .max_length = length, .settings = settings, .end = SentenceSearch::no_end});
  }
  Engine without(model, {.batch_sentences = batch}), with(model, {.batch_sentences = batch, .draft = draft});
  const auto seconds_of = [&](Engine& engine) {
    const double start = seconds();
    decode_all(engine, requests);
    return seconds() - start;
  };
  double before = 1e9, after = 1e9;
  for (int round = 0; round < 5; ++round) {
    before = std::min(before, seconds_of(without));
    after = std::min(after, seconds_of(with));
  }
  const auto drafted = with.drafted();
  const auto share = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
  };
  fmt::print("batch {:2}  with a draft {:5.2f} times as fast; {:.2f} proposed a step, {:.0f} % of them right\n", batch,
             before / after, share(drafted.proposed, drafted.steps), 100 * share(drafted.accepted, drafted.proposed));
}

void run(CLI::App& app, const std::function<void()>& parse) {
  ModelSettings model_settings;
  int64_t length = 25, sentences = 32;
  std::vector<int64_t> batches = {1, 32}, beams = {4, 1};
  std::vector<std::string> precisions = {"float32", "bf16", "int8"}, overrides;
  bool modules = false, features = false;
  int64_t draft_layers = 0;
  double others = 0.02;
  app.add_option("--vocabulary", model_settings.vocabulary_size, "Word pieces")
      ->check(CLI::Range(5, 10'000'000))
      ->capture_default_str();
  app.add_option("--length", length, "Tokens of every input and output")->check(above_zero())->capture_default_str();
  app.add_option("--sentences", sentences, "Sentences of a batch of several; a sixteenth of them one by one")
      ->check(above_zero())
      ->capture_default_str();
  app.add_option("--batch", batches, "Sentences decoded at once")->check(above_zero())->capture_default_str();
  app.add_option("--beam", beams, "Hypotheses of a sentence")->check(above_zero())->capture_default_str();
  app.add_option("--precision", precisions, "float32, bf16, int8")
      ->check(CLI::IsMember({"float32", "bf16", "int8"}))
      ->capture_default_str();
  app.add_flag("--modules", modules, "The torch::nn modules too");
  app.add_flag("--features", features, "Instead, what samples, penalties, required phrases and ensembles cost");
  auto* const draft_option =
      app.add_option("--draft", draft_layers, "Instead, greedy decoding with a draft of so many of the model's layers")
          ->check(above_zero());
  app.add_option("--others", others, "With --draft: what the outputs of the model's other layers are multiplied by")
      ->needs(draft_option)
      ->capture_default_str();
  app.add_option("--set", overrides, "Model settings: model.d_model=256");
  parse();
  Settings settings;
  settings.section("model", model_settings, "");
  settings.set(overrides);
  std::vector<Case> cases;
  for (const int64_t batch : batches) {
    for (const int64_t beam : beams) cases.push_back({batch, beam});
  }
  const auto sentences_of = [&](const Case& c) {
    return static_cast<size_t>(c.batch > 1 ? sentences : std::max<int64_t>(1, sentences / 16));
  };

  torch::manual_seed(1);
  at::set_num_threads(1);
  Transformer model(model_settings);
  model->eval();
  Transformer draft{nullptr};
  if (draft_layers > 0) draft = draft_of(model, model_settings, draft_layers, others);
  std::mt19937 random(1);
  std::vector<std::vector<int64_t>> sources(static_cast<size_t>(sentences));
  for (auto& source : sources) {
    for (int64_t i = 0; i + 1 < length; ++i) {
      source.push_back(4 + static_cast<int64_t>(random() % static_cast<uint64_t>(model_settings.vocabulary_size - 4)));
    }
    source.push_back(Vocabulary::end);
  }
  constexpr int64_t no_end = SentenceSearch::no_end;
  const auto decoding = [](const Case& c) {
    return DecodingSettings{.beam = c.beam, .max_extra_length = 0, .batch_sentences = c.batch};
  };
  fmt::print("kernels: {}; V {}, {} tokens in and out, one thread; output tokens/s\n",
             available_kernels().front()->name, model_settings.vocabulary_size, length);
  std::vector<double> by_modules;
  for (const auto& c : cases) {
    if (!modules) break;
    const auto chosen = std::span(sources).first(sentences_of(c));
    const double start = seconds();
    for (size_t first = 0; first < chosen.size(); first += static_cast<size_t>(c.batch)) {
      const auto batch = chosen.subspan(first, std::min(static_cast<size_t>(c.batch), chosen.size() - first));
      auto ids = torch::empty({static_cast<int64_t>(batch.size()), length}, torch::kInt64);
      for (size_t row = 0; row < batch.size(); ++row) {
        std::copy(batch[row].begin(), batch[row].end(),
                  ids.mutable_data_ptr<int64_t>() + static_cast<int64_t>(row) * length);
      }
      const std::vector<int64_t> lengths(batch.size(), length);
      beam_search(transformer_step(model, ids), lengths, Vocabulary::begin, no_end, decoding(c));
    }
    by_modules.push_back(static_cast<double>(static_cast<int64_t>(chosen.size()) * length) / (seconds() - start));
    fmt::print("modules  float32  batch {:2} beam {}: {:7.1f}\n", c.batch, c.beam, by_modules.back());
  }
  for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
    if (std::find(precisions.begin(), precisions.end(), name_of(precision)) == precisions.end()) continue;
    const double load = seconds();
    const auto shared =
        std::make_shared<const InferenceModel>(model_settings, stored_weights(weights_of(*model)), precision, "");
    const auto& packed = *shared;
    fmt::print("{}: packed in {:.2f} s, {} MB\n", name_of(precision), seconds() - load, packed.bytes() >> 20);
    if (draft_layers > 0) {
      auto of_draft = model_settings;
      of_draft.encoder_layers = of_draft.decoder_layers = draft_layers;
      const auto packed_draft =
          std::make_shared<const InferenceModel>(of_draft, stored_weights(weights_of(*draft)), precision, "");
      for (const int64_t batch : batches) {
        const auto count = static_cast<std::ptrdiff_t>(sentences_of({batch, 1}));
        measure_draft(shared, packed_draft, {sources.begin(), sources.begin() + count}, length, batch);
      }
      continue;
    }
    if (features) {
      for (const int64_t batch : batches) {
        const auto count = static_cast<std::ptrdiff_t>(sentences_of({batch, 4}));
        measure_features(shared, {sources.begin(), sources.begin() + count}, length, batch);
      }
      continue;
    }
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto& c = cases[i];
      const auto chosen = std::span(sources).first(sentences_of(c));
      const std::vector<int64_t> lengths(chosen.size(), length);
      double best = 1e9;
      for (int round = 0; round < 3; ++round) {
        const double start = seconds();
        continuous_search(packed, chosen, lengths, decoding(c), {.threads = 1, .end = no_end});
        best = std::min(best, seconds() - start);
      }
      const double rate = static_cast<double>(static_cast<int64_t>(chosen.size()) * length) / best;
      fmt::print("packed   {:8} batch {:2} beam {}: {:7.1f}", name_of(precision), c.batch, c.beam, rate);
      if (modules) fmt::print("  ({:.1f} times the modules)", rate / by_modules[i]);
      fmt::print("\n");
    }
  }
}

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  return transformer::run_benchmark(argc, argv, "Output tokens a second of a random model on one thread",
                                    transformer::run);
}
