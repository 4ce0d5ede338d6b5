#include "transformer/base/setting_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <stdexcept>

#include "transformer/base/ascii.h"
#include "transformer/base/error.h"
#include "transformer/base/number.h"
#include "transformer/base/overloaded.h"
#include "transformer/base/spelling.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

/// Shortest text that reads back as the same number. The point and the exponent's sign are there for readers of
/// YAML 1.1 too, which take `1e-09` for a text.
std::string number_text(double number) {
  char digits[32];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  const size_t exponent = text.find('e');
  const std::string mantissa = text.substr(0, exponent);
  if (mantissa.find('.') != std::string::npos) return text;
  return mantissa + ".0" + (exponent == std::string::npos ? "" : text.substr(exponent));
}

std::optional<double> parse_double(const std::string& text) {
  const auto number = number_in<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

enum class Parsed { yes, malformed, too_large };

template <class Integer>
Parsed parse_integer(const std::string& text, Integer& number) {
  const char* end = text.data() + text.size();
  const auto [last, status] = std::from_chars(text.data(), end, number);
  if (last == end && status == std::errc::result_out_of_range) return Parsed::too_large;
  if (last == end && status == std::errc()) return Parsed::yes;
  // 1e5, 2.5e3: exact as long as a double holds every integer.
  if (text.find_first_of("eE") == std::string::npos) return Parsed::malformed;
  const auto real = parse_double(text);
  if (!real || std::trunc(*real) != *real) return Parsed::malformed;
  if (std::abs(*real) > 9007199254740992.0) return Parsed::too_large;
  if (std::is_unsigned_v<Integer> && *real < 0) return Parsed::malformed;
  number = static_cast<Integer>(*real);
  return Parsed::yes;
}

}  // namespace

std::string SettingValue::found() const {
  switch (kind) {
    case Kind::nothing:
      return "nothing";
    case Kind::scalar:
      return in_quotes(texts[0]);
    case Kind::list:
      return "a list";
    case Kind::mixed_list:
      return "a list of more than texts";
    case Kind::mapping:
      return "a mapping";
    case Kind::too_long:
      return "a list that aliases make longer than a file may be";
  }
  return "";
}

std::optional<int64_t> SettingValue::integer() const {
  int64_t number = 0;
  if (kind != Kind::scalar || parse_integer(texts[0], number) != Parsed::yes) return std::nullopt;
  return number;
}

void assign(const SettingField& field, const std::string& name, const SettingValue& value, const std::string& where) {
  const auto wrong_type = [&](const std::string& remedy = "") {
    throw Error(where, fmt::format("{} takes {}, found {}", name, field.expectation(), value.found()), remedy);
  };
  const auto out_of_range = [&](const std::string& text) {
    throw Error(where, fmt::format("{} is out of range: {}", name, printable(text)), "it takes " + field.expectation());
  };
  const bool scalar = value.kind == SettingValue::Kind::scalar;
  for (const auto& text : value.texts) {
    // The name of a file would end there.
    if (text.find('\0') == std::string::npos) continue;
    throw Error(where, fmt::format("{} takes no character U+0000, found {}", name, in_quotes(text)));
  }
  std::visit(Overloaded{[&](auto* number) {  // int64_t, uint64_t
                          std::remove_pointer_t<decltype(number)> parsed = 0;
                          if (!scalar) wrong_type();
                          const Parsed outcome = parse_integer(value.texts[0], parsed);
                          if (outcome == Parsed::malformed) wrong_type();
                          if (outcome == Parsed::too_large) {
                            using Limits = std::numeric_limits<decltype(parsed)>;
                            throw Error(where, fmt::format("{} is out of range: {}", name, in_quotes(value.texts[0])),
                                        std::isinf(field.range.highest)
                                            ? fmt::format("it takes {}, at most {}", field.expectation(), Limits::max())
                                            : "it takes " + field.expectation());
                          }
                          if (!field.range.contains(static_cast<long double>(parsed))) out_of_range(value.texts[0]);
                          *number = parsed;
                        },
                        [&](double* number) {
                          const auto parsed = scalar ? parse_double(value.texts[0]) : std::nullopt;
                          if (!parsed) wrong_type();
                          if (!field.range.contains(*parsed)) out_of_range(value.texts[0]);
                          *number = *parsed;
                        },
                        [&](bool* flag) {
                          const auto is = [&](std::initializer_list<const char*> words) {
                            return scalar && std::find(words.begin(), words.end(), value.texts[0]) != words.end();
                          };
                          const bool truth = is({"true", "True", "TRUE"});
                          if (!truth && !is({"false", "False", "FALSE"})) wrong_type();
                          *flag = truth;
                        },
                        [&](std::string* text) {
                          if (!scalar) wrong_type();
                          *text = value.texts[0];
                        },
                        [&](std::vector<std::string>* texts) {
                          if (!scalar && value.kind != SettingValue::Kind::list) wrong_type();
                          *texts = value.texts;
                        },
                        [&](std::vector<double>* numbers) {
                          if (!scalar && value.kind != SettingValue::Kind::list) wrong_type();
                          std::vector<double> parsed;
                          for (const auto& text : value.texts) {
                            const auto number = parse_double(text);
                            if (!number) {
                              throw Error(where, fmt::format("{} takes {}, found {} in it", name, field.expectation(),
                                                             in_quotes(text)));
                            }
                            if (!field.range.contains(*number)) out_of_range(text);
                            parsed.push_back(*number);
                          }
                          *numbers = parsed;
                        },
                        [&](const SettingField::Choice& choice) {
                          if (!scalar) wrong_type();
                          const auto found = std::find(choice.names.begin(), choice.names.end(), value.texts[0]);
                          if (found == choice.names.end())
                            wrong_type(did_you_mean(nearest_word(value.texts[0], choice.names)));
                          choice.set(static_cast<size_t>(found - choice.names.begin()));
                        }},
             field.target);
}

