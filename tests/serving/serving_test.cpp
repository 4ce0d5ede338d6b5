#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch.h"
#include "error_of.h"
#include "support.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
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

namespace {

class AnswerStatus : public HttpReply {
 public:
  void send(HttpResponse response, Served) override { answered.set_value(response.status); }
  void begin(HttpResponse) override {}
  void write(std::string) override {}
  void end(Served) override {}
  std::promise<int> answered;
};

/// Asks for the translation of a sentence.
std::shared_ptr<HttpTask> ask(Service& service, const std::shared_ptr<AnswerStatus>& reply) {
  return service.handle({.method = "POST",
                         .path = "/v1/translate",
                         .content_type = "application/json",
                         .body = R"({"text": "Good morning.", "target": "de"})"},
                        reply);
}

}  // namespace

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
  CHECK_FALSE(keys.find("first-key" + std::string(size_t{1} << 20, '\0')));
  CHECK_FALSE(keys.find(""));
  test::write_file(file, "first-key\nshort\n");
  CHECK(error_of([&] { ApiKeys{file}; }) == file.string() + ":2: the key is shorter than 8 bytes");
  test::write_file(file, "two keys-in-a-line\n");
  CHECK(error_of([&] { ApiKeys{file}; }) == file.string() + ":1: there is a blank in the key; write a key a line");
  test::write_file(file,
                   "\xEF\xBB\xBF"
                   "first-key\r\nschlüssel\n");
  CHECK(ApiKeys(file).find("first-key") == 0);
  CHECK(ApiKeys(file).find("schlüssel") == 1);  // as curl sends it
  for (const char control : {'\0', '\x01', '\x1B', '\x7F'}) {
    test::write_file(file, std::string("first-key\nsecond") + control + "key\n");
    CHECK(error_of([&] { ApiKeys{file}; }) ==
          file.string() + ":2: there is a control character in the key, which no header can carry");
  }
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

  // What is not translated where nobody names its source.
  const ServedLanguages told({"de", "en", "pt_BR", "pt_PT"}, {"", "de"});
  for (const char* target : {"", "en", "de"}) CHECK(told.lacks_source(target));
  for (const char* target : {"pt", "nl"}) CHECK_FALSE(told.lacks_source(target));
  CHECK(many.lacks_source("en"));
  for (const char* target : {"", "de", "nl"}) CHECK_FALSE(many.lacks_source(target));
  for (const char* target : {"", "de", "en"}) CHECK_FALSE(one.lacks_source(target));
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

TEST_CASE("a model is called what its operator calls it, in text that a request can hold") {
  const test::TemporaryDirectory folder;
  const auto model = std::filesystem::path(TRANSFORMER_SOURCE_DIR) / "data/model-en-de";
  const auto link = [&](const std::filesystem::path& to, const std::string& name) {
    std::filesystem::remove(folder / name);
    std::filesystem::create_directory_symlink(to, folder / name);
    return (folder / name).string();
  };
  const auto names = [&](const std::vector<std::string>& models) {
    ServingSettings settings;
    settings.models = models;
    std::vector<std::string> found;
    for (const auto& place : model_places(settings)) found.push_back(place.name);
    return found;
  };
  using Names = std::vector<std::string>;
  link(model, "r1");
  link(model, "r2");
  const auto current = link(folder / "r1", "current");
  CHECK(names({current}) == Names{"current"});
  link(folder / "r2", "current");
  CHECK(names({current}) == Names{"current"});
  CHECK(names({current + "/"}) == Names{"current"});
  CHECK(names({current + "/."}) == Names{"current"});
  // A path that ends in no name.
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(current);
  CHECK(names({"."}) == Names{"model-en-de"});
  std::filesystem::current_path(before);

  const auto broken = link(model, "na\xFFme"), other = link(model, "na\xFEme");
  const auto found = names({broken, other, other});
  const std::string parent = folder.path().string() + "/na\uFFFDme";
  CHECK(found == Names{"na\uFFFDme", parent, parent + "-2"});
  CHECK(names({link(model, "n\u00E4me")}) == Names{"n\u00E4me"});
}

TEST_CASE("pages of one origin, of any or of none may ask") {
  ServingSettings settings;
  settings.models = {"a"};
  const auto refusal = [&](const std::string& origin) {
    settings.allow_origin = origin;
    return error_of([&] { settings.validated(); });
  };
  for (const char* good : {"", "*", "null", "https://a.example", "http://localhost:8080", "http://[::1]:8080",
                           "moz-extension://0a1b-2c", "capacitor://localhost"}) {
    INFO(good);
    CHECK(refusal(good).empty());
  }
  for (const char* bad :
       {"https://a.example\n", "https://a.example\r\nSet-Cookie: x=1", "https://a.example/",
        "https://a.example, https://b.example", "https://a.example https://b.example", "a.example", "://a", "https://",
        "https://\u00FC.example", " *", "**", "HTTPS://a.example", "https://A.example", "https://a.example:443",
        "http://[::1]:80", "https://a:", "https://[[["}) {
    INFO(bad);
    CHECK_THAT(refusal(bad), StartsWith("serving.allow_origin: '") && Contains("is no origin of pages"));
  }
  CHECK_THAT(refusal("https://a.example\n"), Contains("'https://a.example\\x0a'"));
}

