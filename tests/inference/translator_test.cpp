#include "transformer/inference/translator.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "error_of.h"
#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/decoding/module_backend.h"

namespace transformer::test {

namespace {

using Ids = std::vector<int64_t>;

torch::Tensor tensor_with_end(Ids source) {
  source.push_back(Vocabulary::end);
  return torch::tensor(source).unsqueeze(0);  // [1, S]
}

/// log p of every next token, from a full forward pass over the whole prefix of one sentence.
torch::Tensor uncached(Transformer& model, const Ids& source, const Ids& prefix) {
  torch::NoGradGuard no_grad;
  Ids input = {Vocabulary::begin};
  input.insert(input.end(), prefix.begin(), prefix.end());
  const auto logits = model->forward(tensor_with_end(source), torch::tensor(input).unsqueeze(0));  // [1, T, V]
  return logits[0][-1].log_softmax(-1).to(torch::kDouble);
}

/// A step function that keeps no state but the prefixes themselves.
StepFunction uncached_steps(Transformer model, const std::vector<Ids>& sources) {
  struct Row {
    size_t sentence;
    Ids prefix;
  };
  auto rows = std::make_shared<std::vector<Row>>();
  return [=](std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width) mutable {
    std::vector<Row> next;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == Vocabulary::begin) {
        next.push_back({static_cast<size_t>(parents[i]), {}});
      } else {
        next.push_back((*rows)[parents[i]]);
        next.back().prefix.push_back(tokens[i]);
      }
    }
    *rows = next;
    Continuations best;
    best.width = std::min(width, pieces);
    for (const auto& row : next) {
      auto log_probabilities = uncached(model, sources[row.sentence], row.prefix);
      log_probabilities.narrow(0, 0, 2).fill_(-INFINITY);
      const auto [values, ids] = log_probabilities.sort(0, true);
      for (int64_t k = 0; k < best.width; ++k) {
        best.tokens.push_back(ids[k].item<int64_t>());
        best.log_probabilities.push_back(values[k].item<double>());
      }
    }
    return best;
  };
}

const TemporaryDirectory& model_directory() {
  static const TemporaryDirectory directory;
  static const bool written = (write_tiny_model(directory.path(), {.max_extra_length = 6}), true);
  (void)written;
  return directory;
}

}  // namespace

TEST_CASE("cached decoding gives the log-probabilities of a full forward pass at every step") {
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    auto model = tiny_transformer(tiny_settings(pieces));
    model->to(type);
    const double tolerance = type == torch::kFloat ? 1e-5 : 1e-10;
    const auto sources = random_sentences(3, 5, pieces);
    const int64_t longest =
        1 + static_cast<int64_t>(std::max({sources[0].size(), sources[1].size(), sources[2].size()}));
    auto source = torch::zeros({3, longest}, torch::kInt64);
    for (int64_t row = 0; row < 3; ++row) {
      const auto ids = tensor_with_end(sources[row])[0];
      source[row].narrow(0, 0, ids.size(0)).copy_(ids);
    }
    const auto step = transformer_step(model, source);
    // Rows are moved in every way that search does it: repeated within a sentence, swapped, dropped, kept.
    const std::vector<Ids> parents = {{0, 1, 2}, {0, 0, 1, 2, 2}, {1, 0, 2, 3, 3}, {0, 1, 2, 3, 4}, {2, 4, 3}, {1}};
    std::vector<std::pair<int64_t, Ids>> rows;
    std::mt19937 random(1);
    for (size_t t = 0; t < parents.size(); ++t) {
      std::vector<std::pair<int64_t, Ids>> next;
      Ids tokens;
      for (const int64_t parent : parents[t]) {
        next.push_back(t == 0 ? std::pair<int64_t, Ids>{parent, {}} : rows[parent]);
        tokens.push_back(t == 0 ? Vocabulary::begin : 4 + static_cast<int64_t>(random() % (pieces - 4)));
        if (t > 0) next.back().second.push_back(tokens.back());
      }
      rows = next;
      const auto found = step(tokens, parents[t], 8);
      REQUIRE(found.width == 8);
      for (size_t row = 0; row < rows.size(); ++row) {
        const auto expected = uncached(model, sources[rows[row].first], rows[row].second);
        auto allowed = expected.clone();
        allowed.narrow(0, 0, 2).fill_(-INFINITY);
        CHECK(found.tokens[row * 8] == allowed.argmax().item<int64_t>());
        for (size_t k = 0; k < 8; ++k) {
          const int64_t token = found.tokens[row * 8 + k];
          CHECK(std::abs(found.log_probabilities[row * 8 + k] - expected[token].item<double>()) < tolerance);
          if (k > 0) CHECK(found.log_probabilities[row * 8 + k] <= found.log_probabilities[row * 8 + k - 1]);
        }
      }
    }
  }
}

