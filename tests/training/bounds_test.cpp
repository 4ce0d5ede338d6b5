#include <cmath>
#include <filesystem>

#include "support.h"
#include "transformer/architecture/settings.h"
#include "transformer/inference/beam_search.h"
#include "transformer/inference/word_alignment.h"
#include "transformer/text/corpus.h"
#include "transformer/text/vocabulary.h"
#include "transformer/training/settings.h"

using namespace transformer;

namespace {

// Every number that `S` declares has an end on both sides, and takes its default.
template <class S>
int bounded_numbers() {
  S settings;
  std::vector<SettingField> fields;
  Fields<S> described(settings, fields);
  S::describe(described);
  int numbers = 0;
  for (const auto& field : fields) {
    const bool is_list = std::holds_alternative<std::vector<double>*>(field.target);
    double value = 0;
    if (const auto* integer = std::get_if<int64_t*>(&field.target)) {
      value = static_cast<double>(**integer);
    } else if (const auto* natural = std::get_if<uint64_t*>(&field.target)) {
      value = static_cast<double>(**natural);
    } else if (const auto* real = std::get_if<double*>(&field.target)) {
      value = **real;
    } else if (!is_list) {
      continue;
    }
    if (!field.stands_for.empty()) continue;
    ++numbers;
    INFO(field.name << ": " << field.range.text());
    CHECK(std::isfinite(field.range.lowest));
    CHECK(std::isfinite(field.range.highest));
    CHECK((is_list || field.range.contains(value)));
  }
  return numbers;
}

}  // namespace

TEST_CASE("every number of every section has a lowest and a highest value") {
  CHECK(bounded_numbers<DataSettings>() >= 3);
  CHECK(bounded_numbers<VocabularySettings>() >= 2);
  CHECK(bounded_numbers<ModelSettings>() >= 21);
  CHECK(bounded_numbers<TrainingSettings>() >= 27);
  CHECK(bounded_numbers<DecodingSettings>() >= 5);
  CHECK(bounded_numbers<AlignmentSettings>() >= 2);
}

TEST_CASE("every configuration that comes with the project is within them") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRANSFORMER_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    DataSettings data;
    VocabularySettings vocabulary;
    ModelSettings model;
    TrainingSettings training;
    DecodingSettings decoding;
    Settings settings;
    settings.section("data", data, "");
    settings.section("vocabulary", vocabulary, "");
    settings.section("model", model, "");
    settings.section("training", training, "");
    settings.section("decoding", decoding, "");
    INFO(entry.path());
    CHECK_NOTHROW(settings.load(entry.path()));
    CHECK_NOTHROW(model.resolved());
    CHECK_NOTHROW(training.check());
    ++files;
  }
  CHECK(files >= 8);
}
