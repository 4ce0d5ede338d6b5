#include "transformer/base/json_number.h"

#include <nlohmann/json.hpp>

#include "support.h"

using namespace transformer;
using Json = nlohmann::json;

TEST_CASE("a whole number is read as one, and nothing else is") {
  const std::vector<std::pair<const char*, int64_t>> whole = {{"0", 0},
                                                              {"-5", -5},
                                                              {"3.0", 3},
                                                              {"1e3", 1000},
                                                              {"9223372036854775807", INT64_MAX},
                                                              {"-9223372036854775808", INT64_MIN},
                                                              {"-9.223372036854775808e18", INT64_MIN}};
  for (const auto& [text, number] : whole) {
    INFO(text);
    CHECK(whole_number(Json::parse(text)) == number);
    CHECK(whole_number_of(nlohmann::ordered_json::parse(text)) == number);
  }
  for (const char* text : {"9223372036854775808", "18446744073709551615", "1e300", "-1e300", "9.3e18", "2.5", "-1e-9",
                           "true", "null", "\"3\"", "[3]", "{}"}) {
    INFO(text);
    CHECK(!whole_number(Json::parse(text)));
    CHECK_THROWS_AS(whole_number_of(Json::parse(text)), Json::exception);
  }
}
