#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "transformer/base/error.h"
#include "transformer/interop/json_value.h"

namespace transformer {

/// Whether there is a file of this name.
inline bool is_file(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored);
}

/// An object of settings in a file, whose values are of the types that are asked for.
class Configuration {
 public:
  /// Throws Error naming the file where it is no JSON object, or larger than `most_bytes`.
  explicit Configuration(const std::filesystem::path& file, size_t most_bytes = size_t{8} << 20)
      : name_(file.string()), value_(JsonValue::read(file, most_bytes)) {
    if (value_.kind() != JsonValue::Kind::object) throw Error(name_, "is no object of settings");
  }

  /// Throws Error: such a model cannot be imported, because the setting `key` is `what`.
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const {
    throw Error(name_, fmt::format("'{}' {}", key, what), "such a model cannot be imported");
  }
  /// Null where there is none.
  const JsonValue* find(std::string_view key) const { return value_.find(key); }

  /// What `key` is set to, or else `otherwise`. Each throws Error for a value of another type.
  int64_t whole(std::string_view key) const {
    const auto* value = find(key);
    if (!value || !value->whole()) wrong(key, "a whole number", value);
    return *value->whole();
  }
  int64_t whole(std::string_view key, int64_t otherwise) const { return find(key) ? whole(key) : otherwise; }
  double number(std::string_view key, double otherwise) const {
    const auto* value = find(key);
    if (!value) return otherwise;
    if (value->kind() != JsonValue::Kind::number) wrong(key, "a number", value);
    return value->number();
  }
  bool flag(std::string_view key, bool otherwise) const {
    const auto* value = find(key);
    if (!value) return otherwise;
    if (value->kind() != JsonValue::Kind::boolean) wrong(key, "true or false", value);
    return value->boolean();
  }
  /// A text; of an object that describes a token, its "content".
  std::string text(std::string_view key, const std::string& otherwise) const {
    const auto* value = find(key);
    if (value && value->kind() == JsonValue::Kind::object) value = value->find("content");
    if (!value) return otherwise;
    if (value->kind() != JsonValue::Kind::text) wrong(key, "a text", value);
    return value->text();
  }

 private:
  [[noreturn]] void wrong(std::string_view key, const char* expected, const JsonValue* value) const {
    throw Error(name_, fmt::format("'{}' should be {}, found {}", key, expected, value ? value->found() : "nothing"));
  }

  std::string name_;
  JsonValue value_;
};

}  // namespace transformer
