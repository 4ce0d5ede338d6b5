#include "transformer/inference/shortlist.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "error_of.h"
#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/base/error.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/inference_batch.h"

using namespace transformer;
using namespace transformer::test;
using Ids = std::vector<int64_t>;

namespace {

constexpr int64_t listed_pieces = 150;

/// For each piece some others, the same for the same seed.
Shortlist some_list(unsigned seed, size_t most = 12) {
  std::mt19937 random(seed);
  const auto any = [&] { return static_cast<int32_t>(4 + random() % (listed_pieces - 4)); };
  std::vector<std::vector<int32_t>> translations(listed_pieces);
  for (auto& of_piece : translations) {
    of_piece.resize(random() % most);
    std::generate(of_piece.begin(), of_piece.end(), any);
  }
  return {{any(), any(), any()}, translations, listed_pieces};
}

std::vector<Ids> some_sources(size_t count, unsigned seed) {
  auto sources = random_sentences(count, seed, listed_pieces);
  for (auto& source : sources) source.push_back(Vocabulary::end);
  return sources;
}

/// Search over what the whole vocabulary's probabilities leave to a source's candidates.
std::vector<Hypothesis> by_definition(Transformer model, const Ids& source, int64_t length, const Shortlist& list,
                                      const DecodingSettings& settings) {
  const auto candidates = list.candidates(source);
  const auto whole = transformer_step(model, torch::tensor(source).unsqueeze(0));
  const StepFunction step = [&](std::span<const int64_t> tokens, std::span<const int64_t> parents, int64_t width) {
    const auto all = whole(tokens, parents, listed_pieces);
    Continuations left{width, {}, {}};
    for (size_t row = 0; row < tokens.size(); ++row) {
      std::vector<Continuations::Candidate> possible;
      double sum = 0;
      for (int64_t i = 0; i < all.width; ++i) {
        const auto at = row * static_cast<size_t>(all.width) + static_cast<size_t>(i);
        if (!std::binary_search(candidates.begin(), candidates.end(), static_cast<int32_t>(all.tokens[at]))) continue;
        possible.push_back({all.log_probabilities[at], all.tokens[at]});
        sum += std::exp(all.log_probabilities[at]);
      }
      for (auto& each : possible) each.log_probability -= std::log(sum);
      left.add_row(std::move(possible));
    }
    return left;
  };
  return beam_search(step, Ids{length}, Vocabulary::begin, Vocabulary::end, settings).at(0);
}

std::vector<std::vector<Hypothesis>> decoded(const InferenceModel& model, const std::vector<Ids>& sources,
                                             const std::vector<std::shared_ptr<const Shortlist>>& lists,
                                             const DecodingSettings& settings, int64_t threads) {
  Ids lengths;
  for (const auto& source : sources) lengths.push_back(std::ssize(source) + 4);
  auto requests = requests_for(sources, lengths, settings);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].shortlist = lists[i];
  // The engine wants an owner, and this one outlives it.
  Engine engine(std::shared_ptr<const InferenceModel>(&model, [](const auto*) {}),
                {.threads = threads, .batch_sentences = settings.batch_sentences});
  return decode_all(engine, std::move(requests));
}

}  // namespace

TEST_CASE("candidates are what is always listed and the translations of a source's pieces") {
  const Shortlist list({9, 7, 9}, {{}, {}, {}, {}, {30, 5, 5}, {6}, {}}, 31);
  CHECK(list.candidates(Ids{4, 4, 2}) == std::vector<int32_t>{2, 5, 7, 9, 30});
  CHECK(list.candidates(Ids{5, 4}) == std::vector<int32_t>{2, 5, 6, 7, 9, 30});
  CHECK(list.candidates(Ids{}) == std::vector<int32_t>{2, 7, 9});
  CHECK(list.mean_translations() == Approx(3.0 / 7));
  for (const int32_t bad : {-1, 0, 1, 31}) CHECK_THROWS_AS(Shortlist({bad}, {}, 31), std::out_of_range);
  CHECK_THROWS_AS(Shortlist({}, {{1}}, 31), std::out_of_range);
}

