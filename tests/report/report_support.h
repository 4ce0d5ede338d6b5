#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "support.h"

namespace transformer::test {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// What Python's parsers find in `text`: `kind` is html, svg or statistics (tests/reference/report_check.py). Fails the
/// test where they reject it.
inline nlohmann::json parsed(const std::string& kind, const std::string& text) {
  TemporaryDirectory directory;
  write_file(directory / "in", text);
  run_reference("report_check.py",
                fmt::format("{} '{}' '{}'", kind, (directory / "in").string(), (directory / "out").string()));
  return nlohmann::json::parse(read_file(directory / "out"));
}

}  // namespace transformer::test
