#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "transformer/base/error.h"

namespace transformer {

static_assert(std::endian::native == std::endian::little, "numbers of other systems' files are read as they lie there");

/// How a file of another system is refused: an Error that names it, says what is wrong, and what was expected.
struct Refusal {
  std::string file;      ///< where
  std::string expected;  ///< "expected a state dict that torch.save wrote"

  /// Throws that Error.
  [[noreturn]] void operator()(const std::string& what) const { throw Error(file, what, expected); }
};

/// Reads forward through bytes, never beyond their end.
class ByteCursor {
 public:
  /// Reads `bytes`, which stay where they are; where they end too early, `refuse` is thrown.
  ByteCursor(std::string_view bytes, Refusal refuse) : bytes_(bytes), refuse_(std::move(refuse)) {}

  /// How many bytes were read.
  size_t position() const { return position_; }
  /// How many are left.
  size_t left() const { return bytes_.size() - position_; }
  /// The next `count` bytes.
  std::string_view take(uint64_t count) {
    if (count > left()) refuse_("ends too early");
    const auto taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }
  /// The next number, whose lowest byte comes first.
  template <class Number>
  Number number() {
    Number number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  /// To the end of the line, which goes, too.
  std::string_view line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) refuse_("ends too early");
    const auto found = take(end - position_);
    ++position_;
    return found;
  }

 private:
  std::string_view bytes_;
  Refusal refuse_;
  size_t position_ = 0;
};

}  // namespace transformer