TEST_CASE("the translator finds what beam search over full forward passes finds") {
  auto model = tiny_transformer(tiny_settings(pieces), 3);
  model->to(torch::kDouble);
  const auto sources = random_sentences(7, 11, pieces);
  Ids max_lengths;
  for (const auto& source : sources) max_lengths.push_back(static_cast<int64_t>(source.size()) + 4);
  for (const int64_t beam : {1, 3}) {
    const DecodingSettings settings{.beam = beam, .max_extra_length = 4, .n_best = beam};
    const auto expected =
        beam_search(uncached_steps(model, sources), max_lengths, Vocabulary::begin, Vocabulary::end, settings);
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto found = beam_search(transformer_step(model, tensor_with_end(sources[i])), Ids{max_lengths[i]},
                                     Vocabulary::begin, Vocabulary::end, settings)
                             .at(0);
      REQUIRE(found.size() == expected[i].size());
      for (size_t k = 0; k < found.size(); ++k) {
        CHECK(found[k].tokens == expected[i][k].tokens);
        CHECK(found[k].log_probability == Approx(expected[i][k].log_probability).epsilon(1e-10));
        CHECK(found[k].finished == expected[i][k].finished);
      }
    }
  }
}

TEST_CASE("padding and begin are never put out") {
  auto model = tiny_transformer(tiny_settings(6), 2);
  const auto found = beam_search(transformer_step(model, tensor_with_end({4, 5, 4})), Ids{12}, Vocabulary::begin,
                                 Vocabulary::end, {.beam = 5, .n_best = 5});
  for (const auto& hypothesis : found.at(0)) {
    for (const int64_t token : hypothesis.tokens) CHECK(token > Vocabulary::end);
  }
}

