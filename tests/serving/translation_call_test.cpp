#include "transformer/serving/translation_call.h"

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <future>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "transformer/serving/request_error.h"
#include "transformer/serving/task_pool.h"

using namespace transformer;

namespace {

struct Refusal {
  int status = 0;
  std::string sentence;
};

Refusal refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const RequestError& error) {
    return {error.status(), error.what()};
  }
  return {};
}

std::string sentence_of_json(const std::string& body) {
  const auto refused = refusal([&] { parse_libretranslate_json(body, 10); });
  CHECK(refused.status == 400);
  return refused.sentence;
}

std::string sentence_of_own(const std::string& body) {
  const auto refused = refusal([&] { parse_translation(body, 10); });
  CHECK(refused.status == 400);
  return refused.sentence;
}

}  // namespace

TEST_CASE("LibreTranslate's fields are read from JSON") {
  const auto one = parse_libretranslate_json(
      R"({"q": "a \u00e9 \ud83d\ude00", "source": "en", "target": "de", "format": "text", "alternatives": 3,
          "api_key": "secret", "something_newer": {"any": 1}})",
      10);
  CHECK(one.texts == std::vector<std::string>{"a é 😀"});
  CHECK_FALSE(one.is_list);
  CHECK(one.source == "en");
  CHECK(one.target == "de");
  CHECK(one.api_key == "secret");
  CHECK(one.alternatives == 3);
  const auto list =
      parse_libretranslate_json(R"({"q": ["x"], "target": "de", "source": null, "alternatives": "2"})", 10);
  CHECK(list.texts == std::vector<std::string>{"x"});
  CHECK(list.is_list);
  CHECK(list.source.empty());
  CHECK(list.alternatives == 2);
  CHECK(parse_libretranslate_json(R"({"q": [], "target": "de"})", 10).texts.empty());
  CHECK(parse_libretranslate_json(R"({"q": "a", "target": "de", "alternatives": 10000})", 10).alternatives == 10000);
}

TEST_CASE("a mistake in a body is named in one sentence") {
  CHECK_THAT(sentence_of_json(""), Contains("there is no body"));
  CHECK(sentence_of_json("{\"q\": \"a") == "the body is not JSON in UTF-8, from byte 9 on");
  CHECK(sentence_of_json("{\"q\": \"\xff\"}") == "the body is not JSON in UTF-8, from byte 8 on");
  CHECK(sentence_of_json(R"({"q": "\ud800"})") == "the body is not JSON in UTF-8, from byte 14 on");
  CHECK(sentence_of_json("[1]") == "the body should be a JSON object");
  CHECK(sentence_of_json("1e999") == "the body holds a number that is too large");
  CHECK(sentence_of_json(std::string(100000, '[')) == "the body is nested deeper than 8 levels");
  CHECK(sentence_of_json(R"({"target": "de"})") == "q is missing: the text to translate");
  CHECK(sentence_of_json(R"({"q": "a"})") == "target is missing: the code of a language");
  CHECK(sentence_of_json(R"({"q": 7, "target": "de"})") == "q takes a text or a list of texts, found 7");
  CHECK(sentence_of_json(R"({"q": ["a", ["b"]], "target": "de"})") == "q takes a list of texts, found a list in it");
  CHECK(sentence_of_json(R"({"q": "a", "target": {}})") == "target takes a text, found an object");
  CHECK(sentence_of_json(R"({"q": "a", "target": "de", "format": "pdf"})") == "format takes text or html, found 'pdf'");
  CHECK(parse_libretranslate_json(R"({"q": "a", "target": "de", "format": "html"})", 10).is_html);
  for (const char* number : {"-1", "10001", "1e3", "\"x\"", "\"\"", "99999999999999999999", "true", "\"1 \""}) {
    INFO(number);
    CHECK(sentence_of_json(std::string(R"({"q": "a", "target": "de", "alternatives": )") + number + "}")
              .starts_with("alternatives takes an integer from 0 to 10000, found "));
  }
}

TEST_CASE("no more texts are taken than a request may hold") {
  CHECK(parse_libretranslate_json(R"({"q": ["a", "b"], "target": "de"})", 2).texts.size() == 2);
  CHECK(refusal([] { parse_libretranslate_json(R"({"q": ["a", "b", "c"], "target": "de"})", 2); }).status == 413);
  CHECK(refusal([] { parse_libretranslate_form("q=a&q=b&q=c&target=de", 2); }).status == 413);
}

TEST_CASE("forms are decoded") {
  using Fields = std::vector<std::pair<std::string, std::string>>;
  CHECK(parse_form("") == Fields{});
  CHECK(parse_form("a=1&&b=x+y%20z&c&=d&e=%C3%A9%3d=&f=%4F%6F") ==
        Fields{{"a", "1"}, {"b", "x y z"}, {"c", ""}, {"", "d"}, {"e", "é=="}, {"f", "Oo"}});
  for (const char* broken : {"a=%", "a=%4", "a=%4g", "%zz=1"}) {
    CHECK(refusal([&] { parse_form(broken); }).sentence ==
          "the form holds a % that two hexadecimal digits do not follow");
  }
  CHECK(refusal([] { parse_form("a=%ff"); }).sentence == "the form is not UTF-8");
  const auto call = parse_libretranslate_form("q=Good+day%0Ayou&source=en&target=de&alternatives=1&api_key=k", 10);
  CHECK(call.texts == std::vector<std::string>{"Good day\nyou"});
  CHECK_FALSE(call.is_list);
  CHECK(call.alternatives == 1);
  CHECK(call.api_key == "k");
  CHECK(parse_libretranslate_form("q=a&q=b&target=de", 10).is_list);
}

