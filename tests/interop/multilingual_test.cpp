#include <torch/types.h>

#include <nlohmann/json.hpp>

#include "error_of.h"
#include "inference/tiny_model.h"
#include "interop/numbering.h"
#include "support.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/checksum.h"
#include "transformer/base/settings.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/output_prefix.h"
#include "transformer/inference/perplexity.h"
#include "transformer/inference/translator.h"
#include "transformer/interop/ctranslate2.h"
#include "transformer/interop/hugging_face.h"
#include "transformer/model/transformer.h"
#include "transformer/text/vocabulary.h"

using namespace transformer;
using namespace transformer::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int64_t their_end = 2;

/// Their ids of each of ours, by what they stand for; the begin stands for what they start with.
Numbering numbering_of(const Vocabulary& vocabulary, const Json& tokens) {
  Numbering result;
  std::map<std::string, int64_t> ids;
  Ids nothing;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const auto token = tokens[id].get<std::string>();
    if (token.empty()) {
      nothing.push_back(static_cast<int64_t>(id));
    } else {
      REQUIRE(ids.emplace(token, id).second);
    }
  }
  auto next = nothing.begin();
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    if (id == Vocabulary::begin) {
      result.theirs.push_back(their_end);
      continue;
    }
    const auto found = ids.find(vocabulary.piece(id));
    REQUIRE((found != ids.end() || next != nothing.end()));
    result.theirs.push_back(found == ids.end() ? *next++ : found->second);
    REQUIRE(result.ours.emplace(result.theirs.back(), id).second);
  }
  REQUIRE(result.ours.size() == tokens.size());
  return result;
}

/// What greedy search or a beam of theirs found, in our ids, without the end. Their longest output has room for the
/// end; where there is none, it is one token longer than ours.
struct Theirs {
  Ids ids;
  bool finished = false;
  Theirs(const torch::Tensor& found, const Numbering& numbering) {
    auto tokens = ids_of(found);
    const auto end = std::find(tokens.begin(), tokens.end(), their_end);
    finished = end != tokens.end();
    tokens.erase(finished ? end : end - 1, tokens.end());
    ids = numbering.to_ours(tokens);
  }
};

void check_text(const Vocabulary& vocabulary, const Numbering& numbering, const Json& expected) {
  const auto& languages = vocabulary.languages();
  const int64_t language = languages.piece(expected["source"], "source");
  size_t different = 0;
  for (size_t i = 0; i < expected["lines"].size() && different < 5; ++i) {
    const auto line = expected["lines"][i].get<std::string>();
    const auto found = numbering.to_theirs(languages.source(vocabulary.encode(line), language));
    const auto wanted = expected["ids"][i].get<Ids>();
    if (found == wanted) continue;
    ++different;
    INFO(line);
    CHECK(found == wanted);
  }
  for (size_t i = 0; i < expected["drawn"].size(); ++i) {
    CHECK(vocabulary.decode(numbering.to_ours(expected["drawn"][i].get<Ids>())) ==
          expected["texts"][i].get<std::string>());
  }
}

}  // namespace

