#include <torch/types.h>

#include <nlohmann/json.hpp>

#include "error_of.h"
#include "interop/numbering.h"
#include "support.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/checksum.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/perplexity.h"
#include "transformer/inference/translator.h"
#include "transformer/interop/hugging_face.h"
#include "transformer/model/transformer.h"
#include "transformer/text/vocabulary.h"

using namespace transformer;
using namespace transformer::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// Their ids of each of ours, by what they stand for.
Numbering numbering_of(const Vocabulary& vocabulary, const fs::path& vocab_json, int64_t start) {
  Numbering result;
  const auto json = Json::parse(read_file(vocab_json));
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    result.theirs.push_back(id == Vocabulary::begin ? start : json.at(vocabulary.piece(id)).get<int64_t>());
    if (id != Vocabulary::begin) REQUIRE(result.ours.emplace(result.theirs.back(), id).second);
  }
  REQUIRE(result.ours.size() == json.size());
  return result;
}

/// Word pieces and text are those of `theirs`, by what the reference wrote of them.
void check_text(const fs::path& model, const fs::path& expected, const fs::path& theirs) {
  const auto settings = read_model_settings(model);
  const auto vocabularies = Vocabularies::load(model, settings.source_vocabulary_size, settings.target_vocabulary_size);
  const bool separate = fs::exists(theirs / "target_vocab.json");
  const auto source = numbering_of(*vocabularies.source, theirs / "vocab.json", 0),
             target = numbering_of(*vocabularies.target, theirs / (separate ? "target_vocab.json" : "vocab.json"), 0);
  const auto check = [&](const Vocabulary& vocabulary, const Numbering& numbering, const fs::path& file) {
    const auto pairs = Json::parse(read_file(file));
    REQUIRE(pairs[0].size() == pairs[1].size());
    size_t different = 0;
    for (size_t i = 0; i < pairs[0].size(); ++i) {
      const auto line = pairs[0][i].get<std::string>();
      const auto found = numbering.to_theirs(vocabulary.encode(line)), wanted = pairs[1][i].get<Ids>();
      if (found == wanted) continue;
      INFO(line);
      CHECK(found == wanted);
      if (++different == 5) break;
    }
  };
  check(*vocabularies.source, source, expected / "source.json");
  check(*vocabularies.target, target, expected / "target.json");
  const auto decoded = Json::parse(read_file(expected / "decoded.json"));
  for (size_t i = 0; i < decoded[0].size(); ++i) {
    CHECK(vocabularies.target->decode(target.to_ours(decoded[1][i].get<Ids>())) == decoded[0][i].get<std::string>());
  }
}

}  // namespace

TEST_CASE("an imported MarianMT model computes what transformers computes, from its text on") {
  const TemporaryDirectory folder;
  run_reference("marian.py",
                fmt::format("'{}/data/tatoeba-en-de' '{}'", TRANSFORMER_SOURCE_DIR, folder.path().string()));
  torch::NoGradGuard no_grad;
  size_t shapes = 0, ends = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    const auto name = entry.path().stem().string();
    if (entry.path().extension() != ".safetensors") continue;
    INFO(name);
    ++shapes;
    const auto theirs = folder / name, directory = folder / ("ours " + name);
    import_hugging_face(theirs, directory);
    verify_checksums(directory);
    const auto expected = read_tensors(entry.path()).tensors;

    const auto settings = read_model_settings(directory);
    auto model = load_transformer(directory);
    const auto packed = InferenceModel::load(directory, settings, Precision::float32);
    const auto vocabularies =
        Vocabularies::load(directory, settings.source_vocabulary_size, settings.target_vocabulary_size);
    const auto config = Json::parse(read_file(theirs / "config.json"));
    const bool separate = !config["share_encoder_decoder_embeddings"].get<bool>();
    CHECK((settings.positions == ModelSettings::Positions::learned) == (name == "learned positions"));
    const auto source_numbering = numbering_of(*vocabularies.source, theirs / "vocab.json", 0),
               numbering = numbering_of(*vocabularies.target, theirs / (separate ? "target_vocab.json" : "vocab.json"),
                                        config["decoder_start_token_id"].get<int64_t>());
    const auto order = torch::tensor(numbering.theirs);
    const Translator translator(directory);

    std::vector<Ids> sources, targets;
    std::vector<double> sums;
    for (int i = 0; expected.contains(fmt::format("source.{}", i)); ++i) {
      const auto of = [&](const char* what) { return expected.at(fmt::format("{}.{}", what, i)); };
      const auto source = source_numbering.to_ours(ids_of(of("source"))),
                 target = numbering.to_ours(ids_of(of("target")));
      REQUIRE(source.back() == Vocabulary::end);
      auto input = target;
      input.insert(input.begin(), Vocabulary::begin);
      const auto logits = model->forward(torch::tensor(source).unsqueeze(0), torch::tensor(input).unsqueeze(0))[0];
      auto difference = (logits - of("logits").index_select(1, order)).abs();
      difference.select(1, Vocabulary::begin).zero_();  // which is never put out
      CHECK(difference.max().item<double>() < 1e-4);
      CHECK(logits.select(1, Vocabulary::begin).max().item<double>() < -5000);

      auto next = ids_of(of("target"));
      next.push_back(0);
      sums.push_back(of("logits").log_softmax(1).gather(1, torch::tensor(next).unsqueeze(1)).sum().item<double>());
      sources.emplace_back(source.begin(), source.end() - 1);
      targets.push_back(target);

      auto greedy = ids_of(of("greedy"));
      while (!greedy.empty() && (greedy.back() == 0)) greedy.pop_back();
      DecodingSettings decoding;
      decoding.beam = 1;
      decoding.max_extra_length = 10;
      const auto found = translator.with(decoding).translate_ids({sources.back()}).at(0).at(0);
      CHECK(found.tokens == numbering.to_ours(greedy));
      ends += found.finished ? 1 : 0;
    }
    const auto found = log_probabilities(*packed, sources, targets, 1);
    for (size_t i = 0; i < sums.size(); ++i) {
      CHECK(std::abs(found[i] - sums[i]) < 1e-4 * static_cast<double>(targets[i].size() + 1));
    }
    // The first pair's loss, as fine-tuning has it.
    CHECK(-sums[0] / static_cast<double>(targets[0].size() + 1) ==
          Approx(expected.at("loss").item<double>()).epsilon(1e-5));
  }
  CHECK(shapes == 13);
  CHECK(ends > shapes);
  check_text(folder / "ours plain", folder / "text-one", folder / "plain");
  check_text(folder / "ours two vocabularies", folder / "text-two", folder / "two vocabularies");
}
