#include "transformer/interop/hugging_face_configuration.h"

#include <fmt/format.h>

#include "transformer/base/error.h"

namespace transformer {

Configuration::Configuration(const std::filesystem::path& file, size_t most_bytes)
    : name_(file.string()), value_(JsonValue::read(file, most_bytes)) {
  if (value_.kind() != JsonValue::Kind::object) throw Error(name_, "is no object of settings");
}

void Configuration::refuse(std::string_view key, const std::string& what) const {
  throw Error(name_, fmt::format("'{}' {}", key, what), "such a model cannot be imported");
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

}  // namespace transformer