TEST_CASE("an imported model of many languages computes what transformers computes, from its text on") {
  const TemporaryDirectory folder;
  run_reference("multilingual.py",
                fmt::format("'{}/data/tatoeba-en-de' '{}'", TRANSFORMER_SOURCE_DIR, folder.path().string()));
  torch::NoGradGuard no_grad;
  size_t shapes = 0, ends = 0, beams = 0, same_beams = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    const auto name = entry.path().stem().string();
    if (entry.path().extension() != ".safetensors") continue;
    INFO(name);
    ++shapes;
    const auto directory = folder / ("ours " + name);
    import_hugging_face(folder / name, directory);
    verify_checksums(directory);
    const auto expected = read_tensors(entry.path()).tensors;
    const auto text = Json::parse(read_file(folder / (name + ".json")));

    const auto settings = read_model_settings(directory);
    auto model = load_transformer(directory);
    const auto vocabularies =
        Vocabularies::load(directory, settings.source_vocabulary_size, settings.target_vocabulary_size);
    CHECK(vocabularies.source == vocabularies.target);
    const auto numbering = numbering_of(*vocabularies.target, text["tokens"]);
    const auto order = torch::tensor(numbering.theirs);
    for (int i = 0; expected.contains(fmt::format("source.{}", i)); ++i) {
      const auto of = [&](const char* what) { return expected.at(fmt::format("{}.{}", what, i)); };
      const auto& languages = vocabularies.source->languages();
      const auto source =
          languages.source(numbering.to_ours(ids_of(of("source"))), languages.piece(text["source"], "source"));
      CHECK(source == numbering.to_ours(ids_of(of("input"))));
      auto input = numbering.to_ours(ids_of(of("target")));
      CHECK(input.front() == languages.piece(text["target"], "target"));
      input.insert(input.begin(), Vocabulary::begin);
      const auto logits = model->forward(torch::tensor(source).unsqueeze(0), torch::tensor(input).unsqueeze(0))[0];
      auto difference = (logits - of("logits").index_select(1, order)).abs();
      difference.select(1, Vocabulary::begin).zero_();  // which is never put out
      CHECK(difference.max().item<double>() < 1e-4);
      CHECK(logits.select(1, Vocabulary::begin).max().item<double>() < -5000);
    }

    // CTranslate2 adds an end behind what it is given; where the language follows it, that is given, too.
    export_ctranslate2(directory, folder / ("theirs " + name));
    CHECK(Json::parse(read_file(folder / ("theirs " + name) / "config.json")).at("add_source_eos") ==
          !vocabularies.source->languages().behind_end);

    // MarianMT computes this one, and its tokenizer would tell it no language.
    const auto plain = folder / ("plain " + name);
    fs::create_directories(plain);
    auto known = tiny_settings(vocabularies.source->size());
    known.shared_embeddings = ModelSettings::SharedEmbeddings::all;
    save_weights(*tiny_transformer(known), plain / "model.safetensors");
    fs::copy_file(directory / "vocabulary.model", plain / "vocabulary.model");
    Settings all;
    all.section("model", known, "");
    write_file(plain / "config.yaml", all.yaml());
    CHECK_THAT(error_of([&] { export_hugging_face(plain, folder / ("marian " + name)); }),
               Contains("MarianTokenizer tells a model none"));
    CHECK_FALSE(fs::exists(folder / ("marian " + name)));

    const Translator translator(directory);
    auto decoding = translator.settings();
    CHECK(decoding.beam == 4);
    decoding.source_language = text["source"];
    decoding.target_language = text["target"];
    decoding.max_extra_length = 10;
    decoding.alpha = 0.6;
    decoding.stop = DecodingSettings::Stop::exact;  // "never" early
    std::vector<Ids> sources;
    for (int i = 0; expected.contains(fmt::format("text.{}", i)); ++i) {
      sources.push_back(numbering.to_ours(ids_of(expected.at(fmt::format("text.{}", i)))));
    }
    // Lengths are counted without the languages, as a share of the source's as well.
    auto at_least = decoding;
    at_least.min_length_ratio = 0.5;
    for (const int64_t least : {0, 9}) {
      at_least.min_length = least;
      const auto found = translator.with(at_least).translate_encoded(sources);
      for (size_t i = 0; i < sources.size(); ++i) {
        CHECK(std::ssize(found[i][0].tokens) >= (sources[i].empty() ? 0 : least));
        CHECK(2 * found[i][0].tokens.size() >= sources[i].size());
      }
    }
    CHECK(translator.request(sources[0], decoding).told == 1);
    // Scores are those of what was written, as a forced pass has it, whatever it begins with.
    for (const size_t begun : {0, 2}) {
      const auto bound = translator.with(decoding);
      const auto& other = sources[4];
      const Ids beginning(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(std::min(begun, other.size())));
      const std::vector<EncodedWishes> wishes = {
          {.constraint = begins_with(beginning), .prefix_tokens = std::ssize(beginning)}};
      const auto found = bound.translate_encoded({sources[3]}, wishes)[0][0];
      const std::vector<Ids> source = {sources[3]}, target = {found.tokens};
      auto forced = translator.score(source, target, decoding).at(0);
      if (!found.finished) forced.pop_back();
      CHECK(found.score == Approx(normalised_score(forced, decoding, 1)).epsilon(1e-4));
    }
    const Translator by_modules(std::make_shared<ModuleBackend>(model), vocabularies, decoding);
    for (const int64_t beam : {1, 4}) {
      decoding.beam = beam;
      const auto found = translator.with(decoding).translate_ids(sources);
      CHECK(by_modules.with(decoding).translate_ids({sources[7]})[0][0].tokens == found[7][0].tokens);
      for (size_t i = 0; i < sources.size(); ++i) {
        const auto theirs = expected.find(fmt::format("beam {}.{}", beam, i));
        if (theirs == expected.end()) continue;
        const Theirs wanted(theirs->second, numbering);
        ends += found[i][0].finished ? 1 : 0;
        if (beam == 1) CHECK(found[i][0].tokens == wanted.ids);
        const bool compared = beam > 1 && wanted.finished;  // of what was cut each has its own order
        beams += compared ? 1 : 0;
        same_beams += compared && found[i][0].tokens == wanted.ids ? 1 : 0;
        CHECK(found[i][0].token_log_probabilities.at(0) == 0);
      }
    }
    // What was told is not part of the text.
    const auto words = translator.with(decoding).translate_encoded({sources[3]})[0][0];
    CHECK(words.tokens.size() == words.token_log_probabilities.size() - (words.finished ? 1 : 0));
    CHECK_THAT(words.text,
               !Contains(vocabularies.target->piece(vocabularies.target->languages().piece(text["target"], "target"))));
    check_text(*vocabularies.source, numbering, text);
  }
  CHECK(shapes == 8);
  CHECK(ends > 10 * shapes);
  CHECK(static_cast<double>(same_beams) >= 0.99 * static_cast<double>(beams));
}