TEST_CASE("who waits for company is not given up meanwhile") {
  ServingSettings settings;
  settings.models = {"a"};
  settings.deadline_seconds = 2;
  settings.batch_wait_ms = 1999;
  settings.validated();
  settings.batch_wait_ms = 2000;
  CHECK(
      error_of([&] { settings.validated(); }) ==
      "serving.batch_wait_ms: 2000 milliseconds leave no time until serving.deadline_seconds, 2; wait for less, or set "
      "a later deadline");
}

TEST_CASE("a folder without a name is named by its setting") {
  ServingSettings settings;
  settings.models = {""};
  CHECK(error_of([&] { settings.validated(); }) == "serving.models: a folder's name is empty; name a folder");
  settings.models = {"a"};
  settings.drafts = {""};
  CHECK(error_of([&] { settings.validated(); }) == "serving.drafts: a folder's name is empty; name a folder");
}

TEST_CASE("the page's blanks are the server's") {
  const auto page = read_file(TRANSFORMER_SOURCE_DIR "/transformer/serving/page.js");
  const std::string begin = "const words = (text) => text.split(/[";
  const auto from = page.find(begin);
  REQUIRE(from != page.npos);
  const auto at = from + begin.size();
  const auto blanks = page.substr(at, page.find("]+/u)", at) - at);
  std::vector<bool> is_of_page(0x110000);
  const std::regex ranges(R"((\\u[0-9a-f]{4}|\\x[0-9a-f]{2}|\\[tr])(-(\\u[0-9a-f]{4}|\\x[0-9a-f]{2}|\\[tr]))?)");
  const auto code_of = [](const std::string& escape) -> size_t {
    if (escape[1] == 't' || escape[1] == 'r') return escape[1] == 't' ? 0x9 : 0xD;
    return std::stoul(escape.substr(2), nullptr, 16);
  };
  size_t read = 0;
  for (std::sregex_iterator range(blanks.begin(), blanks.end(), ranges), end; range != end; ++range) {
    const auto first = code_of((*range)[1]), last = (*range)[3].matched ? code_of((*range)[3]) : first;
    for (size_t code = first; code <= last; ++code) is_of_page[code] = true;
    read += static_cast<size_t>(range->length());
  }
  CHECK(read == blanks.size());
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (is_of_page[code] == is_blank(code)) continue;
    FAIL_CHECK("U+" << std::hex << static_cast<uint32_t>(code));
  }
}

TEST_CASE("a packed model that is written over is served as it was loaded, and its draft, too") {
  const test::TemporaryDirectory folder;
  const auto packed = folder / "packed", draft = folder / "draft", file = packed / "model.safetensors";
  export_packed(TRANSFORMER_SOURCE_DIR "/data/model-en-de", packed, Precision::int8, false);
  export_packed(TRANSFORMER_SOURCE_DIR "/data/model-en-de", draft, Precision::bf16, false);
  ServingSettings settings;
  settings.models = {packed.string()};
  settings.languages = {"en:de"};
  settings.drafts = {draft.string()};
  settings.threads = 1;
  const ServedModel served(model_places(settings).front(), settings, {});
  const std::vector<std::string> lines = {"Good morning, my friend.", "The children are playing in the garden."};
  const auto translations = [&](int64_t beam) {
    auto search = served.translator().settings();
    search.beam = beam;
    std::vector<std::string> texts;
    for (const auto& found : served.translator().with(search).translate(lines)) texts.push_back(found.front().text);
    return texts;
  };
  const auto greedy = translations(1), expected = translations(4);
  CHECK(Translator(packed).translate(lines).front().front().text == expected.front());  // mapped
  const auto bytes = std::filesystem::file_size(file);
  for (const auto& folder_written : {packed, draft}) {
    std::fstream written(folder_written / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    written.seekp(static_cast<std::streamoff>(bytes / 2));
    written << std::string(bytes / 4, '\x55');
  }
  CHECK(translations(4) == expected);
  CHECK(translations(1) == greedy);
  for (const auto& cut : {packed, draft}) std::filesystem::resize_file(cut / "model.safetensors", 0);
  CHECK(translations(4) == expected);
  CHECK(translations(1) == greedy);
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
  ServingSettings settings;
  settings.models = {TRANSFORMER_SOURCE_DIR "/data/model-en-de"};
  settings.threads = 1;
  const auto reply = std::make_shared<AnswerStatus>();
  std::jthread user;
  std::atomic<bool> is_used = true;
  {
    Service service(settings.validated());
    service.load();
    auto task = ask(service, reply);
    CHECK(reply->answered.get_future().get() == 200);
    user = std::jthread([&is_used, held = std::move(task)]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      is_used = false;
      held = nullptr;
    });
  }
  CHECK_FALSE(is_used);
}

TEST_CASE("nothing waits for company of models that come to their end") {
  ServingSettings settings;
  settings.models = {TRANSFORMER_SOURCE_DIR "/data/model-en-de"};
  settings.threads = 1;
  settings.batch_wait_ms = 50'000;
  const auto reply = std::make_shared<AnswerStatus>();
  Service service(settings.validated());
  std::shared_ptr<HttpTask> task;
  SECTION("where the server ends") {
    service.load();
    task = ask(service, reply);
    service.drain();
  }
  SECTION("where they are loaded while it ends") {
    service.drain();
    service.load();
    task = ask(service, reply);
  }
  SECTION("where others are loaded in their place") {
    service.load();
    task = ask(service, reply);
    service.load();
  }
  auto answered = reply->answered.get_future();
  REQUIRE(answered.wait_for(std::chrono::seconds(40)) == std::future_status::ready);
  CHECK(answered.get() == 200);
}
