#include "transformer/interop/hugging_face_configuration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "transformer/base/error.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"

namespace transformer {

Configuration::Configuration(const std::filesystem::path& file, size_t most_bytes, size_t most_values)
    : name_(file.string()), value_(JsonValue::read(file, most_bytes, most_values)) {
  if (value_.kind() != JsonValue::Kind::object) throw Error(name_, "is no object of settings");
}

void Configuration::refuse(std::string_view key, const std::string& what) const {
  throw Error(name_, fmt::format("'{}' {}", key, what), "such a model cannot be imported");
}

void Configuration::refuse_token(std::string_view key, std::string_view token) const {
  refuse(key, fmt::format("names a token ({}) that a text would be split at", in_quotes(token)));
}

std::vector<std::pair<std::string, std::string>> Configuration::tokens() const {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [key, value] : entries()) {
    if (!key.ends_with("_token")) continue;
    const auto* content = value.kind() == JsonValue::Kind::object ? value.find("content") : &value;
    // "add_bos_token" and the like are no tokens.
    if (content && content->kind() == JsonValue::Kind::text) found.emplace_back(key, content->text());
  }
  return found;
}

int64_t Configuration::whole(std::string_view key) const {
  const auto* value = find(key);
  if (!value || !value->whole()) wrong(key, "a whole number", value);
  return *value->whole();
}

int64_t Configuration::whole(std::string_view key, int64_t otherwise) const {
  return find(key) ? whole(key) : otherwise;
}

double Configuration::number(std::string_view key, double otherwise) const {
  const auto* value = find(key);
  if (!value) return otherwise;
  if (value->kind() != JsonValue::Kind::number) wrong(key, "a number", value);
  return value->number();
}

bool Configuration::flag(std::string_view key, bool otherwise) const {
  const auto* value = find(key);
  if (!value) return otherwise;
  if (value->kind() != JsonValue::Kind::boolean) wrong(key, "true or false", value);
  return value->boolean();
}

std::string Configuration::text(std::string_view key, const std::string& otherwise) const {
  const auto* value = find(key);
  if (value && value->kind() == JsonValue::Kind::object) value = value->find("content");
  if (!value) return otherwise;
  if (value->kind() != JsonValue::Kind::text) wrong(key, "a text", value);
  return value->text();
}

void Configuration::wrong(std::string_view key, const char* expected, const JsonValue* value) const {
  throw Error(name_, fmt::format("'{}' should be {}, found {}", key, expected, value ? value->found() : "nothing"));
}

std::string tokenizer_of(const std::filesystem::path& folder, std::initializer_list<const char*> known) {
  for (const char* name : {"tokenizer_config.json", "config.json"}) {
    if (!is_file(folder / name)) continue;
    const Configuration config(folder / name);
    const auto* own = config.find("auto_map");
    // What else has an entry there is no tokenizer.
    if (own && (own->kind() != JsonValue::Kind::object || own->find("AutoTokenizer"))) {
      config.refuse("auto_map", "names a tokenizer of the model's own, which is not known here");
    }
    const auto given = config.text("tokenizer_class", "");
    if (given.empty()) continue;
    constexpr std::string_view fast = "Fast";
    auto plain = given.substr(0, given.size() - (given.ends_with(fast) ? fast.size() : 0));
    if (std::find(known.begin(), known.end(), plain) != known.end()) return plain;
    config.refuse("tokenizer_class",
                  fmt::format("is {}; {} is what is imported", in_quotes(given), fmt::join(known, " or ")));
  }
  return {};
}

}  // namespace transformer
