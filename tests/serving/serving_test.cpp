#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "catch.h"
#include "error_of.h"
#include "support.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/packed_model.h"
#include "transformer/inference/translator.h"
#include "transformer/serving/api_keys.h"
#include "transformer/serving/languages.h"
#include "transformer/serving/metrics.h"
#include "transformer/serving/request_error.h"
#include "transformer/serving/served_models.h"
#include "transformer/serving/service.h"
#include "transformer/serving/settings.h"

using namespace transformer;
using test::error_of;

TEST_CASE("texts are the same, or not") {
  CHECK(equal_in_constant_time("", ""));
  CHECK(equal_in_constant_time("secret", "secret"));
  CHECK_FALSE(equal_in_constant_time("secret", "secreT"));
  CHECK_FALSE(equal_in_constant_time("secret", ""));
  CHECK_FALSE(equal_in_constant_time("", "secret"));
  CHECK_FALSE(equal_in_constant_time("secretsecret", "secret"));
}

TEST_CASE("API keys are a file's lines") {
  const test::TemporaryDirectory folder;
  const auto file = folder / "keys";
  CHECK_FALSE(ApiKeys().needed());
  test::write_file(file, "# of our own\n\nfirst-key  # the page's\r\n  second-key\n\t#four\nfourth#key\t#5\n");
  const ApiKeys keys(file);
  CHECK(keys.needed());
  CHECK(keys.find("first-key") == 0);
  CHECK(keys.find("second-key") == 1);
  CHECK(keys.find("fourth#key") == 2);
  CHECK_FALSE(keys.find("third-key"));
  CHECK_FALSE(keys.find(""));
  test::write_file(file, "first-key\nshort\n");
  CHECK(error_of([&] { ApiKeys{file}; }) == file.string() + ":2: the key is shorter than 8 bytes");
  test::write_file(file, "two keys-in-a-line\n");
  CHECK(error_of([&] { ApiKeys{file}; }) == file.string() + ":1: there is a blank in the key; write a key a line");
  test::write_file(file, "# none\n");
  CHECK(error_of([&] { ApiKeys{file}; }) == file.string() + ": there is no key in it; write one a line");
}

TEST_CASE("a model's languages are what its training files' names end in") {
  const test::TemporaryDirectory folder;
  const auto file = folder / "config.yaml";
  const auto languages = [&](const std::string& source, const std::string& target) {
    test::write_file(file, "data:\n  train_source: " + source + "\n  train_target: " + target + "\nmodel: {}\n");
    return languages_of_model(file);
  };
  CHECK(languages("[a/train.en.gz, more.en]", "train.de") == LanguagePair{"en", "de"});
  CHECK_FALSE(languages("[train.en, more.fr]", "[train.de]"));
  CHECK_FALSE(languages("[train.en]", "[train.en]"));
  CHECK_FALSE(languages("[words.txt]", "[trees.txt]"));
  CHECK_FALSE(languages("[]", "[]"));
  test::write_file(file, "model: {}\n");
  CHECK_FALSE(languages_of_model(file));
  CHECK(parse_language_pair("pt-BR:de", "here") == LanguagePair{"pt-BR", "de"});
  for (const char* wrong : {"", "en", "en:", ":de", "en:en", "en:d\"", "en:de:fr"}) {
    CHECK(error_of([&] { parse_language_pair(wrong, "here"); }).starts_with("here: '"));
  }
}

TEST_CASE("a model of many languages translates each into each other one") {
  const ServedLanguages one({"en", "de"});
  CHECK(one.find("en", "de") == LanguagePair{"en", "de"});
  CHECK(one.find("", "de") == LanguagePair{"en", "de"});
  CHECK_FALSE(one.find("de", "en"));
  CHECK_FALSE(one.many());
  CHECK(one.text() == "en to de");

  const ServedLanguages many({"de", "en", "fr_XX"}, {"en", ""});
  CHECK(many.many());
  CHECK(many.find("de", "fr_XX") == LanguagePair{"de", "fr_XX"});
  CHECK(many.find("", "de") == LanguagePair{"en", "de"});
  CHECK_FALSE(many.find("", "en"));
  CHECK_FALSE(many.find("de", "de"));
  CHECK_FALSE(many.find("de", ""));
  CHECK_FALSE(many.find("nl", "de"));
  CHECK(many.text() == "each of 3 languages to each other: de, en, fr");
  CHECK(many.find("de", "fr") == LanguagePair{"de", "fr_XX"});
  CHECK(parse_language_pair("eng_Latn:fra_Latn", "here") == LanguagePair{"eng_Latn", "fra_Latn"});
}

