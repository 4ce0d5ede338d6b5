#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace transformer {

/// A JSON text that others have made, as a tree. It is refused where it is nested deeply, names something twice, or is
/// not UTF-8.
class JsonValue {
 public:
  /// JSON's types.
  enum class Kind {
    null,     // also of what is not there
    boolean,  // true or false
    number,   // see whole()
    text,     // UTF-8
    list,     // values in order
    object    // values by key
  };
  struct Entry;

  /// Far more than settings are; a value takes many times the two bytes that it has in a text.
  static constexpr size_t usual_most_values = 1'000'000;

  /// Throws Error naming `where` for what is no JSON, or has more than `most_values` values, lists and objects among
  /// them.
  static JsonValue parse(std::string_view text, const std::string& where, size_t most_values = usual_most_values);
  /// The same of a file, of at most `most_bytes`.
  static JsonValue read(const std::filesystem::path& file, size_t most_bytes = size_t{64} << 20,
                        size_t most_values = usual_most_values);

  /// Which of the following says something.
  Kind kind() const { return static_cast<Kind>(content_.index()); }
  /// False of all but `true`.
  bool boolean() const { return content_or_none<bool>(); }
  /// As a double, to which large whole numbers are rounded; 0 of what is none.
  double number() const { return content_or_none<Number>().value; }
  /// A number without a fraction that an int64_t holds.
  std::optional<int64_t> whole() const { return content_or_none<Number>().whole; }
  /// Empty of what is no text.
  const std::string& text() const { return content_or_none<std::string>(); }
  /// A list's; none of everything else.
  const std::vector<JsonValue>& elements() const { return content_or_none<std::vector<JsonValue>>(); }
  /// An object's, in the text's order; none of everything else.
  const std::vector<Entry>& entries() const { return content_or_none<std::vector<Entry>>(); }
  /// The value of an object's `key`; null where there is none, or it is null.
  const JsonValue* find(std::string_view key) const;
  /// For messages: "'wide'", "3", "a list".
  std::string found() const;

 private:
  class Builder;
  struct Number {
    double value = 0;
    std::optional<int64_t> whole = {};
  };

  template <class Content>
  const Content& content_or_none() const {
    static const Content none = {};
    const auto* content = std::get_if<Content>(&content_);
    return content ? *content : none;
  }

  // In the order of Kind.
  std::variant<std::monostate, bool, Number, std::string, std::vector<JsonValue>, std::vector<Entry>> content_;
};

/// A key of an object with its value.
struct JsonValue::Entry {
  std::string key;  // as it reads once escapes are resolved
  JsonValue value;  // may be null
};

}  // namespace transformer
