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
  explicit Builder(size_t most_values) : most_values_(most_values) {}

  std::string problem;

  JsonValue take() { return std::move(result_); }

  bool null() override { return add(std::monostate()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(Number{static_cast<double>(value), value}); }
  bool number_unsigned(number_unsigned_t value) override {
    Number number{static_cast<double>(value)};
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) {
      number.whole = static_cast<int64_t>(value);
    }
    return add(number);
  }
  bool number_float(number_float_t value, const std::string&) override { return add(Number{value}); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return begin(std::vector<Entry>()); }
  bool start_array(std::size_t) override { return begin(std::vector<JsonValue>()); }
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

  template <class Content>
  static JsonValue of(Content content) {
    JsonValue value;
    value.content_ = std::move(content);
    return value;
  }
  /// Before anything is kept of one more value.
  bool has_room() {
    if (values_++ < most_values_) return true;
    problem = fmt::format("has more than {} values", most_values_);
    return false;
  }
  template <class Content>
  bool add(Content content) {
    if (!has_room()) return false;
    place(of(std::move(content)));
    return true;
  }
  void place(JsonValue value) {
    if (open_.empty()) {
      result_ = std::move(value);
      return;
    }
    auto& parent = open_.back();
    if (auto* list = std::get_if<std::vector<JsonValue>>(&parent.value.content_)) {
      list->push_back(std::move(value));
    } else {
      std::get<std::vector<Entry>>(parent.value.content_).push_back({std::move(parent.key), std::move(value)});
    }
  }
  template <class Content>
  bool begin(Content content) {
    if (open_.size() >= deepest) {
      problem = "is nested too deeply";
      return false;
    }
    if (!has_room()) return false;
    open_.push_back({of(std::move(content))});
    return true;
  }
  bool finish() {
    auto value = std::move(open_.back().value);
    open_.pop_back();
    place(std::move(value));
    return true;
  }

  size_t most_values_, values_ = 0;
  JsonValue result_;
  std::vector<Open> open_;
};

JsonValue JsonValue::parse(std::string_view text, const std::string& where, size_t most_values) {
  // The parser would take a zero byte for the end of the text.
  if (text.find('\0') != std::string_view::npos)
    throw Error(where, "is no JSON (it holds a zero byte)", "the file is damaged");
  Builder builder(most_values);
  const bool whole = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!whole) throw Error(where, builder.problem.empty() ? "is no JSON" : builder.problem, "the file is damaged");
  return builder.take();
}

JsonValue JsonValue::read(const std::filesystem::path& file, size_t most_bytes, size_t most_values) {
  return parse(read_file(file, most_bytes), file.string(), most_values);
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const auto& entry : entries()) {
    if (entry.key == key) return entry.value.kind() == Kind::null ? nullptr : &entry.value;
  }
  return nullptr;
}

std::string JsonValue::found() const {
  switch (kind()) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return boolean() ? "true" : "false";
    case Kind::number:
      return whole() ? fmt::format("{}", *whole()) : fmt::format("{}", number());
    case Kind::text:
      return in_quotes(text());
    case Kind::list:
      return "a list";
    case Kind::object:
      break;
  }
  return "an object";
}

}  // namespace transformer
