#include "transformer/serving/api_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "transformer/base/error.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/text/lines.h"

namespace transformer {

bool equal_in_constant_time(std::string_view given, std::string_view known) {
  volatile unsigned difference = given.size() == known.size() ? 0 : 1;
  for (size_t i = 0; i < known.size(); ++i) {
    const char other = given.empty() ? '\0' : given[i % given.size()];
    difference = difference | static_cast<unsigned char>(known[i] ^ other);
  }
  return difference == 0;
}

namespace {

// The line up to a comment. A # within a key is the key's.
std::string_view before_comment(std::string_view line) {
  for (auto at = line.find('#'); at != line.npos; at = line.find('#', at + 1)) {
    if (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t') return line.substr(0, at);
  }
  return line;
}

}  // namespace

ApiKeys::ApiKeys(const std::filesystem::path& file) {
  constexpr size_t shortest = 8;
  const std::string text = read_file(file, size_t{1} << 20);
  size_t number = 0;
  std::string_view rest = text;
  if (rest.starts_with(byte_order_mark)) rest.remove_prefix(byte_order_mark.size());
  while (!rest.empty()) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    const auto key = trim(before_comment(line));
    if (key.empty()) continue;
    const auto where = fmt::format("{}:{}", file.string(), number);
    if (split_words(key).size() > 1) throw Error(where, "there is a blank in the key", "write a key a line");
    if (has_control_characters(key)) {
      throw Error(where, "there is a control character in the key, which no header can carry");
    }
    if (key.size() < shortest) throw Error(where, fmt::format("the key is shorter than {} bytes", shortest));
    keys_.emplace_back(key);
    longest_ = std::max(longest_, key.size());
  }
  if (keys_.empty()) throw Error(file.string(), "there is no key in it", "write one a line");
}

std::optional<size_t> ApiKeys::find(std::string_view key) const {
  std::optional<size_t> found;
  if (key.size() > longest_) return found;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (equal_in_constant_time(key, keys_[i])) found = i;
  }
  return found;
}

}  // namespace transformer
