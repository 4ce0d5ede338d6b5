#include "transformer/interop/torch_file.h"

#include <fmt/format.h>

#include <string>

#include "catch.h"
#include "error_of.h"
#include "transformer/interop/json_value.h"

using namespace transformer;
using namespace transformer::test;
using namespace std::string_literals;

namespace {

/// The older form of a file, whose state dict is `pickle`.
std::string older(const std::string& pickle) {
  const auto magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e"s;
  return fmt::format("{}\x80\x02M\xe9\x03.\x80\x02}}.\x80\x02{}", magic, pickle);
}

std::string torch_refusal(const std::string& bytes) {
  return error_of([&] { torch_weights(bytes, nullptr, "model.bin"); });
}

}  // namespace

TEST_CASE("a pickle's instructions are followed no further than a dictionary of tensors needs") {
  // Whatever is called, nothing is: the name alone is refused.
  CHECK_THAT(torch_refusal(older("cposix\nsystem\nX\x02\x00\x00\x00id\x85R."s)), Contains("'posix system'"));
  CHECK_THAT(torch_refusal(older("cbuiltins\neval\n."s)), Contains("'builtins eval'"));
  CHECK_THAT(torch_refusal(older("X\x05\x00\x00\x00posixX\x06\x00\x00\x00system\x93."s)), Contains("'posix system'"));
  CHECK_THAT(torch_refusal(older("cos\x1b[31m\nx\n."s)), Contains("\\x1b"));
  CHECK_THAT(torch_refusal(older("(dp0\n."s)), Contains("instruction 0x64"));
  CHECK_THAT(torch_refusal(older("N."s)), Contains("no dictionary"));
  CHECK_THAT(torch_refusal(older("}X\x01\x00\x00\x00wK\x01s.\x80\x02]."s)), Contains("'w' beside tensors"));
  CHECK_THAT(torch_refusal(older("u."s)), Contains("never began"));
  CHECK_THAT(torch_refusal(older("R."s)), Contains("where there is none"));
  CHECK_THAT(torch_refusal(older("h\x05."s)), Contains("never kept"));
  CHECK_THAT(torch_refusal(older("X\xff\xff\xff\xff..."s)), Contains("too early"));
  CHECK_THAT(torch_refusal(older("\x8a\x09         ."s)), Contains("64 bits"));
  // A dictionary that holds itself.
  CHECK_THAT(torch_refusal(older("}q\x00X\x01\x00\x00\x00wh\x00s.\x80\x02]."s)), Contains("'w' beside tensors"));
  CHECK(torch_refusal(older("}.\x80\x02]."s)).empty());
  CHECK_THAT(torch_refusal("PK\x03\x04"s), Contains("no end"));
  CHECK_THAT(torch_refusal("\x80\x04}."s), Contains("neither"));
  CHECK_THAT(torch_refusal(""), Contains("neither"));
}

TEST_CASE("a tensor without numbers may lie at the end of its storage, and none beyond it") {
  const auto tensor = [](char offset, char elements) {
    const auto storage =
        "(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
        "aX\x03\x00\x00\x00"
        "cpuK\x02tQ"s;
    const auto shape = "K"s + elements + "\x85", strides = "K\x01\x85"s;
    return older("}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n("s + storage + "K" + offset + shape + strides +
                 "tRs.");
  };
  CHECK_THAT(torch_refusal(tensor(2, 1)), Contains("beyond its numbers"));
  CHECK_THAT(torch_refusal(tensor(3, 0)), Contains("beyond its numbers"));
  CHECK_THAT(torch_refusal(tensor(2, 0)), !Contains("beyond its numbers"));
}

TEST_CASE("JSON that contradicts itself or nests without end is refused") {
  const auto mistake = [](const std::string& text) { return error_of([&] { JsonValue::parse(text, "a.json"); }); };
  CHECK_THAT(mistake("{\"a\": 1, \"a\": 2}"), Contains("'a' twice"));
  CHECK_THAT(mistake(std::string(100000, '[')), Contains("too deeply"));
  CHECK_THAT(mistake("{\"a\": }"), Contains("no JSON"));
  CHECK_THAT(mistake(""), Contains("no JSON"));
  CHECK_THAT(mistake(std::string("{}\0{", 4)), Contains("no JSON (it holds a zero byte)"));
  CHECK_THAT(mistake("{\"a\": \"\xff\"}"), Contains("no JSON"));
  CHECK_THAT(mistake("1e999"), Contains("no JSON"));
  const auto value =
      JsonValue::parse(R"({"a": [1, -2.5, true, null, "x"], "b": {"c": 18446744073709551615}})", "a.json");
  REQUIRE(value.find("a"));
  const auto& list = value.find("a")->elements();
  REQUIRE(list.size() == 5);
  CHECK(list[0].whole() == 1);
  CHECK_FALSE(list[1].whole());
  CHECK(list[1].number() == -2.5);
  CHECK(list[2].boolean());
  CHECK(list[3].kind() == JsonValue::Kind::null);
  CHECK(list[4].text() == "x");
  CHECK_FALSE(value.find("b")->find("c")->whole());
  CHECK_FALSE(value.find("d"));
}

TEST_CASE("JSON of more values than there may be is refused, lists and objects among them") {
  const std::string text = R"([{"a": 1, "b": null}, [true, "x"]])";
  CHECK(JsonValue::parse(text, "a.json", 7).elements().size() == 2);
  CHECK_THAT(error_of([&] { JsonValue::parse(text, "a.json", 6); }), Contains("a.json: has more than 6 values"));
  CHECK_THAT(error_of([] { JsonValue::parse("[]", "a.json", 0); }), Contains("more than 0 values"));
}