TEST_CASE("models must be there, and their languages known") {
  const std::string directory = TRANSFORMER_SOURCE_DIR "/data/model-en-de";
  ServingSettings settings;
  CHECK(error_of([&] { settings.validated(); }).starts_with("serving.models: no model is named"));
  settings.models = {directory, directory};
  settings.languages = {"en:de"};
  CHECK(error_of([&] { settings.validated(); }).starts_with("serving.languages: there is one entry for each model"));
  settings.languages = {"?", "nl:sv"};
  const auto places = model_places(settings);
  REQUIRE(places.size() == 2);
  CHECK(places[0].name == "model-en-de");
  CHECK(places[0].languages == LanguagePair{"en", "de"});
  CHECK(places[1].name == directory);  // of two of a name, the whole path
  CHECK(places[1].languages == LanguagePair{"nl", "sv"});
  settings.models = {"/nowhere"};
  CHECK_FALSE(error_of([&] { model_places(settings); }).empty());
}

TEST_CASE("a packed model is served as it is stored, and in no other precision") {
  const test::TemporaryDirectory folder;
  export_packed(TRANSFORMER_SOURCE_DIR "/data/model-en-de", folder / "packed", Precision::int8, false);
  ServingSettings settings;
  settings.models = {(folder / "packed").string()};
  settings.languages = {"en:de"};
  settings.threads = 1;
  const auto place = model_places(settings).front();
  const ServedModel served(place, settings, {});
  CHECK(served.translator().packed()->precision() == Precision::int8);
  settings.precision = ServingSettings::Rounding::float32;
  CHECK_THAT(error_of([&] { ServedModel(place, settings, {}); }), Contains("packed as int8"));
}

TEST_CASE("a model that a request names translates what it names, or nothing") {
  ServingSettings settings;
  settings.models = {TRANSFORMER_SOURCE_DIR "/data/model-en-de"};
  settings.threads = 1;
  const auto place = model_places(settings).front();
  const ServedModels models({std::make_shared<const ServedModel>(place, settings, [](const std::string&, size_t) {})});
  const std::string name = "model-en-de";
  for (const char* source : {"", "auto", "en", "eng"}) {
    for (const char* target : {"", "de", "deu"}) {
      INFO(source << " " << target);
      CHECK(models.find(source, target, name).languages == LanguagePair{"en", "de"});
    }
  }
  const auto refused = [&](const std::string& source, const std::string& target) -> std::string {
    try {
      models.find(source, target, name);
    } catch (const RequestError& error) {
      return std::to_string(error.status()) + " " + error.what();
    }
    return "";
  };
  CHECK(refused("fr", "es") == "400 'fr' to 'es' is not translated here; there are: en to de");
  CHECK(refused("fr", "") == "400 'fr' to any language is not translated here; there are: en to de");
  CHECK(refused("auto", "es") == "400 any language to 'es' is not translated here; there are: en to de");
  CHECK_FALSE(refused("de", "en").empty());
}

TEST_CASE("labels of metrics are escaped") {
  CHECK(ServingMetrics::label("model", "a\"b\\c\nd") == "model=\"a\\\"b\\\\c\\nd\"");
}

TEST_CASE("a service ends once nobody uses its models any more, whoever is the last") {
  class Answer : public HttpReply {
   public:
    void send(HttpResponse response, Served) override { answered.set_value(response.status); }
    void begin(HttpResponse) override {}
    void write(std::string) override {}
    void end(Served) override {}
    std::promise<int> answered;
  };
  ServingSettings settings;
  settings.models = {TRANSFORMER_SOURCE_DIR "/data/model-en-de"};
  settings.threads = 1;
  const auto reply = std::make_shared<Answer>();
  std::jthread user;
  std::atomic<bool> is_used = true;
  {
    Service service(settings.validated());
    service.load();
    auto task = service.handle({.method = "POST",
                                .path = "/v1/translate",
                                .content_type = "application/json",
                                .body = R"({"text": "Good morning.", "target": "de"})"},
                               reply);
    CHECK(reply->answered.get_future().get() == 200);
    user = std::jthread([&is_used, held = std::move(task)]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      is_used = false;
      held = nullptr;
    });
  }
  CHECK_FALSE(is_used);
}
