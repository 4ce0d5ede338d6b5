#include <cmath>
#include <memory>
#include <set>

#include "error_of.h"
#include "inference/tiny_model.h"
#include "model/reference.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/inference/confidence.h"
#include "transformer/inference/ensemble.h"
#include "transformer/inference/inference_batch.h"
#include "transformer/inference/perplexity.h"
#include "transformer/inference/translator.h"
#include "transformer/inference/word_alignment.h"

namespace transformer::test {

namespace {

using Catch::Matchers::Contains;
using Ids = std::vector<int64_t>;

/// By the modules: -Σ p log p at each position of a target, its end's last.
std::vector<double> by_modules(Transformer model, const Ids& source, const Ids& target) {
  torch::NoGradGuard no_grad;
  Ids read = target, from = source;
  read.insert(read.begin(), Vocabulary::begin);
  from.push_back(Vocabulary::end);
  const auto logs = model->forward(torch::tensor(from).unsqueeze(0), torch::tensor(read).unsqueeze(0))[0]
                        .to(torch::kDouble)
                        .log_softmax(-1);  // [T, V]
  const auto entropies = (-(logs.exp() * logs).sum(-1)).contiguous();
  const auto* first = entropies.const_data_ptr<double>();
  return {first, first + entropies.numel()};
}

void check_near(const std::vector<double>& found, const std::vector<double>& expected, double margin) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).margin(margin));
}

}  // namespace

TEST_CASE("entropies are those of the modules' distributions, in any batch and by any number of threads") {
  auto settings = tiny_settings(pieces);
  const auto variant = GENERATE(0, 1);
  if (variant == 1) settings.output_bias = true, settings.attention_window = 3;
  const auto model = tiny_transformer(settings, 4);
  const auto packed = packed_model(model);
  const auto sources = random_sentences(45, 3, pieces), targets = random_sentences(45, 5, pieces, 14);
  const auto found = token_entropies(*packed, sources, targets);
  std::set<double> different;
  for (size_t i = 0; i < sources.size(); ++i) {
    check_near(found[i], by_modules(model, sources[i], targets[i]), 1e-4);
    different.insert(found[i].begin(), found[i].end());
    // Alone as among others, bit for bit.
    const auto alone = token_entropies(*packed, std::span(sources).subspan(i, 1), std::span(targets).subspan(i, 1));
    CHECK(alone.front() == found[i]);
  }
  CHECK(different.size() > 100);
  CHECK(token_entropies(*packed, sources, targets, 3) == found);

  // Log-probabilities are the same whether it is asked for them, too.
  InferenceBatch batch(*packed);
  const Ids source = {5, 9, 2}, read = {Vocabulary::begin, 7, 8}, next = {7, 8, 2};
  const std::vector<InferenceBatch::Source> given = {{.pieces = source}};
  const auto place = batch.add(given).front();
  const std::vector<InferenceBatch::Target> known = {{place, read, next}, {place, read, {}}};
  std::vector<std::vector<double>> entropies(7);
  CHECK(batch.score(known) == batch.score(known, &entropies));
  REQUIRE(entropies.size() == 2);
  CHECK(entropies[0].size() == 3);
  CHECK(entropies[1].empty());
}

TEST_CASE("entropy is the logarithm of the choices where all are alike, and nothing where there is one") {
  auto settings = tiny_settings(pieces);
  settings.output_bias = true;
  auto model = tiny_transformer(settings, 4);
  torch::NoGradGuard no_grad;
  model->projection_weight().zero_();
  auto bias = model->named_parameters()["output_bias"];
  const std::vector<Ids> source = {{5, 9}}, target = {{7, 8, 30}};
  const auto entropies = [&] { return token_entropies(*packed_model(model), source, target).front(); };
  bias.zero_();
  check_near(entropies(), std::vector<double>(4, std::log(static_cast<double>(pieces))), 1e-5);
  bias[7] = 300;  // the others underflow
  CHECK(entropies() == std::vector<double>(4, 0.0));
  bias[8] = 300;
  check_near(entropies(), std::vector<double>(4, std::log(2.0)), 1e-6);
}

TEST_CASE("given outputs are not judged by what is no number") {
  auto model = tiny_transformer(tiny_settings(pieces), 4);
  torch::NoGradGuard no_grad;
  model->projection_weight().fill_(3e38);
  const auto packed = packed_model(model);
  const std::vector<Ids> source = {{5, 9}}, target = {{7, 8, 30}};
  const std::string diverged = "its weights are damaged, or its training diverged";
  CHECK_THAT(message_of<Failure>([&] { token_entropies(*packed, source, target); }), Contains(diverged));
  CHECK_THAT(message_of<Failure>([&] { token_log_probabilities(*packed, source, target); }), Contains(diverged));
  CHECK_THAT(message_of<Failure>([&] { log_probabilities(*packed, source, target); }), Contains(diverged));
}

TEST_CASE("translations are told how open each choice was, their words and sentence by the mean") {
  const TemporaryDirectory directory;
  write_tiny_model(directory.path(), {.beam = 2, .max_extra_length = 3, .n_best = 2});
  const Translator translator(directory.path());
  const auto model = load_transformer(directory.path());
  auto lines = made_up_sentences(12, 5);
  lines[3].clear();
  const auto sources = translator.encode(lines);
  auto found = translator.translate(lines);
  std::vector<Ids> read;
  std::vector<Translation*> written;
  size_t cut = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    for (auto& translation : found[i]) {
      read.push_back(sources[i]);
      written.push_back(&translation);
      cut += translation.finished ? 0 : 1;
      CHECK(std::isnan(entropy(translation)));
      CHECK(word_entropies(translation, *translator.vocabularies().target).empty());
    }
  }
  CHECK(cut > 0);
  translator.find_entropies(read, written);
  for (size_t i = 0; i < read.size(); ++i) {
    const auto& translation = *written[i];
    if (read[i].empty()) {
      CHECK(std::isnan(entropy(translation)));
      continue;
    }
    auto expected = by_modules(model, read[i], translation.tokens);
    if (!translation.finished) expected.pop_back();
    check_near(translation.token_entropies, expected, 1e-4);
    double sum = 0;
    for (const double each : translation.token_entropies) sum += each;
    CHECK(entropy(translation) == Approx(sum / static_cast<double>(expected.size())));
    const auto words = word_entropies(translation, *translator.vocabularies().target);
    REQUIRE(words.size() == alignment_words(translation.text).size());
    // Words are told apart as those that confidences are of.
    auto as_logs = translation;
    as_logs.token_log_probabilities = translation.token_entropies;
    const auto confidences = word_confidences(as_logs, *translator.vocabularies().target);
    for (size_t word = 0; word < words.size(); ++word) CHECK(std::exp(words[word]) == Approx(confidences[word]));
  }

  // Of a mean of models no one pass tells.
  const Translator several({directory.path(), directory.path()}, {}, Ensemble::Average::probabilities, {});
  auto other = several.translate({lines[0]}).front();
  Translation* const only = &other.front();
  several.find_entropies(std::span(sources).first(1), {&only, 1});
  CHECK(other.front().token_entropies.empty());
  CHECK_THAT(error_of([&] { several.score(sources, sources, several.settings(), 1); }), Contains("several models"));
}

}  // namespace transformer::test
