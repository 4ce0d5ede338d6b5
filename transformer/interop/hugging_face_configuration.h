#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/interop/json_value.h"

namespace transformer {

/// An object of settings in a file, whose values are of the types that are asked for.
class Configuration {
 public:
  /// Throws Error naming the file where it is no JSON object, larger than `most_bytes`, or of more values than that.
  explicit Configuration(const std::filesystem::path& file, size_t most_bytes = size_t{8} << 20,
                         size_t most_values = JsonValue::usual_most_values);

  /// Throws Error: such a model cannot be imported, because the setting `key` is `what`.
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const;
  /// Throws Error: `key` names `token`, at which `transformers` would split a text.
  [[noreturn]] void refuse_token(std::string_view key, std::string_view token) const;
  /// Null where there is none.
  const JsonValue* find(std::string_view key) const { return value_.find(key); }
  /// All settings, in the file's order.
  const std::vector<JsonValue::Entry>& entries() const { return value_.entries(); }
  /// The tokens that settings of their own name, such as "mask_token", by these keys.
  std::vector<std::pair<std::string, std::string>> tokens() const;

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

/// Where tokens are listed beside those that settings of their own name: as a list, or by names.
inline constexpr std::array listed_tokens = {"additional_special_tokens", "extra_special_tokens",
                                             "model_specific_special_tokens"};

/// The class of the tokenizer that tokenizer_config.json of `folder` names, or else config.json, without "Fast"; empty
/// where neither does. Throws Error unless it is one of `known`: others make other input of the same text.
std::string tokenizer_of(const std::filesystem::path& folder, std::initializer_list<const char*> known);

}  // namespace transformer
