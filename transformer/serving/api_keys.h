#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

/// Whether two texts are the same, found in a time that depends on the length of `known` alone.
bool equal_in_constant_time(std::string_view given, std::string_view known);

/// The keys that clients may bring.
class ApiKeys {
 public:
  /// None is needed.
  ApiKeys() = default;
  /// A key a line; empty lines, and what follows a # that begins a line or stands behind a blank, count for nothing,
  /// nor does a byte order mark at the start. Throws Error for a file without any, for keys with blanks or control
  /// characters in them and for such as are shorter than 8 bytes.
  explicit ApiKeys(const std::filesystem::path& file);

  /// Whether requests have to bring one.
  bool needed() const { return !keys_.empty(); }
  /// Which of them it is; every key is compared, whichever it is, unless it is longer than all.
  std::optional<size_t> find(std::string_view key) const;

 private:
  std::vector<std::string> keys_;
  size_t longest_ = 0;
};

}  // namespace transformer