std::string as_yaml(const std::string& text) {
  constexpr std::array special = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), ascii_lower);
  const auto is_plain = [](char c) { return is_ascii_alphanumeric(c) || c == '_' || c == '/' || c == '.' || c == '-'; };
  const auto starts_plain = [](char c) { return is_ascii_letter(c) || c == '_' || c == '/'; };
  if (!text.empty() && starts_plain(text[0]) && std::all_of(text.begin(), text.end(), is_plain) &&
      std::find(special.begin(), special.end(), lower) == special.end()) {
    return text;
  }
  if (find_broken_utf8(text) != std::string::npos) {
    throw Error("", "the setting " + in_quotes(text) + " is not UTF-8", "settings hold UTF-8 text only");
  }
  std::string result = "\"";
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const char32_t point = next_code_point(text, position);
    if (point == U'"' || point == U'\\') {
      result += '\\';
      result += static_cast<char>(point);
    } else if (point < 0x20 || (point >= 0x7f && point < 0xa0)) {
      result += fmt::format("\\x{:02x}", static_cast<uint32_t>(point));
    } else if (point == 0x2028 || point == 0x2029 || point == 0xfeff || point == 0xfffe || point == 0xffff) {
      result += fmt::format("\\u{:04x}", static_cast<uint32_t>(point));
    } else {
      result += text.substr(begin, position - begin);
    }
  }
  return result + "\"";
}

std::string as_yaml(const SettingField& field) {
  return std::visit(Overloaded{[](const int64_t* value) { return std::to_string(*value); },
                               [](const uint64_t* value) { return std::to_string(*value); },
                               [](const double* value) { return number_text(*value); },
                               [](const bool* value) { return std::string(*value ? "true" : "false"); },
                               [](const std::string* value) { return as_yaml(*value); },
                               [](const std::vector<std::string>* value) {
                                 std::string list;
                                 for (const auto& text : *value) list += (list.empty() ? "" : ", ") + as_yaml(text);
                                 return "[" + list + "]";
                               },
                               [](const std::vector<double>* value) {
                                 std::string list;
                                 for (const double number : *value)
                                   list += (list.empty() ? "" : ", ") + number_text(number);
                                 return "[" + list + "]";
                               },
                               [&](const SettingField::Choice& choice) {
                                 const size_t index = choice.get();
                                 if (index >= choice.names.size()) {
                                   throw std::logic_error("setting " + field.name + " has a value without a name");
                                 }
                                 return as_yaml(choice.names[index]);
                               }},
                    field.target);
}

}  // namespace transformer
