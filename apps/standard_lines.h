#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/text/lines.h"

namespace transformer {

/// Standard input by lines, without the byte order mark and the carriage returns that some systems write.
class StandardLines {
 public:
  /// For messages.
  static constexpr const char* name = "standard input";

  /// False at the end. Throws Error for a line that is not UTF-8.
  bool next(std::string& line) {
    if (!std::getline(std::cin, line)) return false;
    if (line.ends_with('\r')) line.pop_back();
    if (++number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (const size_t broken = find_broken_utf8(line); broken != std::string::npos) {
      throw Error(fmt::format("{}:{}", name, number_), fmt::format("not UTF-8 (byte {} of the line)", broken + 1),
                  "convert the text");
    }
    return true;
  }

 private:
  int64_t number_ = 0;
};

}  // namespace transformer
