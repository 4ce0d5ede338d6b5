#include "transformer/serving/request_checks.h"

#include <memory>
#include <stdexcept>
#include <string>

#include "support.h"
#include "transformer/base/error.h"
#include "transformer/serving/request_error.h"

using namespace transformer;

namespace {

// What is thrown, by its status and sentence.
template <class Body>
std::string refused(const Body& body) {
  try {
    body();
  } catch (const RequestError& error) {
    return std::to_string(error.status()) + " " + error.what();
  }
  return "";
}

template <class Thrown>
HttpResponse answer_of(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return answer_of_exception();
  }
}

}  // namespace

TEST_CASE("a request brings one of the server's keys, in its headers or its body, and is counted by it") {
  const test::TemporaryDirectory folder;
  test::write_file(folder / "keys", "first-key\nsecond-key\n");
  const ServingSettings settings;
  TaskPool pool(1);
  TurnQueue scoring(pool, 1, 1), aligning(pool, 1, 1);
  ServingContext context{settings, pool, scoring, aligning, nullptr, std::make_shared<const ApiKeys>()};
  HttpRequest request{.client = "1.2.3.4"};
  check_key(context, request, "");  // none is needed
  CHECK(request.client == "1.2.3.4");
  context.keys = std::make_shared<const ApiKeys>(folder / "keys");
  CHECK(refused([&] { check_key(context, request, ""); }) == "403 an API key is needed");
  CHECK(refused([&] { check_key(context, request, "third-key"); }) == "403 the API key is none of this server's");
  CHECK(request.client == "1.2.3.4");
  check_key(context, request, "second-key");
  CHECK(request.client == "key 2");
  request.api_key = "first-key";  // the headers' comes first
  check_key(context, request, "third-key");
  CHECK(request.client == "key 1");
}

TEST_CASE("a body is said to be JSON, or not said to be anything") {
  for (const char* type : {"", "application/json", "application/problem+json"}) {
    CHECK(refused([&] { check_is_json({.content_type = type}); }).empty());
  }
  CHECK(refused([] { check_is_json({.content_type = "text/plain"}); }) ==
        "415 a body of the type text/plain is not read here: send application/json");
}

TEST_CASE("characters of all texts are counted, not their bytes") {
  ServingSettings settings;
  settings.max_characters = 5;
  CHECK(refused([&] { check_characters(settings, {"é中", "a😀ü"}); }).empty());
  CHECK(refused([&] {
          check_characters(settings, {"é中", "a😀üx"});
        }) == "413 a request holds 5 characters at most, and this has 6");
}

TEST_CASE("what is thrown is answered by whose mistake it was") {
  const auto later = answer_of(RequestError(429, "come back", 7));
  CHECK(later.status == 429);
  CHECK(later.body == R"({"error":"come back"})");
  CHECK(later.headers == std::vector<std::pair<std::string, std::string>>{{"Retry-After", "7"}});
  CHECK(answer_of(RequestError(429, "come back", 1)).headers.size() == 1);
  CHECK(answer_of(RequestError(404, "nothing")).headers.empty());
  CHECK(answer_of(Error("decoding.beam", "is out of range")).status == 400);
  CHECK(answer_of(Failure("disk", "is full")).status == 500);
}
