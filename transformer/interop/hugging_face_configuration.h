#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "transformer/interop/json_value.h"

namespace transformer {

/// An object of settings in a file, whose values are of the types that are asked for.
class Configuration {
 public:
  /// Throws Error naming the file where it is no JSON object, or larger than `most_bytes`.
  explicit Configuration(const std::filesystem::path& file, size_t most_bytes = size_t{8} << 20);

  /// Throws Error: such a model cannot be imported, because the setting `key` is `what`.
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const;
  /// Null where there is none.
  const JsonValue* find(std::string_view key) const { return value_.find(key); }

  /// What `key` is set to, or else `otherwise`. Each throws Error for a value of another type.
  int64_t whole(std::string_view key) const;
  /// A number without a fraction.
  int64_t whole(std::string_view key, int64_t otherwise) const;
  /// A number of any kind.
  double number(std::string_view key, double otherwise) const;
  /// True or false.
  bool flag(std::string_view key, bool otherwise) const;
  /// A text; of an object that describes a token, its "content".
  std::string text(std::string_view key, const std::string& otherwise) const;

 private:
  [[noreturn]] void wrong(std::string_view key, const char* expected, const JsonValue* value) const;

  std::string name_;
  JsonValue value_;
};

}  // namespace transformer