TEST_CASE("gathered outputs are the matrix's own, whoever comes and goes, on every instruction set") {
  constexpr int64_t outputs = 200, depth = 37, rows = 5;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> weight(outputs * depth), bias(outputs), x(rows * depth);
  for (auto* values : {&weight, &bias, &x})
    std::generate(values->begin(), values->end(), [&] { return normal(random); });
  for (const auto* kernels : available_kernels()) {
    for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
      for (const bool with_bias : {false, true}) {
        INFO(kernels->name << " " << precision_name(precision));
        const PackedMatrix all(*kernels, precision, weight.data(), outputs, depth, with_bias ? bias.data() : nullptr);
        Activations activations(*kernels, precision);
        activations.set(x.data(), rows, depth, depth);
        std::vector<float> expected(rows * PackedMatrix::padded(outputs)), found;
        all.multiply(activations, expected.data(), PackedMatrix::padded(outputs));
        GatheredMatrix gathered(all);
        std::vector<std::vector<int32_t>> needed;
        for (int time = 0; time < 60; ++time) {
          if (needed.size() > 4 || (!needed.empty() && random() % 3 == 0)) {
            const auto gone = needed.begin() + static_cast<std::ptrdiff_t>(random() % needed.size());
            gathered.release(*gone);
            needed.erase(gone);
          } else {
            std::vector<int32_t> outputs_of_one(1 + random() % 60);
            for (auto& output : outputs_of_one) output = static_cast<int32_t>(random() % outputs);
            std::sort(outputs_of_one.begin(), outputs_of_one.end());
            outputs_of_one.erase(std::unique(outputs_of_one.begin(), outputs_of_one.end()), outputs_of_one.end());
            gathered.need(outputs_of_one);
            needed.push_back(outputs_of_one);
          }
          if (time == 40) {
            gathered.clear();
            needed.clear();
            gathered.need(std::vector<int32_t>{199});
            needed.push_back({199});
          }
          const int64_t stride = PackedMatrix::padded(gathered.size());
          REQUIRE(gathered.size() <= 512);
          found.assign(static_cast<size_t>(rows * stride), 0);
          gathered.matrix().multiply(activations, found.data(), stride);
          for (const auto& outputs_of_one : needed) {
            for (const int32_t output : outputs_of_one) {
              for (int64_t row = 0; row < rows; ++row) {
                const auto at = static_cast<size_t>(row * stride + gathered.slot(output));
                REQUIRE(found[at] == expected[static_cast<size_t>(row * PackedMatrix::padded(outputs) + output)]);
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("with a shortlist the search is that over its candidates, in any batch") {
  const auto model = tiny_transformer(tiny_settings(listed_pieces), 4);
  const auto packed = packed_model(model);
  const auto sources = some_sources(14, 9);
  const auto list = std::make_shared<const Shortlist>(some_list(1));
  for (const int64_t beam : {1, 3}) {
    const DecodingSettings settings{.beam = beam, .n_best = beam};
    std::vector<std::vector<Hypothesis>> expected;
    for (const auto& source : sources) {
      expected.push_back(by_definition(model, source, std::ssize(source) + 4, *list, settings));
    }
    for (const auto& [at_once, threads] : {std::pair<int64_t, int64_t>{1, 1}, {5, 1}, {32, 1}, {4, 3}}) {
      auto wanted = settings;
      wanted.batch_sentences = at_once;
      const auto found = decoded(*packed, sources, std::vector(sources.size(), std::shared_ptr<const Shortlist>(list)),
                                 wanted, threads);
      for (size_t i = 0; i < sources.size(); ++i) {
        INFO("sentence " << i << " beam " << beam << " batch " << at_once);
        REQUIRE(found[i].size() == expected[i].size());
        for (size_t k = 0; k < found[i].size(); ++k) {
          CHECK(found[i][k].tokens == expected[i][k].tokens);
          CHECK(found[i][k].log_probability == Approx(expected[i][k].log_probability).epsilon(1e-4));
        }
      }
    }
  }
}

TEST_CASE("sentences with a shortlist, with another and with none share batches, bit for bit") {
  const auto packed = packed_model(tiny_transformer(tiny_settings(listed_pieces), 5));
  const auto sources = some_sources(20, 10);
  std::vector<std::shared_ptr<const Shortlist>> lists;
  for (size_t i = 0; i < sources.size(); ++i) {
    lists.push_back(i % 3 == 2 ? nullptr : std::make_shared<const Shortlist>(some_list(static_cast<unsigned>(i % 3))));
  }
  DecodingSettings settings{.beam = 3, .n_best = 2, .batch_sentences = 1};
  // Whole rows are looked at as well: of samples, and where n-grams are not to come again.
  auto sampling = settings, without_repeats = settings;
  sampling.search = DecodingSettings::Search::sampling;
  without_repeats.no_repeat_ngram = 2;
  for (const auto& kind : {settings, sampling, without_repeats}) {
    const auto alone = decoded(*packed, sources, lists, kind, 1);
    auto together = kind;
    together.batch_sentences = 7;
    for (const int64_t threads : {1, 3}) {
      const auto found = decoded(*packed, sources, lists, together, threads);
      for (size_t i = 0; i < sources.size(); ++i) {
        REQUIRE(found[i].size() == alone[i].size());
        for (size_t k = 0; k < found[i].size(); ++k) {
          CHECK(found[i][k].tokens == alone[i][k].tokens);
          CHECK(found[i][k].log_probability == alone[i][k].log_probability);
          if (!lists[i]) continue;
          const auto candidates = lists[i]->candidates(sources[i]);
          for (const int64_t token : found[i][k].tokens) {
            CHECK(std::binary_search(candidates.begin(), candidates.end(), static_cast<int32_t>(token)));
          }
        }
      }
    }
  }
}

TEST_CASE("a shortlist's file is read as it was written, for its own vocabularies alone, and damage is refused") {
  const TemporaryDirectory folder;
  std::string text;
  for (const auto& sentence : made_up_sentences(300, 7)) text += sentence + '\n';
  write_file(folder / "text", text);
  Vocabulary::train({folder / "text"}, 280, {}, folder / "one.model");
  Vocabulary::train({folder / "text"}, 281, {}, folder / "other.model");
  const auto one = std::make_shared<const Vocabulary>(folder / "one.model"),
             other = std::make_shared<const Vocabulary>(folder / "other.model");
  const auto corpus = Corpus::read({(folder / "text").string()}, {(folder / "text").string()}, *one, *other, {});
  const auto lexicon = Lexicon::learn(corpus, one->size(), other->size(), {});
  const Shortlist list(lexicon, {one, other}, {.frequent = 20, .translations = 5});
  const auto file = folder / "list";
  list.write(file);
  const auto again = Shortlist::read(file, {one, other});
  std::mt19937 random(2);
  const auto source = [&] {
    Ids ids(random() % 9);
    for (auto& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(one->size()));
    return ids;
  };
  for (int i = 0; i < 50; ++i) {
    const auto ids = source();
    CHECK(again.candidates(ids) == list.candidates(ids));
  }
  // A piece stands for itself where both vocabularies have it.
  for (int64_t id = 4; id < one->size(); ++id) {
    const auto candidates = list.candidates(Ids{id});
    CHECK(candidates.size() <= 20 + 2 + 5 + 1);
    for (int32_t target = 4; target < other->size(); ++target) {
      if (other->piece(target) == one->piece(id))
        CHECK(std::binary_search(candidates.begin(), candidates.end(), target));
    }
  }
  CHECK_THAT(error_of([&] { Shortlist::read(file, {other, one}); }), Contains("other vocabularies"));
  CHECK_THAT(error_of([&] { Shortlist::read(folder / "none", {one, other}); }), Contains("cannot be opened"));

  // Whatever byte is another: refused, or a list of pieces that there are.
  const auto bytes = test::read_file(file);
  for (int i = 0; i < 400; ++i) {
    auto damaged = bytes;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    write_file(file, damaged.substr(0, i % 10 == 0 ? random() % damaged.size() : damaged.size()));
    try {
      const auto read = Shortlist::read(file, {one, other});
      for (const int32_t id : read.candidates(source())) CHECK((id >= Vocabulary::end && id < other->size()));
    } catch (const Error&) {
    }
  }
}
