#include "transformer/interop/json_value.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"

namespace transformer {

/// Builds a tree from what the parser finds, one after the other.
class JsonValue::Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string problem;

  JsonValue take() { return std::move(result_); }

  bool null() override { return add({}) != nullptr; }
  bool boolean(bool value) override {
    auto* added = add(Kind::boolean);
    added->boolean_ = value;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    auto* added = add(Kind::number);
    added->number_ = static_cast<double>(value);
    added->whole_ = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    auto* added = add(Kind::number);
    added->number_ = static_cast<double>(value);
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) {
      added->whole_ = static_cast<int64_t>(value);
    }
    return true;
  }
  bool number_float(number_float_t value, const std::string&) override {
    add(Kind::number)->number_ = value;
    return true;
  }
  bool string(std::string& value) override {
    add(Kind::text)->text_ = std::move(value);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return begin(Kind::object); }
  bool start_array(std::size_t) override { return begin(Kind::list); }
  bool end_object() override { return finish(); }
  bool end_array() override { return finish(); }
  bool key(std::string& name) override {
    if (!open_.back().names.insert(name).second) {
      problem = fmt::format("names {} twice", in_quotes(name));
      return false;
    }
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    problem = fmt::format("is no JSON (byte {})", position);
    return false;
  }

 private:
  struct Open {
    JsonValue value;
    std::string key = {};  // of the next entry
    std::unordered_set<std::string> names = {};
  };
  static constexpr size_t deepest = 16;

  static JsonValue of(Kind kind) {
    JsonValue value;
    value.kind_ = kind;
    return value;
  }
  JsonValue* add(Kind kind) { return place(of(kind)); }
  JsonValue* add(JsonValue value) { return place(std::move(value)); }
  JsonValue* place(JsonValue value) {
    if (open_.empty()) {
      result_ = std::move(value);
      return &result_;
    }
    auto& parent = open_.back();
    if (parent.value.kind_ == Kind::list) return &parent.value.elements_.emplace_back(std::move(value));
    return &parent.value.entries_.emplace_back(Entry{std::move(parent.key), std::move(value)}).value;
  }
  bool begin(Kind kind) {
    if (open_.size() >= deepest) {
      problem = "is nested too deeply";
      return false;
    }
    open_.push_back({of(kind)});
    return true;
  }
  bool finish() {
    auto value = std::move(open_.back().value);
    open_.pop_back();
    place(std::move(value));
    return true;
  }

  JsonValue result_;
  std::vector<Open> open_;
};

JsonValue JsonValue::parse(std::string_view text, const std::string& where) {
  // The parser would take a zero byte for the end of the text.
  if (text.find('\0') != text.npos) throw Error(where, "is no JSON (it holds a zero byte)", "the file is damaged");
  Builder builder;
  const bool whole = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!whole) throw Error(where, builder.problem.empty() ? "is no JSON" : builder.problem, "the file is damaged");
  return builder.take();
}

JsonValue JsonValue::read(const std::filesystem::path& file, size_t most_bytes) {
  return parse(read_file(file, most_bytes), file.string());
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const auto& entry : entries_) {
    if (entry.key == key) return entry.value.kind_ == Kind::null ? nullptr : &entry.value;
  }
  return nullptr;
}

std::string JsonValue::found() const {
  switch (kind_) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return boolean_ ? "true" : "false";
    case Kind::number:
      return whole_ ? fmt::format("{}", *whole_) : fmt::format("{}", number_);
    case Kind::text:
      return in_quotes(text_);
    case Kind::list:
      return "a list";
    case Kind::object:
      break;
  }
  return "an object";
}

}  // namespace transformer