TEST_CASE("output is the same for every batch size and order of lines") {
  Translator translator(model_directory().path());
  auto lines = made_up_sentences(40, 3, 8);
  lines[5] = lines[17] = "";
  lines[20] = " \t ";
  auto settings = translator.settings();
  settings.n_best = 3;
  settings.batch_sentences = 1;
  translator.set(settings);
  const auto alone = translator.translate(lines);
  REQUIRE(alone.size() == lines.size());
  std::set<std::string> different;
  for (const auto& alternatives : alone) different.insert(alternatives.at(0).text);
  CHECK(different.size() > 10);  // a model that says the same to everything would prove nothing
  for (const size_t blank : {5, 17, 20}) {
    REQUIRE(alone[blank].size() == 1);
    CHECK(alone[blank][0].text.empty());
    CHECK(alone[blank][0].score == 0);
  }
  std::vector<size_t> order(lines.size());
  std::iota(order.begin(), order.end(), 0);
  for (const int64_t batch : {2, 7, 40, 1000}) {
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(batch)));
    std::vector<std::string> shuffled;
    for (const size_t i : order) shuffled.push_back(lines[i]);
    settings.batch_sentences = batch;
    translator.set(settings);
    const auto found = translator.translate(shuffled);
    REQUIRE(found.size() == lines.size());
    for (size_t place = 0; place < order.size(); ++place) {
      const auto& expected = alone[order[place]];
      REQUIRE(found[place].size() == expected.size());
      for (size_t k = 0; k < expected.size(); ++k) {
        CHECK(found[place][k].text == expected[k].text);
        CHECK(found[place][k].score == Approx(expected[k].score).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("translators that share workers share the size of their batches") {
  Translator translator(model_directory().path());
  auto settings = translator.settings();
  const auto batch = settings.batch_sentences;
  settings.batch_sentences = batch + 1;
  settings.n_best = 2;
  const auto other = translator.with(settings);
  CHECK(other.settings().n_best == 2);
  CHECK(other.settings().batch_sentences == batch);
  CHECK(other.engine() == translator.engine());
  translator.set(settings);
  CHECK(translator.engine()->options().batch_sentences == batch + 1);
  CHECK(translator.engine()->options().cache_bytes > 0);
}

TEST_CASE("lengths are bounded by input plus max_extra_length, and few and many hypotheses agree on the best") {
  Translator translator(model_directory().path());
  CHECK(translator.settings().max_extra_length == 6);  // as config.yaml says
  std::vector<Ids> sources;
  for (auto& source : random_sentences(12, 21, pieces, 5)) sources.push_back(source);
  sources.push_back({});
  const auto best = translator.translate_ids(sources);
  auto settings = translator.settings();
  settings.n_best = 4;
  translator.set(settings);
  const auto four = translator.translate_ids(sources);
  for (size_t i = 0; i < sources.size(); ++i) {
    REQUIRE(best[i].size() == 1);
    CHECK(best[i][0].tokens.size() <= sources[i].size() + 6);
    CHECK(four[i].at(0).tokens == best[i][0].tokens);
    CHECK(std::is_sorted(four[i].begin(), four[i].end(), [](const auto& a, const auto& b) {
      return std::tie(b.finished, b.score) < std::tie(a.finished, a.score);
    }));
  }
  CHECK(best.back()[0].tokens.empty());
  CHECK(translator.translate({}).empty());
}

TEST_CASE("a model in memory and in training translates like the same model from its directory") {
  const auto& directory = model_directory();
  const Translator loaded(directory.path());
  auto model = load_transformer(directory.path());
  model->train();
  const auto in_memory = module_translator(model, Vocabularies::load(directory.path(), 320, 320), loaded.settings());
  const auto packed =
      packed_translator(model, Vocabularies::load(directory.path(), 320, 320), loaded.settings(), {.threads = 2});
  const auto lines = made_up_sentences(6, 9);
  const auto expected = loaded.translate(lines), found = in_memory.translate(lines), fast = packed.translate(lines);
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(found[i].at(0).text == expected[i].at(0).text);
    CHECK(fast[i].at(0).text == expected[i].at(0).text);
  }
  CHECK(model->is_training());

  // What was packed stays as it was.
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.zero_();
  }
  const auto again = packed.translate(lines);
  for (size_t i = 0; i < lines.size(); ++i) CHECK(again[i].at(0).text == expected[i].at(0).text);
}

TEST_CASE("a model with two vocabularies reads with one and writes with the other") {
  const TemporaryDirectory directory;
  write_tiny_model(directory.path(), {.max_extra_length = 3}, true);
  const Translator translator(directory.path());
  const Vocabulary source(directory / "source.model"), target(directory / "target.model");
  const std::string line = made_up_sentences(1, 4).front();
  const auto hypothesis = translator.translate_ids({source.encode(line)}).at(0).at(0);
  CHECK(translator.translate({line}).at(0).at(0).text == target.decode(hypothesis.tokens));
}

TEST_CASE("what does not make a model is named") {
  const TemporaryDirectory empty;
  CHECK_THAT(error_of([&] { Translator(empty / "nowhere"); }), Contains("nowhere"));
  CHECK_THAT(error_of([&] { Translator translator(empty.path()); }), Contains("config.yaml"));
  write_tiny_model(empty.path());
  std::filesystem::rename(empty / "vocabulary.model", empty / "target.model");
  CHECK_THAT(error_of([&] { Translator translator(empty.path()); }), Contains("source.model is missing"));
  std::filesystem::remove(empty / "target.model");
  const TemporaryDirectory two;
  write_tiny_model(two.path(), {}, true);
  std::filesystem::copy_file(two / "target.model", empty / "vocabulary.model");
  CHECK_THAT(error_of([&] { Translator translator(empty.path()); }),
             Contains("vocabulary.model") && Contains("330 word pieces") && Contains("320"));
}

TEST_CASE("a line too long for the model is named by its number") {
  const Translator translator(model_directory().path());
  std::string long_line;
  while (long_line.size() < 12000) long_line += "qx ";
  CHECK_THAT(error_of([&] { translator.translate({"ba", long_line}, 41); }), StartsWith("line 42: has "));

  // Learned positions bound what goes in and what comes out.
  auto settings = tiny_settings(320);
  settings.positions = ModelSettings::Positions::learned;
  settings.max_positions = 12;
  const auto learned =
      module_translator(tiny_transformer(settings), Vocabularies::load(model_directory().path(), 320, 320),
                        {.beam = 2, .max_extra_length = 50});
  CHECK(learned.translate_ids({Ids(11, 300)}).at(0).at(0).tokens.size() <= 11);
  CHECK_THAT(error_of([&] { learned.translate({std::string(100, 'q')}); }), StartsWith("line 1: has "));
}

TEST_CASE("the halves of translate are the whole, around a line that is too long") {
  const Translator translator(model_directory().path());
  auto lines = made_up_sentences(9, 5);
  lines[4] = " ";
  const auto expected = translator.translate(lines);
  std::string long_line;
  while (long_line.size() < 20000) long_line += "qx ";
  lines.insert(lines.begin() + 2, long_line);
  auto sources = translator.encode(lines);
  REQUIRE(sources.size() == 10);
  CHECK(translator.longest_source() == 5000);
  CHECK(static_cast<int64_t>(sources[2].size()) > translator.longest_source());
  CHECK_THAT(translator.problem(sources[2].size()), Contains(std::to_string(sources[2].size())));
  CHECK(translator.problem(5000).empty());
  CHECK(sources[5].empty());
  sources[2].clear();
  auto found = translator.translate_encoded(sources);
  CHECK(found[2].at(0).text.empty());
  found.erase(found.begin() + 2);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].at(0).text == expected[i].at(0).text);
    CHECK(found[i].at(0).score == expected[i].at(0).score);
  }
}

}  // namespace transformer::test