TEST_CASE("the server's own interface takes settings of the search, and refuses what it does not know") {
  const auto call = parse_translation(
      R"({"text": ["a", "b"], "model": "m", "alignments": true, "stream": true, "document": false,
          "decoding": {"beam": 3, "alpha": 0.5, "stop": "exact", "list": ["x", "y: z", 2], "on": true}})",
      10);
  CHECK(call.texts.size() == 2);
  CHECK(call.model == "m");
  CHECK(call.alignments);
  CHECK(call.stream);
  CHECK(call.document == false);
  CHECK_FALSE(call.attention);
  CHECK_FALSE(call.is_html);
  CHECK(parse_translation(R"({"text": "a", "target": "de", "attention": true})", 1).attention);
  CHECK(parse_translation(R"({"text": "a", "target": "de", "format": "html"})", 1).is_html);
  CHECK(sentence_of_own(R"({"target": "de"})") == "text is missing: the text to translate");
  CHECK(sentence_of_own(R"({"text": "a"})") == "target is missing: the code of a language");
  CHECK_FALSE(parse_translation(R"({"text": "a", "target": "de"})", 1).document.has_value());
  std::string decoding;
  for (const auto& one : call.decoding) decoding += one.name + "=" + one.value + "\n";
  CHECK(decoding ==
        "decoding.alpha=0.5\ndecoding.beam=3\ndecoding.list=[x, \"y: z\", 2]\ndecoding.on=true\n"
        "decoding.stop=exact\n");
  CHECK(sentence_of_own(R"({"text": "a", "traget": "de"})") == "unknown field 'traget'; did you mean 'target'?");
  CHECK(sentence_of_own(R"({"text": "a", "target": "de", "decoding": [1]})") ==
        "decoding takes an object of settings, found a list");
  CHECK(sentence_of_own(R"({"text": "a", "target": "de", "decoding": {"beam": {}}})") ==
        "decoding.beam takes a value or a list, found an object");
  CHECK(parse_translation(R"({"text": "a", "target": "de", "decoding": {"beam": null}})", 1).decoding.empty());
  std::string settings;
  for (int i = 0; i < 101; ++i) settings += fmt::format("{}\"k{}\": 1", i > 0 ? ", " : "", i);
  CHECK(sentence_of_own(fmt::format(R"({{"text": "a", "target": "de", "decoding": {{{}}}}})", settings)) ==
        "decoding takes 100 settings at most, found 101");
  CHECK(sentence_of_own(R"({"text": "a", "target": "de", "stream": "yes"})") ==
        "stream takes true or false, found 'yes'");
}

TEST_CASE("Given translations to judge are one or as many as there are texts") {
  const auto one = parse_score(R"({"text": "a", "translation": "b", "target": "de", "source": null})", 10);
  CHECK(one.texts == std::vector<std::string>{"a"});
  CHECK(one.translations == std::vector<std::string>{"b"});
  CHECK(one.target == "de");
  const auto list = parse_score(R"({"text": ["a", "c"], "translation": ["b", ""], "model": "m", "api_key": "k"})", 2);
  CHECK(list.translations == std::vector<std::string>{"b", ""});
  CHECK(list.model == "m");
  CHECK(list.api_key == "k");
  const auto sentence = [](const char* body) { return refusal([&] { parse_score(body, 2); }).sentence; };
  CHECK(sentence(R"({"translation": "b", "target": "de"})") == "text is missing");
  CHECK(sentence(R"({"text": "a", "translation": null, "target": "de"})") == "translation is missing");
  CHECK(sentence(R"({"text": "a", "translation": "b"})") == "target is missing: the code of a language");
  CHECK(sentence(R"({"text": ["a"], "translation": "b", "target": "de"})") ==
        "text and translation are one text each, or lists of one length");
  CHECK(refusal([] { parse_score(R"({"text": ["a", "b", "c"], "translation": []})", 2); }).status == 413);
}

TEST_CASE("A pool does quick work in order beside the rest, and before it ends all that either posts to the other") {
  std::vector<int> quick;  // by one thread
  std::atomic<int> hops = 0;
  std::function<void()> hop;  // used until the pool has ended
  {
    TaskPool pool(2);
    std::promise<void> go;
    auto gone = go.get_future().share();
    for (int i = 0; i < 2; ++i) pool.post([gone] { gone.wait(); });
    std::promise<void> done;
    for (int i = 0; i < 100; ++i) pool.post_quick([&, i] { quick.push_back(i); });
    pool.post_quick([&] { done.set_value(); });
    done.get_future().wait();  // although the others wait
    go.set_value();
    hop = [&] {
      if (++hops < 100) hops % 2 == 0 ? pool.post(hop) : pool.post_quick(hop);
    };
    pool.post(hop);
  }
  CHECK(hops == 100);
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(quick == expected);
}
