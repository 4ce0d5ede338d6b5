#include <nlohmann/json.hpp>
#include <numeric>

#include "error_of.h"
#include "support.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/checksum.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/perplexity.h"
#include "transformer/inference/translator.h"
#include "transformer/interop/ctranslate2.h"
#include "transformer/interop/hugging_face.h"
#include "transformer/interop/marian_file.h"
#include "transformer/text/vocabulary.h"

using namespace transformer;
using namespace transformer::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

using Ids = std::vector<int64_t>;

Ids ids_of_pieces(const Vocabulary& vocabulary, const Json& pieces) {
  std::map<std::string, int64_t> ids;
  for (int64_t id = 0; id < vocabulary.size(); ++id) ids.emplace(vocabulary.piece(id), id);
  Ids found;
  for (const auto& piece : pieces) found.push_back(ids.at(piece.get<std::string>()));
  return found;
}

/// Compares an imported model with what CTranslate2 makes of the same weights (tests/reference).
void check_model(const fs::path& model, const fs::path& expected_file, double tolerance = 1e-4) {
  verify_checksums(model);
  const auto expected = Json::parse(read_file(expected_file));
  const auto settings = read_model_settings(model);
  const auto vocabularies = Vocabularies::load(model, settings.source_vocabulary_size, settings.target_vocabulary_size);
  const auto packed = InferenceModel::load(model, settings, Precision::float32);
  std::vector<Ids> sources, targets;
  for (const auto& source : expected["sources"]) sources.push_back(ids_of_pieces(*vocabularies.source, source));
  for (const auto& target : expected["targets"]) targets.push_back(ids_of_pieces(*vocabularies.target, target));
  const auto found = log_probabilities(*packed, sources, targets, 1);
  REQUIRE(found.size() == expected["log_probabilities"].size());
  for (size_t i = 0; i < found.size(); ++i) {
    const auto each = expected["log_probabilities"][i].get<std::vector<double>>();
    REQUIRE(each.size() == targets[i].size() + 1);
    CHECK(std::abs(found[i] - std::accumulate(each.begin(), each.end(), 0.0)) <
          tolerance * static_cast<double>(each.size()));
  }

  DecodingSettings decoding;
  decoding.beam = 1;
  decoding.max_length = 30;
  decoding.write_unknown = false;
  const auto translator = Translator(model).with(decoding);
  size_t same = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto output = translator.translate_ids({sources[i]}).at(0).at(0);
    same += output.tokens == ids_of_pieces(*vocabularies.target, expected["greedy"][i]) ? 1 : 0;
  }
  CHECK(same == sources.size());
  for (size_t i = 0; i < expected["lines"].size(); ++i) {
    const auto line = expected["lines"][i].get<std::string>();
    INFO(line);
    CHECK(vocabularies.source->encode(line) == ids_of_pieces(*vocabularies.source, expected["pieces"][i]));
  }
}

}  // namespace

TEST_CASE("pieces of Marian's vocabulary may be spelled with all of YAML's escapes") {
  const TemporaryDirectory folder;
  const auto read = [&](const std::string& piece) {
    write_file(folder / "vocab.yml", "\"" + piece + "\": 0\n");
    return marian_vocabulary(folder / "vocab.yml");
  };
  const std::vector<std::string> expected = {std::string("\0\a\b\t\t\n\v\f\r\x1b\"/\\ ", 14) +
                                             "\xC2\x85\xC2\xA0\u2028\u2029A\u00E9\U0001F600"};
  CHECK(read("\\0\\a\\b\\t\\\t\\n\\v\\f\\r\\e\\\"\\/\\\\\\ \\N\\_\\L\\P\\x41\\u00e9\\U0001f600") == expected);
  for (const char* piece : {"\\q", "\\", "\\x4", "\\ud800", "\\U00110000"}) {
    CHECK_THAT(error_of([&] { read(piece); }), Contains("vocab.yml:1: holds no piece"));
  }
}

TEST_CASE("a model that Marian saved computes what CTranslate2 makes of it, or its formulas, from its text on") {
  const TemporaryDirectory folder;
  run_reference("marian_files.py",
                fmt::format("'{}/data/tatoeba-en-de' '{}'", TRANSFORMER_SOURCE_DIR, folder.path().string()));
  size_t models = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".json") continue;
    const auto name = entry.path().stem().string();
    INFO(name);
    const auto ours = folder / ("ours " + name);
    import_marian(folder / name, ours);
    check_model(ours, entry.path());
    const auto config = read_file(ours / "config.yaml");
    CHECK_THAT(config, Contains("alpha: 0.6") && Contains("beam: 6") && Contains("write_unknown: false"));
    ++models;
  }
  CHECK(models == 8);
  // Named piece by piece, it is the same model.
  const auto plain = folder / "plain", again = folder / "again";
  fs::create_directory(again);
  for (const char* name : {"model.npz", "vocab.yml", "source.spm", "target.spm"}) {
    fs::rename(plain / name, folder / name);
  }
  import_marian(
      folder / "model.npz", again / "ours",
      {.vocabularies = {folder / "vocab.yml"}, .sentencepiece = {folder / "source.spm", folder / "target.spm"}});
  CHECK(read_file(again / "ours" / "model.safetensors").size() ==
        read_file(folder / "ours plain" / "model.safetensors").size());
  CHECK(read_file(again / "ours" / "source.model") == read_file(folder / "ours plain" / "source.model"));
}

TEST_CASE(
    "what CTranslate2's converters make of MarianMT computes here what it computes there, rounded weights as well") {
  const TemporaryDirectory folder;
  const auto exported = folder / "exported";
  export_hugging_face(fs::path(TRANSFORMER_SOURCE_DIR) / "data" / "model-en-de", exported);
  run_reference("ctranslate2_models.py", fmt::format("'{}' '{}'", folder.path().string(), exported.string()));
  size_t models = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".json") continue;
    const auto name = entry.path().stem().string();
    INFO(name);
    const auto ours = folder / ("ours " + name);
    import_ctranslate2(folder / name, ours);
    check_model(ours, entry.path());
    ++models;
  }
  CHECK(models == 5);
  // The same folder of MarianMT, read without the way over CTranslate2, is the same model but for its padding.
  import_hugging_face(folder / "float32 of transformers", folder / "ours of transformers");
  check_model(folder / "ours of transformers", folder / "float32.json");
}
