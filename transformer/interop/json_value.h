#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
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

  /// Throws Error naming `where` for what is no JSON.
  static JsonValue parse(std::string_view text, const std::string& where);
  /// The same of a file, of at most `most_bytes`.
  static JsonValue read(const std::filesystem::path& file, size_t most_bytes = size_t{64} << 20);

  /// Which of the following says something.
  Kind kind() const { return kind_; }
  /// False of all but `true`.
  bool boolean() const { return boolean_; }
  /// As a double, to which large whole numbers are rounded; 0 of what is none.
  double number() const { return number_; }
  /// A number without a fraction that an int64_t holds.
  std::optional<int64_t> whole() const { return whole_; }
  /// Empty of what is no text.
  const std::string& text() const { return text_; }
  /// A list's; none of everything else.
  const std::vector<JsonValue>& elements() const { return elements_; }
  /// An object's, in the text's order; none of everything else.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The value of an object's `key`; null where there is none, or it is null.
  const JsonValue* find(std::string_view key) const;
  /// For messages: "'wide'", "3", "a list".
  std::string found() const;

 private:
  class Builder;
  Kind kind_ = Kind::null;
  bool boolean_ = false;
  double number_ = 0;
  std::optional<int64_t> whole_;
  std::string text_;
  std::vector<JsonValue> elements_;
  std::vector<Entry> entries_;
};

/// A key of an object with its value.
struct JsonValue::Entry {
  std::string key;  // as it reads once escapes are resolved
  JsonValue value;  // may be null
};

}  // namespace transformer
