#include "transformer/base/setting_field.h"

#include <fmt/format.h>

#include <cmath>

#include "transformer/base/overloaded.h"

namespace transformer {

namespace {

/// Bounds in messages: 1, 0.5, without the point that a saved number has.
std::string bound_text(double number) {
  return fmt::format("{}", number);
}

}  // namespace

bool Range::contains(long double number) const {
  return (lowest_excluded ? number > lowest : number >= lowest) &&
         (highest_excluded ? number < highest : number <= highest);
}

std::string Range::text() const {
  const std::string low = bound_text(lowest), high = bound_text(highest);
  if (std::isinf(lowest) && std::isinf(highest)) return "";
  if (std::isinf(highest)) return (lowest_excluded ? "more than " : "at least ") + low;
  if (std::isinf(lowest)) return (highest_excluded ? "less than " : "at most ") + high;
  return (lowest_excluded ? "more than " : "from ") + low + (lowest_excluded ? " and " : " to ") +
         (highest_excluded  ? "less than "
          : lowest_excluded ? "at most "
                            : "") +
         high;
}

Range at_least(double lowest) {
  return {.lowest = lowest};
}
Range more_than(double lowest) {
  return {.lowest = lowest, .lowest_excluded = true};
}
Range at_most(double highest) {
  return {.highest = highest};
}
Range between(double lowest, double highest) {
  return {.lowest = lowest, .highest = highest};
}
Range half_open(double lowest, double highest) {
  return {.lowest = lowest, .highest = highest, .highest_excluded = true};
}
Range fraction() {
  return half_open(0, 1);
}

std::string SettingField::type_text() const {
  return std::visit(
      Overloaded{
          [](const int64_t*) { return std::string("an integer"); },
          [&](const uint64_t*) {
            return std::string(std::isinf(range.lowest) ? "an integer of at least 0" : "an integer");
          },
          [](const double*) { return std::string("a number"); },
          [](const bool*) { return std::string("true or false"); },
          [](const std::string*) { return std::string("a text"); },
          [](const std::vector<std::string>*) { return std::string("a list of texts"); },
          [](const std::vector<double>*) { return std::string("a list of numbers"); },
          [](const SettingField::Choice& choice) { return fmt::format("one of: {}", fmt::join(choice.names, ", ")); }},
      target);
}

std::string SettingField::range_text() const {
  const std::string text = range.text();
  return !text.empty() && std::holds_alternative<std::vector<double>*>(target) ? "each " + text : text;
}

std::string SettingField::expectation() const {
  const std::string text = range_text();
  return type_text() + (text.empty() ? "" : ", " + text);
}

}  // namespace transformer
